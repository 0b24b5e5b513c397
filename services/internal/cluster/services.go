package cluster

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/apiary"
	"github.com/apiary-relay/apiary/services/fanout"
	"github.com/apiary-relay/apiary/services/gateway"
	"github.com/apiary-relay/apiary/services/ingest"
	"github.com/apiary-relay/apiary/services/search"
)

const (
	// poolConns is small, so that many nodes share one Postgres.
	poolConns = 4
	// presenceTTL is short, so that a test may wait for it, and long enough for gateways that are late.
	presenceTTL = 6 * time.Second
)

// RelayKey is the name of the nostrtest key that the relay signs with.
const RelayKey = "relay"

// OperatorHost is the host of the operators' API, OperatorKey the name of the nostrtest key of an operator.
const (
	OperatorHost = "operator.example"
	OperatorKey  = "operator"
)

// settings are the defaults, with timers that suit a test: what waits for a dead process waits less, what a
// busy machine may be late for waits longer.
func (c *Cluster) settings(address string) apiary.Config {
	cfg := apiary.DefaultConfig()
	cfg.Gateway.Listen = "127.0.0.1:0"
	if address != "" {
		cfg.Gateway.Listen = address
	}
	cfg.Gateway.AuthTimeout = patience
	cfg.Ingest.RelayKey = config.NewSecret(nostrtest.Key(RelayKey).Hex())
	cfg.Gateway.Self = nostrtest.PubKey(RelayKey).String()
	cfg.Gateway.OperatorHosts = []string{OperatorHost}
	cfg.Gateway.OperatorKeys = []string{nostrtest.PubKey(OperatorKey).String()}
	cfg.Ingest.JoinTerms, cfg.Ingest.JoinAgeAttestation = c.joinTerms, c.joinTerms != ""
	cfg.Ingest.PresenceTTL = presenceTTL
	cfg.Ingest.OutboxAge = time.Second
	cfg.Ingest.OutboxInterval = 250 * time.Millisecond
	return cfg
}

// meter is a real one: what is not measured properly fails as it would in a process.
func (c *Cluster) meter() metric.Meter {
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("test")
}

func (c *Cluster) rpcDeps(name string) rpc.Deps {
	return rpc.Deps{Memory: c.memory, Log: c.log(name), TracerProvider: c.tracers}
}

// pool opens a pool of the role's own and has p close it.
func (c *Cluster) pool(ctx context.Context, p *parts, role string) (*pgxpool.Pool, error) {
	cfg := config.MustDefault(postgres.Config{URL: config.NewSecret(c.database), Role: role, MaxConns: poolConns, AppName: role})
	pool, err := postgres.NewPool(ctx, cfg, postgres.PoolOptions{ReadOnly: role == search.Role})
	if err != nil {
		return nil, err
	}
	p.close = append(p.close, pool.Close)
	return pool, nil
}

// bus opens a connection to NATS and has p close it.
func (c *Cluster) bus(ctx context.Context, p *parts, name string) (*bus.Bus, error) {
	b, err := bus.Connect(ctx, bustest.Config(), bus.Options{Name: name, InProcess: c.nats, Log: c.log(name)})
	if err != nil {
		return nil, err
	}
	p.close = append(p.close, b.Close)
	return b, nil
}

// serve adds a service and the server that it is registered with.
func (c *Cluster) serve(p *parts, name string, service lifecycle.Service, register func(grpc.ServiceRegistrar)) {
	server := rpc.NewServer(rpc.ServerConfig{}, rpc.ServerOptions{Deps: c.rpcDeps(name), MemoryName: name})
	server.Register(register)
	p.services = append(p.services, service, server)
}

// peers adds a node's view of the nodes called names, and a part that is ready when it sees those that are
// up: nodes are started after those that they call.
func (c *Cluster) peers(p *parts, names []string) (*rpc.Peers, error) {
	var targets []string
	for _, name := range names {
		targets = append(targets, "mem:///"+name)
	}
	peers, err := rpc.NewPeers(rpc.PeersConfig{Targets: targets}, c.rpcDeps("peers"))
	if err != nil {
		return nil, err
	}
	up := 0
	for _, n := range c.nodes {
		for _, name := range names {
			if n.name == name && n.stop != nil {
				up++
			}
		}
	}
	p.services = append(p.services, peers, lifecycle.Task(func(ctx context.Context) error { return peers.Await(ctx, up) }))
	return peers, nil
}

func (c *Cluster) search(name string) builder {
	return func(ctx context.Context, _ string) (p parts, err error) {
		db, err := c.pool(ctx, &p, search.Role)
		if err != nil {
			return p, err
		}
		b, err := c.bus(ctx, &p, name)
		if err != nil {
			return p, err
		}
		service, err := search.New(c.settings("").Search, search.Deps{DB: db, Bus: b, Log: c.log(name)})
		if err != nil {
			return p, err
		}
		c.serve(&p, name, service, service.Register) //nolint:contextcheck // the server gets its context in Run
		return p, nil
	}
}

func (c *Cluster) ingest(name string) builder {
	return func(ctx context.Context, _ string) (p parts, err error) {
		db, err := c.pool(ctx, &p, ingest.Role)
		if err != nil {
			return p, err
		}
		b, err := c.bus(ctx, &p, name)
		if err != nil {
			return p, err
		}
		service, err := ingest.New(c.settings("").Ingest, ingest.Deps{ //nolint:contextcheck // the service gets its context in Run
			RPC: c.rpcDeps(name), MemoryName: name, DB: db, Bus: b,
			Log: c.log(name), Meter: c.meter(), Tracer: c.tracers.Tracer("ingest"),
		})
		if err != nil {
			return p, err
		}
		p.services = append(p.services, service)
		return p, nil
	}
}

func (c *Cluster) fanout(name string, searches []string) builder {
	return func(ctx context.Context, _ string) (p parts, err error) {
		b, err := c.bus(ctx, &p, name)
		if err != nil {
			return p, err
		}
		peers, err := c.peers(&p, searches)
		if err != nil {
			return p, err
		}
		service, err := fanout.New(c.settings("").Fanout, fanout.Deps{
			Bus: b, Search: fanout.NewSearch(peers), Log: c.log(name), Tracer: c.tracers.Tracer("fanout"),
		})
		if err != nil {
			return p, err
		}
		c.serve(&p, name, service, service.Register) //nolint:contextcheck // the server gets its context in Run
		return p, nil
	}
}

func (c *Cluster) gateway(ingests, fanouts, searches []string) builder {
	return func(ctx context.Context, address string) (p parts, err error) {
		b, err := c.bus(ctx, &p, "gateway")
		if err != nil {
			return p, err
		}
		deps := gateway.Deps{Control: b, Log: c.log("gateway"), Tracer: c.tracers.Tracer("gateway")}
		for _, of := range []struct {
			names []string
			peers *gateway.Peers
		}{{ingests, &deps.Ingest}, {fanouts, &deps.Fanout}, {searches, &deps.Search}} {
			peers, err := c.peers(&p, of.names)
			if err != nil {
				return p, err
			}
			*of.peers = peers
		}
		service, err := gateway.New(c.settings(address).Gateway, deps)
		if err != nil {
			return p, err
		}
		p.services = append(p.services, service)
		p.address = service.Addr
		return p, nil
	}
}

func (c *Cluster) allInOne() builder {
	return func(ctx context.Context, address string) (p parts, err error) {
		deps := apiary.Deps{Log: c.log("apiary"), TracerProvider: c.tracers}
		if deps.IngestDB, err = c.pool(ctx, &p, ingest.Role); err != nil {
			return p, err
		}
		if deps.SearchDB, err = c.pool(ctx, &p, search.Role); err != nil {
			return p, err
		}
		if deps.Bus, err = c.bus(ctx, &p, "apiary"); err != nil {
			return p, err
		}
		service, err := apiary.New(c.settings(address), deps)
		if err != nil {
			return p, err
		}
		c.dialDirectory = service.Dial
		p.services = append(p.services, service)
		p.address = service.Addr
		return p, nil
	}
}
