package apiary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/services/fanout"
	"github.com/apiary-relay/apiary/services/gateway"
	"github.com/apiary-relay/apiary/services/ingest"
	"github.com/apiary-relay/apiary/services/search"
)

// The names of the services in the process.
const (
	gatewayName = "gateway"
	ingestName  = "ingest"
	fanoutName  = "fanout"
	searchName  = "search"
)

// Deps is what the all-in-one is given.
type Deps struct {
	// IngestDB is a pool with the role apiary_ingest, SearchDB one with search.Role. The caller closes
	// them after Run has returned.
	IngestDB, SearchDB *pgxpool.Pool
	// Bus is connected, or connects by itself. The caller closes it after Run has returned.
	Bus *bus.Bus
	// SearchListen is where search answers outside of the process too, for the operator's lists: host:port or
	// unix:///path. Empty is nowhere.
	SearchListen string
	// Version is shown to clients in NIP-11.
	Version string
	// Log, MeterProvider and TracerProvider may be nil.
	Log            *slog.Logger
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
}

func (d Deps) complete() (Deps, error) {
	if d.IngestDB == nil || d.SearchDB == nil || d.Bus == nil {
		return d, errors.New("the all-in-one needs two database pools and a bus")
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.MeterProvider == nil {
		d.MeterProvider = metricnoop.NewMeterProvider()
	}
	if d.TracerProvider == nil {
		d.TracerProvider = tracenoop.NewTracerProvider()
	}
	return d, nil
}

// Service is the all-in-one: a lifecycle.Service and a lifecycle.Drainer.
type Service struct {
	memory  *rpc.Memory
	deps    Deps
	rpc     rpc.Deps
	group   *lifecycle.Group
	gateway *gateway.Service
}

// New builds all services; nothing is opened or started before Run.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the all-in-one: %w", err)
	}
	cfg.Gateway.Self = cfg.self()
	deps, err := deps.complete()
	if err != nil {
		return nil, err
	}
	s := &Service{
		memory: rpc.NewMemory(), deps: deps,
		group: lifecycle.NewGroup(lifecycle.Config{}),
	}
	s.rpc = rpc.Deps{Memory: s.memory, Log: deps.Log, MeterProvider: deps.MeterProvider, TracerProvider: deps.TracerProvider}
	for _, add := range []func(Config) error{s.addSearch, s.addFanout, s.addIngest, s.addGateway} {
		if err := add(cfg); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run runs all services until ctx is done or one fails.
func (s *Service) Run(ctx context.Context, ready func()) error { return s.group.Run(ctx, ready) }

// Drain closes clients' connections in waves, then finishes what they sent, by ctx's deadline.
func (s *Service) Drain(ctx context.Context) error { return s.group.Drain(ctx) }

// Addr is where clients connect, nil before Run has opened it.
func (s *Service) Addr() net.Addr { return s.gateway.Addr() }

// Dial connects to ingest, for the directory of communities. The caller closes the connection.
func (s *Service) Dial() (*grpc.ClientConn, error) { return rpc.Dial(target(ingestName), s.rpc) }

func target(name string) string { return "mem:///" + name }

func (s *Service) meter(name string) metric.Meter  { return s.deps.MeterProvider.Meter(name) }
func (s *Service) tracer(name string) trace.Tracer { return s.deps.TracerProvider.Tracer(name) }
func (s *Service) log(name string) *slog.Logger {
	return s.deps.Log.With(slog.String("part", name))
}

func (s *Service) addSearch(cfg Config) error {
	service, err := search.New(cfg.Search, search.Deps{
		DB: s.deps.SearchDB, Bus: s.deps.Bus, Log: s.log(searchName), Meter: s.meter(searchName),
	})
	if err != nil {
		return err
	}
	n := newNode()
	s.addServer(n, searchName, s.deps.SearchListen, service.Register, service)
	s.group.Add(searchName, n)
	return nil
}

func (s *Service) addFanout(cfg Config) error {
	n := newNode()
	searches, err := s.addPeers(n, searchName)
	if err != nil {
		return err
	}
	service, err := fanout.New(cfg.Fanout, fanout.Deps{
		Bus: s.deps.Bus, Search: fanout.NewSearch(searches),
		Log: s.log(fanoutName), Meter: s.meter(fanoutName), Tracer: s.tracer(fanoutName),
	})
	if err != nil {
		return err
	}
	s.addServer(n, fanoutName, "", service.Register, service)
	s.group.Add(fanoutName, n, searchName)
	return nil
}

func (s *Service) addIngest(cfg Config) error {
	service, err := ingest.New(cfg.Ingest, ingest.Deps{
		RPC: s.rpc, MemoryName: ingestName, DB: s.deps.IngestDB, Bus: s.deps.Bus,
		Log: s.log(ingestName), Meter: s.meter(ingestName), Tracer: s.tracer(ingestName),
	})
	if err != nil {
		return err
	}
	s.group.Add(ingestName, service)
	return nil
}

func (s *Service) addGateway(cfg Config) error {
	n := newNode()
	ingests, err := s.addPeers(n, ingestName)
	if err != nil {
		return err
	}
	fanouts, err := s.addPeers(n, fanoutName)
	if err != nil {
		return err
	}
	searches, err := s.addPeers(n, searchName)
	if err != nil {
		return err
	}
	s.gateway, err = gateway.New(cfg.Gateway, gateway.Deps{
		Ingest: ingests, Fanout: fanouts, Search: searches, Control: s.deps.Bus, Version: s.deps.Version,
		Log: s.log(gatewayName), Meter: s.meter(gatewayName), Tracer: s.tracer(gatewayName),
	})
	if err != nil {
		return err
	}
	n.group.Add(gatewayName, s.gateway)
	s.group.Add(gatewayName, n, ingestName, fanoutName, searchName)
	return nil
}

// addServer adds a service and the in-process server that it is registered with, which may listen elsewhere too. The
// server is first, so that it is drained last: the service ends its streams, for which the server then waits.
func (s *Service) addServer(n *node, name, listen string, register func(grpc.ServiceRegistrar), service lifecycle.Service) {
	server := rpc.NewServer(rpc.ServerConfig{Listen: listen}, rpc.ServerOptions{Deps: s.rpc, MemoryName: name})
	server.Register(register)
	n.group.Add("server", server)
	n.group.Add(name, service, "server")
}

// addPeers adds a node's view of another service, and waits at the start until it sees it: in one process, a
// client must not be told to try again because a connection in memory is being made.
func (s *Service) addPeers(n *node, of string) (*rpc.Peers, error) {
	peers, err := rpc.NewPeers(rpc.PeersConfig{Targets: []string{target(of)}}, s.rpc)
	if err != nil {
		return nil, err
	}
	n.group.Add("peers of "+of, peers)
	n.group.Add(of+" is seen", lifecycle.Task(func(ctx context.Context) error { return peers.Await(ctx, 1) }), "peers of "+of)
	return peers, nil
}
