package fanout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/telemetry"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/access"
	"github.com/apiary-relay/apiary/services/fanout/internal/deliver"
	"github.com/apiary-relay/apiary/services/fanout/internal/partition"
)

// Bus is what fan-out needs of the bus; *bus.Bus satisfies it.
type Bus interface {
	partition.Bus
	// Ping returns nil when the server has answered, an error when it cannot or ctx ends first.
	Ping(ctx context.Context) error
}

// Search is the one call of search that fan-out makes; the generated client satisfies it, NewSearch makes
// one over replicas.
type Search = access.Checker

// Deps are what fan-out is given.
type Deps struct {
	// Bus is connected, or connects by itself. The service does not close it.
	Bus Bus
	// Search decides who may read.
	Search Search
	// Draining, when closed, makes the node leave: it is what the process knows before Drain is called.
	// May be nil.
	Draining <-chan struct{}
	// Log, Meter and Tracer may be nil.
	Log    *slog.Logger
	Meter  metric.Meter
	Tracer trace.Tracer
}

// complete replaces what is nil and may be.
func (d Deps) complete() (Deps, error) {
	if d.Bus == nil || d.Search == nil {
		return d, errors.New("fan-out needs a bus and search")
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Meter == nil {
		d.Meter = metricnoop.NewMeterProvider().Meter("fanout")
	}
	if d.Tracer == nil {
		d.Tracer = tracenoop.NewTracerProvider().Tracer("fanout")
	}
	return d, nil
}

// Service is a fan-out node. Register it with a gRPC server, and run it for as long as that server.
//
//	[new] ──Run──▶ [serving] ──Drain, Deps.Draining──▶ [draining] ──Run's ctx──▶ [stopped]
//
// Attach answers Unavailable unless serving. In draining, new subscriptions are refused while gateways
// move elsewhere; when all have, or after the grace, the queues are flushed and the streams end.
type Service struct {
	fanoutv1.UnimplementedFanoutServiceServer

	cfg        Config
	log        *slog.Logger
	bus        Bus
	draining   <-chan struct{}
	partitions []*partition.Partition
	links      links
}

// New makes the service. It opens nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure fanout: %w", err)
	}
	deps, err := deps.complete()
	if err != nil {
		return nil, err
	}
	m, err := partition.NewMetrics(deps.Meter)
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	shared := partition.Deps{
		Log: telemetry.Sampled(deps.Log, time.Second), Tracer: deps.Tracer, Bus: deps.Bus, Access: deps.Search,
		Metrics: m, Replays: make(chan struct{}, cfg.Replays),
	}
	s := &Service{
		cfg: cfg, log: deps.Log, bus: deps.Bus, draining: deps.Draining,
		partitions: make([]*partition.Partition, cfg.Partitions),
		links:      newLinks(),
	}
	for n := range s.partitions {
		s.partitions[n] = partition.New(uint32(n), cfg.partition(), shared)
	}
	if err := s.observe(deps.Meter); err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	return s, nil
}

// Register adds the service to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) { fanoutv1.RegisterFanoutServiceServer(r, s) }

// Run serves until ctx is done. It is ready at once: while the bus is away subscriptions wait for it.
func (s *Service) Run(ctx context.Context, ready func()) error {
	var running sync.WaitGroup
	for _, p := range s.partitions {
		running.Go(func() { p.Run(ctx) })
	}
	running.Go(func() { s.listen(ctx) })
	s.links.serve()
	ready()
	select {
	case <-s.draining: // never, when there is none
		s.leave(ctx)
		<-ctx.Done()
	case <-ctx.Done():
	}
	s.links.kill()
	running.Wait()
	s.links.wait()
	return nil
}

// Drain makes the node leave and returns when every stream has ended, or with ctx's error.
func (s *Service) Drain(ctx context.Context) error {
	s.leave(ctx)
	select {
	case <-s.links.emptied():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush gateways' queues: %w", ctx.Err())
	}
}

// drainPoll is how often leave looks whether everybody has moved.
const drainPoll = 20 * time.Millisecond

// leave refuses new subscriptions, gives gateways the grace to move, and closes what is left. It may be
// called more than once.
func (s *Service) leave(ctx context.Context) {
	if s.links.drain() {
		s.log.LogAttrs(ctx, slog.LevelInfo, "draining", slog.Int("gateways", len(s.links.all())))
	}
	grace := time.NewTimer(s.cfg.DrainGrace)
	defer grace.Stop()
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	for s.links.subscribed() {
		select {
		case <-poll.C:
			continue
		case <-grace.C:
		case <-ctx.Done():
		}
		break
	}
	s.links.end()
}

// links are the attached gateways.
type links struct {
	mu       sync.Mutex
	state    linkState
	open     map[*deliver.Link]struct{}
	away     bool // the bus is, as far as gateways have been told
	handlers sync.WaitGroup
	empty    chan struct{} // closed when state is ended and open is empty
	killed   chan struct{} // closed when streams must end, flushed or not
}

// linkState says what is accepted; it only goes up.
type linkState int

const (
	notServing linkState = iota
	serving              // streams and subscriptions
	draining             // subscriptions are refused, streams too
	ended                // every link is closed
)

func newLinks() links {
	return links{open: make(map[*deliver.Link]struct{}), empty: make(chan struct{}), killed: make(chan struct{})}
}

func (ls *links) serve() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.state = max(ls.state, serving)
}

// add takes a new stream's link in, unless none is accepted. The caller calls remove.
func (ls *links) add(l *deliver.Link) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.state != serving {
		return false
	}
	ls.open[l] = struct{}{}
	ls.handlers.Add(1)
	l.Bus(ls.away)
	return true
}

// bus tells every gateway whether the node reaches the bus, which also tells them that the node lives; it reports
// whether that is news.
func (ls *links) bus(away bool) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.open {
		l.Bus(away)
	}
	news := ls.away != away
	ls.away = away
	return news
}

func (ls *links) remove(l *deliver.Link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.open, l)
	ls.handlers.Done()
	ls.checkEmptyLocked()
}

func (ls *links) checkEmptyLocked() {
	if ls.state == ended && len(ls.open) == 0 {
		select {
		case <-ls.empty:
		default:
			close(ls.empty)
		}
	}
}

// accepts reports whether new subscriptions are taken.
func (ls *links) accepts() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.state == serving
}

// drain refuses what is new from now on; false if that has been so before.
func (ls *links) drain() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.state >= draining {
		return false
	}
	ls.state = draining
	return true
}

// end closes every link: what is queued is still sent.
func (ls *links) end() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.state = ended
	for l := range ls.open {
		l.Close()
	}
	ls.checkEmptyLocked()
}

// kill ends every stream at once. Called once.
func (ls *links) kill() {
	ls.end()
	close(ls.killed)
}

// subscribed reports whether any gateway still has a handle here.
func (ls *links) subscribed() bool {
	for _, l := range ls.all() {
		if l.Handles() > 0 {
			return true
		}
	}
	return false
}

func (ls *links) all() []*deliver.Link {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	out := make([]*deliver.Link, 0, len(ls.open))
	for l := range ls.open {
		out = append(out, l)
	}
	return out
}

// emptied returns a channel that is closed when the last stream has ended after end.
func (ls *links) emptied() <-chan struct{} { return ls.empty }

// wait waits for the handlers of all streams, and for their receivers.
func (ls *links) wait() { ls.handlers.Wait() }
