package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/telemetry"
)

// ServerConfig is what an operator decides about a gRPC server.
type ServerConfig struct {
	Listen string `help:"gRPC listen address: host:port (port 0 takes any) or unix:///path. Empty listens only inside the process." hostport:"empty,unix"`
}

// ServerOptions is what the program decides.
type ServerOptions struct {
	Deps
	// MemoryName makes the server listen in Deps.Memory too, as mem:///MemoryName. Empty: it does not.
	MemoryName string
	// Draining, when closed, turns the gRPC health to NOT_SERVING while calls go on. May be nil.
	Draining <-chan struct{}
}

// Server is a gRPC server that is a lifecycle.Service and a lifecycle.Drainer. Register services
// before Run.
type Server struct {
	cfg    ServerConfig
	opts   ServerOptions
	grpc   *grpc.Server
	health *health.Server

	mu   sync.Mutex
	addr net.Addr // guarded by mu; nil until the network listener is open
}

// NewServer allocates a server; nothing is opened before Run.
func NewServer(cfg ServerConfig, opts ServerOptions) *Server {
	opts.Deps = opts.complete()
	log := telemetry.Sampled(opts.Log, time.Second)
	s := &Server{cfg: cfg, opts: opts, health: health.NewServer()}
	s.grpc = grpc.NewServer(
		grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithMeterProvider(opts.MeterProvider),
			otelgrpc.WithTracerProvider(opts.TracerProvider),
			otelgrpc.WithPropagators(telemetry.Propagator()),
			otelgrpc.WithFilter(notHealth),
		)),
		grpc.ChainUnaryInterceptor(fault.UnaryServerInterceptor(log)),
		grpc.ChainStreamInterceptor(fault.StreamServerInterceptor(log)),
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.WriteBufferSize(ioBuffer),
		grpc.ReadBufferSize(ioBuffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverKeepalive, Timeout: serverKeepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
	)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	s.health.Shutdown() // NOT_SERVING until Run listens
	return s
}

// notHealth keeps health checks out of traces and metrics: they are many and always the same.
func notHealth(info *stats.RPCTagInfo) bool {
	return !strings.HasPrefix(info.FullMethodName, "/grpc.health.v1.")
}

// Register adds services: s.Register(func(r grpc.ServiceRegistrar) { ingestv1.RegisterIngestServiceServer(r, h) }).
// Call it before Run.
func (s *Server) Register(add func(grpc.ServiceRegistrar)) { add(s.grpc) }

// Addr returns the address of the network listener, nil before Run opened it or when there is none.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Run listens, serves, and when ctx is done closes every connection at once; Drain is the gentle way
// and comes before. Run may be called once.
func (s *Server) Run(ctx context.Context, ready func()) error {
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	served := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() {
			err := s.grpc.Serve(l)
			if errors.Is(err, grpc.ErrServerStopped) {
				err = nil // stopped before this goroutine began to serve
			}
			served <- err
		}()
	}
	s.serving()
	ready()

	draining := s.opts.Draining
	for running := len(listeners); running > 0; {
		select {
		case <-ctx.Done():
			s.health.Shutdown()
			s.grpc.Stop()
			for range running {
				err = errors.Join(err, <-served)
			}
			return err
		case <-draining:
			draining = nil
			s.health.Shutdown()
		case one := <-served: // nil after Drain
			running--
			err = errors.Join(err, one)
		}
	}
	if err == nil && ctx.Err() == nil {
		<-ctx.Done() // drained; wait for our turn
	}
	return err
}

// Drain refuses new connections and calls and waits for those that are open, by ctx's deadline.
// Handlers of long streams must end them on their own: they learn from the process's draining
// channel.
func (s *Server) Drain(ctx context.Context) error {
	s.health.Shutdown()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.grpc.GracefulStop()
	}()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		s.grpc.Stop() // makes GracefulStop return
		<-stopped
		return fmt.Errorf("wait for open calls: %w", ctx.Err())
	}
}

// serving reports SERVING for "" and every registered service.
func (s *Server) serving() {
	s.health.Resume()
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	for name := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
}

// listen opens everything or nothing.
func (s *Server) listen(ctx context.Context) (opened []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range opened {
				_ = l.Close() // the first error is the one to report
			}
			opened = nil
		}
	}()
	if s.cfg.Listen != "" {
		l, err := listenNetwork(ctx, s.cfg.Listen)
		if err != nil {
			return opened, fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
		}
		opened = append(opened, l)
		s.mu.Lock()
		s.addr = l.Addr()
		s.mu.Unlock()
		s.opts.Log.LogAttrs(ctx, slog.LevelInfo, "gRPC listening", slog.String("addr", l.Addr().String()))
	}
	if s.opts.MemoryName != "" {
		if s.opts.Memory == nil {
			return opened, fmt.Errorf("listen on mem:///%s: no in-process transport given", s.opts.MemoryName)
		}
		l, err := s.opts.Memory.Listen(s.opts.MemoryName)
		if err != nil {
			return opened, err
		}
		opened = append(opened, l)
	}
	if len(opened) == 0 {
		return nil, errors.New("gRPC server has neither a listen address nor an in-process name")
	}
	return opened, nil
}

func listenNetwork(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	path, isUnix := strings.CutPrefix(addr, "unix://")
	if !isUnix {
		return lc.Listen(ctx, "tcp", addr)
	}
	// A socket file left by a killed process would be in the way; a live one is taken over on purpose
	// by nobody, since each process is given its own path.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	return lc.Listen(ctx, "unix", path)
}
