package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/admit"
	"github.com/apiary-relay/apiary/services/gateway/internal/bridge"
	"github.com/apiary-relay/apiary/services/gateway/internal/conn"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/edge"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
	"github.com/apiary-relay/apiary/services/gateway/internal/live"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
	"github.com/apiary-relay/apiary/services/gateway/internal/presence"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
	"github.com/apiary-relay/apiary/services/gateway/internal/submit"
	"github.com/apiary-relay/apiary/services/gateway/internal/told"
)

// software is what NIP-11 calls the project's homepage.
const software = "https://github.com/apiary-relay/apiary"

// Deps is what the gateway is given.
type Deps struct {
	// Ingest, Fanout and Search are the replicas of the services that the gateway calls.
	Ingest, Fanout, Search Peers
	// Control says whose access was taken. Without it sessions end when they are checked again (Config.Revalidate).
	Control Control
	// Version is shown in NIP-11.
	Version string
	// Log, Meter and Tracer may be nil.
	Log    *slog.Logger
	Meter  metric.Meter
	Tracer trace.Tracer
}

func (d Deps) complete() (Deps, error) {
	if d.Ingest == nil || d.Fanout == nil || d.Search == nil {
		return d, errors.New("the gateway needs ingest, fan-out and search")
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Meter == nil {
		d.Meter = metricnoop.NewMeterProvider().Meter("gateway")
	}
	if d.Tracer == nil {
		d.Tracer = tracenoop.NewTracerProvider().Tracer("gateway")
	}
	return d, nil
}

// Service is a gateway.
//
//	[new] ──Run──▶ [serving] ──Drain──▶ [draining: no upgrades, connections leave in waves] ──ctx──▶ [stopped]
type Service struct {
	cfg      Config
	log      *slog.Logger
	metrics  *metrics.Metrics
	search   searchv1.SearchServiceClient
	conns    *hub.Conns
	submit   *submit.Submitter
	roster   *presence.Roster
	live     *live.Live
	sessions *session.Server
	bridge   *bridge.Bridge
	edge     edge.Config

	directory *edge.Directory
	control   Control
	told      *told.Log
	doubts    *told.Doubts[*session.Session]

	mu   sync.Mutex
	addr net.Addr
}

// New makes the service. It opens nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure gateway: %w", err)
	}
	deps, err := deps.complete()
	if err != nil {
		return nil, err
	}
	m, err := metrics.New(deps.Meter)
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	log := telemetry.Sampled(deps.Log, time.Second)
	id, online := rand.Text(), NewPresence(deps.Ingest)
	s := &Service{
		cfg: cfg, log: deps.Log, metrics: m,
		search: NewSearch(deps.Search),
		conns:  hub.NewConns(cfg.MaxConnections),
		submit: submit.New(cfg.submit(id), ingestClients(deps.Ingest), log, m),
		roster: presence.New(cfg.presence(id), online, log),
		live:   live.New(cfg.live(), fanoutClients(deps.Fanout), log, m),

		control: deps.Control, told: told.NewLog(), doubts: told.NewDoubts[*session.Session](),
	}
	s.directory = edge.NewDirectory(cfg.directory(), s.search, s.told)
	invites := NewInvites(deps.Ingest)
	s.sessions = session.NewServer(cfg.session(), session.Deps{
		Log: log, Metrics: m, Tracer: deps.Tracer, Search: s.search, Submit: s.submit, Live: s.live,
		Presence: online, Roster: s.roster,
		Invites:  invites,
		Agents:   NewAgents(deps.Ingest),
		Overlays: NewOverlays(deps.Ingest),
		Told:     s.told, Doubt: s.doubts.Add,
	})
	proxies, err := edge.ParseNetworks(cfg.TrustedProxies)
	if err != nil {
		return nil, fmt.Errorf("configure gateway: %w", err)
	}
	gate := admit.New(cfg.admit())
	s.bridge = bridge.New(cfg.bridge(), bridge.Deps{
		Log: log, Metrics: m, Moderation: NewModeration(deps.Ingest), Invites: invites, Directory: NewDirectory(deps.Ingest), Lists: s.search, Queue: NewQueue(deps.Search), Sessions: s.sessions,
		Gate: gate, Addr: edge.ClientAddr(proxies),
	})
	s.edge = edge.Config{
		TrustForwardedHost: cfg.TrustForwardedHost,
		TrustedProxies:     proxies,
		Conn:               cfg.conn(),
		Gate:               gate,
		OperatorHosts:      s.bridge.OperatorHosts(),
		Info: edge.Info{
			Software: software, Version: deps.Version, PubKey: cfg.Contact, Self: cfg.Self,
			Wire: cfg.wire(), MaxSubs: cfg.MaxSubs, MaxLimit: cfg.Limit, DefaultLimit: cfg.Limit,
			CreatedAtWindow: cfg.CreatedAtWindow,
		},
	}
	return s, nil
}

// Addr returns the address for clients once Run has opened it, else nil.
func (s *Service) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Bounds of the HTTP server.
const (
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 30 * time.Second
	maxHeaderBytes = 32 << 10
	// farewell is how long connections may take to leave when Run is stopped.
	farewell = 2 * time.Second
)

// Run listens and serves until ctx ends. It does not wait for other services: while they are away,
// clients get errors that tell them to try again.
func (s *Service) Run(ctx context.Context, ready func()) error {
	tcp, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	s.mu.Lock()
	s.addr = tcp.Addr()
	s.mu.Unlock()
	limit := 0
	if s.cfg.MaxConnections > 0 {
		limit = s.cfg.MaxConnections + spareConnections
	}
	listener := cork.Listen(tcp, s.cfg.WriteTimeout, limit)

	poller, err := conn.NewPoller()
	if err != nil { // there is another way to wait, which takes more memory
		s.log.LogAttrs(ctx, slog.LevelWarn, "no polling of silent clients", slog.Any(telemetry.KeyError, err))
	}
	at := s.edge
	at.Conn.Poller = poller

	// What connections use outlives them: it stops only after the last one has left.
	inner, stopInner := context.WithCancel(context.WithoutCancel(ctx))
	var below sync.WaitGroup
	below.Go(func() { s.submit.Run(inner) })
	below.Go(func() { s.live.Run(inner) })
	below.Go(func() { s.roster.Run(inner) })
	below.Go(func() { s.revalidate(inner) })
	below.Go(func() { s.heed(inner) })

	sampled := telemetry.Sampled(s.log, time.Second)
	handler := edge.NewHandler(inner, at, sampled, s.metrics,
		s.directory, s.conns, s.sessions, s.bridge, s.told)
	server := &http.Server{
		Handler:        fault.Handler(sampled, handler),
		ConnContext:    edge.ConnContext,
		ReadTimeout:    readTimeout,  // of a request; an upgraded connection has its own ways
		WriteTimeout:   writeTimeout, // of plain answers; an upgraded connection has its own
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.log.LogAttrs(ctx, slog.LevelInfo, "listening for clients", slog.String("address", tcp.Addr().String()))
	ready()

	select {
	case err = <-served: // the listener failed
	case <-ctx.Done():
		_ = server.Close() // the listener's error, when it was closed before
		if err = <-served; errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
	}
	s.partWith()
	handler.Wait()
	stopInner()
	below.Wait()
	_ = poller.Close() // nobody waits there any more
	if err != nil {
		return fmt.Errorf("serve clients: %w", err)
	}
	return nil
}

// partWith closes what connections are left, without waves: Drain was the time for those.
func (s *Service) partWith() {
	s.roster.Withhold()
	s.conns.Refuse()
	for _, m := range s.conns.Members() {
		m.Restart()
	}
	select {
	case <-s.conns.Empty():
	case <-time.After(farewell):
		for _, m := range s.conns.Members() {
			m.Kill()
		}
	}
}

// The parts of a drain that are left for the last connections to be flushed, and for those to end that have to be
// cut off.
const (
	drainReserve = 5
	cutReserve   = 10
)

// Drain refuses upgrades and closes the connections with 1012 in jittered waves over the drain window,
// or over what ctx leaves of it. It returns when the last one has left, or when ctx ends; who has not left shortly
// before that is cut off.
func (s *Service) Drain(ctx context.Context) error {
	window := s.cfg.DrainWindow
	flush := ctx
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		window = min(window, left-left/drainReserve)
		var cancel context.CancelFunc
		flush, cancel = context.WithDeadline(ctx, deadline.Add(-left/cutReserve))
		defer cancel()
	}
	s.roster.Withhold()
	s.log.LogAttrs(ctx, slog.LevelInfo, "draining",
		slog.Int("connections", s.conns.Len()), slog.Duration("window", window))
	s.conns.Drain(flush, max(window, 0))
	for _, m := range s.conns.Members() {
		m.Kill()
	}
	select {
	case <-s.conns.Empty():
	case <-ctx.Done():
	}
	return nil
}
