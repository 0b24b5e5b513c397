package ingest_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest"
)

func TestMain(m *testing.M) {
	const nats = "github.com/nats-io/nats-server/v2/server"
	// A NATS server that is shut down while it makes a stream leaves the goroutines of that stream's store behind.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction(nats+".(*fileStore).flushStreamStateLoop"), goleak.IgnoreTopFunction(nats+"/ats.Register.func1"))
}

// patience is how long a test waits for something that should come at once.
const patience = 30 * time.Second

// harness is a database, a NATS server and any number of replicas on them.
type harness struct {
	tb     testing.TB
	admin  *pgxpool.Pool
	nats   *bustest.Server
	memory *rpc.Memory
}

func newHarness(tb testing.TB, nats ...bustest.Option) *harness {
	tb.Helper()
	return &harness{tb: tb, admin: pgtest.New(tb), nats: bustest.New(tb, nats...), memory: rpc.NewMemory()}
}

// options change how a replica is started.
type options struct {
	cfg    ingest.Config
	db     postgres.Config
	log    *slog.Logger
	tracer trace.Tracer
	now    func() time.Time
}

type option func(*options)

// replica is one running ingest and a connection to it.
type replica struct {
	*ingest.Service
	publisher ingestv1.IngestServiceClient
	directory ingestv1.DirectoryServiceClient
	moderator ingestv1.ModerationServiceClient
	invites   ingestv1.InviteServiceClient
	pool      *pgxpool.Pool
	// stop ends Run, after a drain if one is wanted, and returns what Run returned.
	stop func(drain bool) error
}

// start runs a replica until the test ends.
func (h *harness) start(name string, opts ...option) *replica {
	h.tb.Helper()
	o := options{
		cfg: ingest.DefaultConfig(), db: pgtest.Config(h.tb), log: slog.New(slog.DiscardHandler),
		tracer: tracenoop.NewTracerProvider().Tracer(""),
	}
	o.cfg.OutboxInterval, o.cfg.OutboxAge = 50*time.Millisecond, 300*time.Millisecond
	o.cfg.CommitTimeout = 5 * time.Second
	for _, opt := range opts {
		opt(&o)
	}
	o.db.Role = ingest.Role
	pool, err := postgres.NewPool(h.tb.Context(), o.db, postgres.PoolOptions{})
	require.NoError(h.tb, err)
	b := h.nats.Connect(h.tb)
	service, err := ingest.New(o.cfg, ingest.Deps{
		RPC: rpc.Deps{Memory: h.memory}, MemoryName: name, Log: o.log,
		Meter: metricnoop.NewMeterProvider().Meter(""), Tracer: o.tracer, DB: pool, Bus: b, Now: o.now,
	})
	require.NoError(h.tb, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.tb.Context()))
	ready, result := make(chan struct{}), make(chan error, 1)
	go func() { result <- service.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-result:
		require.NoError(h.tb, err, "replica ended before it was ready")
	case <-time.After(patience):
		require.FailNow(h.tb, "replica is not ready")
	}
	conn, err := rpc.Dial("mem:///"+name, rpc.Deps{Memory: h.memory})
	require.NoError(h.tb, err)
	r := &replica{
		Service: service, publisher: ingestv1.NewIngestServiceClient(conn), directory: ingestv1.NewDirectoryServiceClient(conn),
		moderator: ingestv1.NewModerationServiceClient(conn),
		invites:   ingestv1.NewInviteServiceClient(conn), pool: pool,
	}
	var once sync.Once
	var stopErr error
	r.stop = func(drain bool) error {
		once.Do(func() {
			if drain {
				within, cancelDrain := context.WithTimeout(context.WithoutCancel(h.tb.Context()), patience)
				defer cancelDrain()
				stopErr = service.Drain(within)
			}
			cancel()
			if err := <-result; stopErr == nil {
				stopErr = err
			}
			_ = conn.Close()
			pool.Close()
		})
		return stopErr
	}
	h.tb.Cleanup(func() { _ = r.stop(false) })
	return r
}

// fillPool leaves all connections that the replica may have idle in its pool.
func (r *replica) fillPool(tb testing.TB) {
	tb.Helper()
	for range r.pool.Config().MaxConns {
		conn, err := r.pool.Acquire(tb.Context())
		require.NoError(tb, err)
		defer conn.Release()
	}
}

func (h *harness) count(query string, args ...any) int {
	h.tb.Helper()
	var n int
	require.NoError(h.tb, h.admin.QueryRow(h.tb.Context(), query, args...).Scan(&n))
	return n
}

// community makes an open community, or a closed one with an owner.
func (h *harness) community(r *replica, host string, access ingestv1.Access) int64 {
	h.tb.Helper()
	owner := nostrtest.PubKey("owner")
	got, err := r.directory.CreateCommunity(h.tb.Context(), &ingestv1.CreateCommunityRequest{Host: host, Access: access, Owner: owner[:]})
	require.NoError(h.tb, err)
	return got.GetCommunity()
}

// event signs an event of author that is made now.
func event(tb testing.TB, author string, opts ...nostrtest.Option) *nostr.Event {
	tb.Helper()
	return nostrtest.Event(tb, author, append([]nostrtest.Option{nostrtest.CreatedAt(time.Now().Unix())}, opts...)...)
}

// by makes a submission of an event by the principal of these names.
func by(community int64, ev *nostr.Event, names ...string) *ingestv1.Submission {
	s := &ingestv1.Submission{Community: community, Raw: nostrtest.Raw(ev), Principal: &commonv1.Principal{}}
	for _, n := range names {
		p := nostrtest.PubKey(n)
		s.Principal.Pubkeys = append(s.Principal.Pubkeys, p[:])
	}
	return s
}

// client is one Publish stream.
type client struct {
	tb     testing.TB
	stream grpc.BidiStreamingClient[ingestv1.PublishRequest, ingestv1.PublishResponse]
	refs   uint64
	early  map[uint64]*ingestv1.Verdict // received and not asked for yet
}

func (h *harness) open(r *replica) *client {
	h.tb.Helper()
	stream, err := r.publisher.Publish(h.tb.Context())
	require.NoError(h.tb, err)
	return &client{tb: h.tb, stream: stream, early: map[uint64]*ingestv1.Verdict{}}
}

// send sends submissions in one request and returns their refs.
func (c *client) send(list ...*ingestv1.Submission) []uint64 {
	c.tb.Helper()
	refs := make([]uint64, len(list))
	for i, s := range list {
		c.refs++
		s.Ref, refs[i] = c.refs, c.refs
	}
	require.NoError(c.tb, c.stream.Send(&ingestv1.PublishRequest{Submissions: list}))
	return refs
}

// verdicts waits for the verdicts of these refs and returns them in order.
func (c *client) verdicts(refs ...uint64) []*ingestv1.Verdict {
	c.tb.Helper()
	list := make([]*ingestv1.Verdict, len(refs))
	for i, ref := range refs {
		for c.early[ref] == nil {
			resp, err := c.stream.Recv()
			require.NoError(c.tb, err)
			for _, v := range resp.GetVerdicts() {
				require.Nil(c.tb, c.early[v.GetRef()], "two verdicts for one submission")
				c.early[v.GetRef()] = v
			}
		}
		list[i] = c.early[ref]
		delete(c.early, ref)
	}
	return list
}

// offer sends one submission and returns its verdict.
func (c *client) offer(s *ingestv1.Submission) *ingestv1.Verdict {
	c.tb.Helper()
	return c.verdicts(c.send(s)...)[0]
}

// accept sends submissions one by one, each of which must be accepted.
func (c *client) accept(list ...*ingestv1.Submission) {
	c.tb.Helper()
	for _, s := range list {
		requireVerdict(c.tb, commonv1.Reason_REASON_UNSPECIFIED, "", c.offer(s))
	}
}

func requireVerdict(tb testing.TB, reason commonv1.Reason, message string, got *ingestv1.Verdict) {
	tb.Helper()
	require.Equal(tb, reason.String()+": "+message, got.GetReason().String()+": "+got.GetMessage())
}

// listener collects what is published.
type listener struct {
	mu        sync.Mutex
	envelopes []*commonv1.Envelope
	arrived   chan struct{}
}

// listen collects everything of a stream from its beginning, also what comes later.
func (h *harness) listen(stream, filter string) *listener {
	h.tb.Helper()
	l := &listener{arrived: make(chan struct{}, 1)}
	b := h.nats.Connect(h.tb)
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.tb.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		_ = b.ConsumeOrdered(ctx, stream, filter, 1, func(_ context.Context, m bus.Msg) error {
			var batch busv1.EnvelopeBatch
			if err := proto.Unmarshal(m.Data, &batch); err != nil {
				return err
			}
			l.mu.Lock()
			l.envelopes = append(l.envelopes, batch.GetEnvelopes()...)
			l.mu.Unlock()
			select {
			case l.arrived <- struct{}{}:
			default:
			}
			return nil
		})
	})
	h.tb.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return l
}

func (h *harness) events() *listener {
	h.tb.Helper()
	return h.listen(subject.StreamEvents, subject.AllEvents)
}

func (h *harness) ephemeral() *listener {
	h.tb.Helper()
	return h.listen(subject.StreamEphemeral, subject.AllEphemeral)
}

// await waits until n envelopes have arrived and returns all that have.
func (l *listener) await(tb testing.TB, n int) []*commonv1.Envelope {
	tb.Helper()
	late := time.After(patience)
	for {
		l.mu.Lock()
		got := append([]*commonv1.Envelope{}, l.envelopes...)
		l.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-l.arrived:
		case <-late:
			require.FailNow(tb, "not all events were published", "%d of %d", len(got), n)
		}
	}
}

// published waits until the outbox is empty and returns all that the stream of events holds then.
func (h *harness) published() []*commonv1.Envelope {
	h.tb.Helper()
	h.awaitEmptyOutbox()
	b := h.nats.Connect(h.tb)
	state, err := b.StreamState(h.tb.Context(), subject.StreamEvents)
	require.NoError(h.tb, err)
	var list []*commonv1.Envelope
	err = b.Replay(h.tb.Context(), subject.StreamEvents, subject.AllEvents, 1, state.LastSeq, func(_ context.Context, m bus.Msg) error {
		var batch busv1.EnvelopeBatch
		err := proto.Unmarshal(m.Data, &batch)
		list = append(list, batch.GetEnvelopes()...)
		return err
	})
	require.NoError(h.tb, err)
	return list
}

// awaitEmptyOutbox waits until every row is published and deleted.
func (h *harness) awaitEmptyOutbox() {
	h.tb.Helper()
	require.Eventually(h.tb, func() bool { // the rows are deleted in the background, and nobody is told
		return h.count(`SELECT count(*) FROM ingest.outbox`) == 0
	}, patience, 10*time.Millisecond)
}

// awaitStreams waits until the streams are defined.
func (h *harness) awaitStreams() {
	h.tb.Helper()
	b := h.nats.Connect(h.tb)
	require.Eventually(h.tb, func() bool { // defined in the background, and nobody is told
		_, err := b.StreamState(h.tb.Context(), subject.StreamEphemeral)
		return err == nil
	}, patience, 10*time.Millisecond)
}
