package submit

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
	"github.com/apiary-relay/apiary/services/gateway/internal/replica"
)

// Client is what the package calls of an ingest replica; the generated client has it.
type Client interface {
	Publish(ctx context.Context, opts ...grpc.CallOption) (
		grpc.BidiStreamingClient[ingestv1.PublishRequest, ingestv1.PublishResponse], error)
}

// Config bounds the way to ingest.
type Config struct {
	// Gateway identifies this process.
	Gateway string
	// Deadline is how long a submission may wait for its verdict, both attempts together.
	Deadline time.Duration
	// Patience is how long a submission may wait for a replica to become reachable.
	Patience time.Duration
	// BatchEvents and BatchBytes bound one message.
	BatchEvents, BatchBytes int
	// Window is how many submissions one replica may have without a verdict; the others wait here.
	Window int
}

// Submission is one event on its way.
type Submission struct {
	// Affinity keeps submissions with the same value in order.
	Affinity uint64
	// Event is the message; Ref is set by the package. It must not be changed until Done was called.
	Event *ingestv1.Submission
	// Done is called exactly once. It must not block.
	Done func(Verdict)
}

// Verdict is the answer to a submission.
type Verdict struct {
	// Reason is fault.Accepted when the event was accepted.
	Reason fault.Reason
	// Message is public text without prefix.
	Message string
}

// maxAttempts: once, and once more.
const maxAttempts = 2

// job is a submission between Submit and its verdict. It is in exactly one container at a time
// (parked, or a stream's queue or pending map); whoever takes it out answers it or puts it into the
// next one.
type job struct {
	Submission
	attempts int
	deadline time.Time
	parkEnd  time.Time
}

func (j *job) fail(r fault.Reason) { j.Done(Verdict{Reason: r}) }

// Submitter distributes submissions over the ingest replicas.
type Submitter struct {
	cfg   Config
	log   *slog.Logger
	m     *metrics.Metrics
	nodes replica.Set[Client]

	mu      sync.Mutex
	stopped bool
	streams []*stream // usable, sorted by name
	leaving []*stream // no longer usable, still waiting for verdicts
	parked  []*job    // no usable stream
}

// New returns a submitter; Run makes it work. Before that, submissions wait.
func New(cfg Config, nodes replica.Set[Client], log *slog.Logger, m *metrics.Metrics) *Submitter {
	return &Submitter{cfg: cfg, nodes: nodes, log: log, m: m}
}

// Submit takes a submission. It never blocks; how much may be in flight is the caller's to bound.
func (s *Submitter) Submit(sub Submission) {
	now := time.Now()
	s.dispatch(&job{Submission: sub, deadline: now.Add(s.cfg.Deadline), parkEnd: now.Add(s.cfg.Patience)})
}

// dispatch gives j to a stream or parks it.
func (s *Submitter) dispatch(j *job) {
	s.mu.Lock()
	placed := s.placeLocked(j)
	s.mu.Unlock()
	if !placed {
		j.fail(fault.Overloaded)
	}
}

// placeLocked is dispatch, called with mu held. It reports false when the submitter has stopped.
func (s *Submitter) placeLocked(j *job) bool {
	if n := uint64(len(s.streams)); n > 0 {
		s.streams[j.Affinity%n].enqueue(j)
		return true
	}
	if s.stopped {
		return false
	}
	s.parked = append(s.parked, j)
	return true
}

// remove makes a stream unusable for new submissions.
func (s *Submitter) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.streams, st); i >= 0 {
		s.streams = slices.Delete(s.streams, i, i+1)
		s.leaving = append(s.leaving, st)
	}
}

// add makes a stream usable and gives it what was parked, before anything that comes later.
func (s *Submitter) add(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = append(s.streams, st)
	slices.SortFunc(s.streams, func(a, b *stream) int { return cmp.Compare(a.name, b.name) })
	parked := s.parked
	s.parked = nil
	for _, j := range parked {
		s.placeLocked(j) // there is a stream
	}
}

// forget drops a stream that broke and passes on what was left on it, before anything that comes later: what was sent, each at
// most once more, and what was not.
func (s *Submitter) forget(ctx context.Context, st *stream) {
	patience := time.Now().Add(s.cfg.Patience)
	var failed []*job
	s.mu.Lock()
	isThis := func(other *stream) bool { return other == st }
	s.streams, s.leaving = slices.DeleteFunc(s.streams, isThis), slices.DeleteFunc(s.leaving, isThis)
	sent, unsent := st.end()
	sent = slices.DeleteFunc(sent, func(j *job) bool {
		if j.attempts < maxAttempts {
			j.parkEnd = patience
			return false
		}
		failed = append(failed, j)
		return true
	})
	later := s.parked // what came while the stream was leaving and no other was there
	s.parked = nil
	for _, j := range slices.Concat(sent, unsent, later) {
		if !s.placeLocked(j) {
			failed = append(failed, j)
		}
	}
	s.mu.Unlock()
	for _, j := range failed {
		j.fail(fault.Overloaded)
	}
	if len(sent) > 0 {
		s.m.Retried(ctx, int64(len(sent)))
	}
}

// Run keeps streams to all replicas until ctx ends; then it fails what is left and returns.
func (s *Submitter) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.janitor(ctx) })
	replica.Each(ctx, s.nodes, s.serve)
	wg.Wait()
	s.mu.Lock()
	s.stopped = true
	parked := s.parked
	s.parked = nil
	s.mu.Unlock()
	for _, j := range parked {
		j.fail(fault.Overloaded)
	}
}

// sweepInterval is how exactly deadlines are kept.
const sweepInterval = 100 * time.Millisecond

// janitor answers what has waited too long.
func (s *Submitter) janitor(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.sweep(now)
		}
	}
}

func (s *Submitter) sweep(now time.Time) {
	s.mu.Lock()
	streams := slices.Concat(s.streams, s.leaving)
	var impatient []*job
	s.parked = slices.DeleteFunc(s.parked, func(j *job) bool {
		if now.Before(j.parkEnd) && now.Before(j.deadline) {
			return false
		}
		impatient = append(impatient, j)
		return true
	})
	s.mu.Unlock()
	for _, j := range impatient {
		j.fail(fault.Overloaded)
	}
	for _, st := range streams {
		for _, j := range st.expired(now) {
			j.fail(fault.Timeout)
		}
	}
}
