package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/agents"
	"github.com/apiary-relay/apiary/services/ingest/internal/commit"
	"github.com/apiary-relay/apiary/services/ingest/internal/directory"
	"github.com/apiary-relay/apiary/services/ingest/internal/invites"
	"github.com/apiary-relay/apiary/services/ingest/internal/moderation"
	"github.com/apiary-relay/apiary/services/ingest/internal/outbox"
	"github.com/apiary-relay/apiary/services/ingest/internal/overlay"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/presence"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
	"github.com/apiary-relay/apiary/services/ingest/internal/verify"
)

// maxTopics bounds the advisory locks of one transaction. Postgres has room for 6,400 locks by default
// (64 for each of 100 connections), for all replicas together.
const maxTopics = 256

// maxErasures bounds the stored events that one transaction may replace or delete, each as large as an event
// may be.
const maxErasures = 256

// stopMargin is how much longer than a batch the stop of a part may take.
const stopMargin = 5 * time.Second

// faultInterval is how often a repeated fault is logged.
const faultInterval = 5 * time.Second

// Role is the database role that ingest works under.
const Role = "apiary_ingest"

// Deps is what ingest consumes.
type Deps struct {
	// RPC is the log, the meters and the in-process transport of the gRPC server.
	RPC rpc.Deps
	// MemoryName makes the server reachable in the process as mem:///MemoryName; empty: it is not.
	MemoryName string
	// Log takes faults and rare changes of state.
	Log *slog.Logger
	// Meter makes the instruments.
	Meter metric.Meter
	// Tracer makes the spans of sampled submissions.
	Tracer trace.Tracer
	// DB is a pool with the role Role. The caller closes it after Run has returned.
	DB *pgxpool.Pool
	// Bus is where committed events go. The caller closes it after Run has returned.
	Bus *bus.Bus
	// Draining, when closed, tells callers through gRPC's health that this replica will leave; it is what the
	// process knows before Drain is called. May be nil.
	Draining <-chan struct{}
	// Now is the clock that created_at and expiration of what is submitted are compared with; nil is the system's. What is due
	// is decided by the database's.
	Now func() time.Time
}

// Service is ingest: a lifecycle.Service and a lifecycle.Drainer.
type Service struct {
	ingestv1.UnimplementedIngestServiceServer

	cfg     Config
	log     *slog.Logger
	faults  *slog.Logger // log, for what may go wrong again and again
	tracer  trace.Tracer
	metrics *metrics
	now     func() time.Time

	bus        *bus.Bus
	store      *store.Store
	verifier   *verify.Pool
	commits    *commit.Queue
	ephemerals *commit.Queue
	presence   *presence.Service
	publisher  *outbox.Publisher
	server     *rpc.Server
	group      *lifecycle.Group

	inFlight *semaphore.Weighted // bytes of submissions without a verdict
	draining chan struct{}       // closed when draining begins
	left     chan struct{}       // has an element when a request to vanish left something
	doomed   chan struct{}       // has an element when the deletion of a community was asked for
	name     string              // of this process, among replicas that drain communities

	mu      sync.Mutex
	closed  bool           // no more streams; guarded by mu
	streams sync.WaitGroup // readers and sequencers; Add only with mu held and closed false
}

// New builds the service; nothing is opened or started before Run.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := errors.Join(cfg.Validate(), cfg.CheckKey()); err != nil {
		return nil, fmt.Errorf("configure ingest: %w", err)
	}
	if deps.DB == nil || deps.Bus == nil || deps.Log == nil || deps.Meter == nil || deps.Tracer == nil {
		return nil, errors.New("configure ingest: DB, Bus, Log, Meter and Tracer are needed")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	x, err := newMetrics(deps.Meter)
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	s := &Service{
		cfg: cfg, log: deps.Log, faults: telemetry.Sampled(deps.Log, faultInterval), tracer: deps.Tracer, metrics: x, now: deps.Now,
		bus:      deps.Bus,
		inFlight: semaphore.NewWeighted(cfg.InFlightBytes),
		draining: make(chan struct{}),
		left:     make(chan struct{}, 1),
		doomed:   make(chan struct{}, 1),
		name:     rand.Text(),
	}
	key, err := cfg.relayKey()
	if err != nil {
		return nil, fmt.Errorf("configure ingest: %w", err)
	}
	joins := cfg.joinPolicy(key)
	s.store = store.New(deps.DB, cfg.Partitions, store.WithKey(key), store.WithMessageBytes(s.messageBytes),
		store.WithMaxOwned(cfg.MaxCommunitiesPerOwner), store.WithJoinPolicy(joins), store.WithMost(
			policy.Most{Member: cfg.ChannelsPerMember, Community: cfg.ChannelsPerCommunity},
			policy.Most{Member: cfg.ConversationsPerMember, Community: cfg.ConversationsPerCommunity}),
		store.WithRevoked(func(ctx context.Context, r store.Revocation) { _ = s.announce(ctx, r) }), // it has logged
		store.WithPublish(func(ctx context.Context, row *store.Row) { s.publisher.Publish(ctx, row) }))
	limits := wire.DefaultLimits()
	limits.Frame = cfg.MaxEvent
	workers, large := cfg.workers()
	s.verifier = verify.New(verify.Config{
		Workers: workers, Large: large, Wire: limits, Now: deps.Now,
		Policy:  policy.Limits{Content: cfg.MaxContent, Skew: cfg.MaxSkew},
		Observe: func(ctx context.Context, took time.Duration) { x.verify.Record(ctx, took.Seconds()) },
	})
	s.presence = presence.New(presence.Config{TTL: cfg.PresenceTTL, Partitions: cfg.Partitions}, presence.Deps{
		Bus: deps.Bus, Store: s.store, Key: key, Now: deps.Now, Log: s.faults,
	})
	s.buildQueues(deps)
	if deps.Draining == nil {
		deps.Draining = s.draining
	}
	s.server = rpc.NewServer(cfg.GRPC, rpc.ServerOptions{Deps: deps.RPC, MemoryName: deps.MemoryName, Draining: deps.Draining})
	s.server.Register(func(r grpc.ServiceRegistrar) {
		ingestv1.RegisterIngestServiceServer(r, s)
		ingestv1.RegisterDirectoryServiceServer(r, directory.New(directory.Deps{
			Store: s.store, Announce: s.announce, Drain: s.drainLater, MaxOwned: cfg.MaxCommunitiesPerOwner,
		}))
		ingestv1.RegisterPresenceServiceServer(r, s.presence)
		ingestv1.RegisterModerationServiceServer(r, moderation.New(s.store, s.now))
		ingestv1.RegisterInviteServiceServer(r, invites.New(s.store, joins))
		ingestv1.RegisterAgentServiceServer(r, agents.New(s.store, cfg.AgentsPerOwner))
		ingestv1.RegisterOverlayServiceServer(r, overlay.New(key, deps.Now))
	})
	sweeper := outbox.NewSweeper(outbox.SweeperConfig{Age: cfg.OutboxAge, Interval: cfg.OutboxInterval}, s.store, deps.Bus, s.faults)
	if err := x.watch(deps.Meter, s.publisher, sweeper); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	s.assemble(deps, sweeper)
	return s, nil
}

func (s *Service) buildQueues(deps Deps) {
	s.publisher = outbox.NewPublisher(deps.Bus, s.store, s.faults, func(ctx context.Context, took time.Duration, ok bool) {
		if ok {
			s.metrics.publish.Record(ctx, took.Seconds())
		} else {
			s.metrics.left.Add(ctx, 1)
		}
	})
	limits := func() commit.Limits {
		return commit.Limits{
			Events: s.cfg.BatchEvents, Bytes: min(s.cfg.BatchBytes, s.messageBytes()), Erasures: maxErasures, Topics: maxTopics,
		}
	}
	committer := &commit.Committer{
		Store: s.store, Publish: s.publisher.Publish, Left: s.vanishLater, Timeout: s.cfg.CommitTimeout, Observe: s.metrics.committed,
		Tracer: deps.Tracer, Log: s.faults,
	}
	s.commits = commit.NewQueue(s.cfg.QueueEvents, limits, committer.Flush)
	ephemeral := &commit.Ephemeral{
		Store: s.store, Bus: deps.Bus, Partitions: s.cfg.Partitions, Timeout: s.cfg.CommitTimeout, Presence: s.presence, Log: s.faults,
		Frames: commit.NewFrames(s.cfg.AgentFramesPerSecond, s.now),
	}
	s.ephemerals = commit.NewQueue(s.cfg.QueueEvents, limits, ephemeral.Flush)
}

// assemble puts the parts in the order of start. They stop in reverse: first no new calls, then the streams
// end, then what they were waiting for.
func (s *Service) assemble(deps Deps, sweeper *outbox.Sweeper) {
	s.group = lifecycle.NewGroup(lifecycle.Config{
		Log:        s.log,
		OnDraining: sync.OnceFunc(func() { close(s.draining) }),
		// Streams end when their batches have, one way or the other.
		StopTimeout: s.cfg.CommitTimeout + stopMargin,
	})
	s.group.Add("streams-definition", lifecycle.Func(func(ctx context.Context, ready func()) error {
		return s.ensureStreams(ctx, ready, deps.Bus)
	}))
	s.group.Add("settings", lifecycle.Func(s.watchSettings))
	s.group.Add("partitions", lifecycle.Func(s.keepPartitions))
	s.group.Add("expiry", lifecycle.Func(s.sweepExpired))
	s.group.Add("vanished", lifecycle.Func(s.sweepVanished))
	s.group.Add("outdated", lifecycle.Func(s.sweepOutdated))
	s.group.Add("moderation", lifecycle.Func(s.forgetModeration))
	s.group.Add("channels", lifecycle.Func(s.keepChannels))
	s.group.Add("rosters", lifecycle.Func(s.keepRosters))
	s.group.Add("reminders", lifecycle.Func(s.remind))
	s.group.Add("attestations", lifecycle.Func(s.endAttestations))
	s.group.Add("sweeper", sweeper)
	s.group.Add("publisher", s.publisher)
	s.group.Add("commits", s.commits, "publisher")
	s.group.Add("presence", s.presence)
	s.group.Add("deletions", lifecycle.Func(s.drainDeleted), "presence")
	s.group.Add("ephemerals", s.ephemerals, "presence")
	s.group.Add("verifier", s.verifier)
	s.group.Add("open-streams", lifecycle.OnStop(s.waitStreams), "commits", "ephemerals", "verifier")
	s.group.Add("server", s.server, "open-streams")
}

// messageHeadroom is what a message on the bus holds besides envelopes: its id and framing.
const messageHeadroom = 1 << 10

// messageBytes is what the envelopes of one message may weigh. What NATS would not take must not be committed,
// since it could never be passed on. Until NATS was reached once the configuration alone has to do.
func (s *Service) messageBytes() int {
	most := s.bus.MaxPayload()
	if most == 0 {
		return math.MaxInt
	}
	return int(most) - messageHeadroom
}

// maxEvent is how many bytes of JSON an event may have. A reply goes in one message with the summary of its thread.
func (s *Service) maxEvent() int {
	return min(s.cfg.MaxEvent, s.messageBytes()-policy.SummaryBytes-2*policy.EnvelopeOverhead)
}

// checkRoom refuses an event that would not go in one message with what the relay may sign because of it. Without a key it
// signs nothing.
func (s *Service) checkRoom(c *policy.Candidate) policy.Verdict {
	if !s.cfg.RelayKey.IsSet() || c.Size() <= s.messageBytes() {
		return policy.Verdict{}
	}
	return policy.Verdict{
		Reason:  fault.Invalid,
		Message: "the max_payload of this relay's NATS is too small for what the relay may have to sign because of this",
	}
}

// Run serves until ctx is done. It is ready when the server listens: neither Postgres nor NATS is waited for.
func (s *Service) Run(ctx context.Context, ready func()) error { return s.group.Run(ctx, ready) }

// Drain refuses new submissions, answers those under way, and publishes what was committed, by ctx's
// deadline.
func (s *Service) Drain(ctx context.Context) error { return s.group.Drain(ctx) }

// Server returns the gRPC server, for its address.
func (s *Service) Server() *rpc.Server { return s.server }

func (s *Service) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// track counts n goroutines of a new stream; false when no more may start.
func (s *Service) track(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.streams.Add(n)
	return true
}

// waitStreams runs when the server has stopped, so no stream can be added.
func (s *Service) waitStreams() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.streams.Wait()
	return nil
}
