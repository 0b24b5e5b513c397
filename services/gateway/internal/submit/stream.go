package submit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/pkg/turns"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/replica"
)

// stream is one Publish stream.
//
//	usable ──replica leaves──▶ leaving (no new submissions) ──nothing pending──▶ ended
//	   └──────────────────────────breaks──────────────────────────────────────────▲
type stream struct {
	name string
	rpc  grpc.BidiStreamingClient[ingestv1.PublishRequest, ingestv1.PublishResponse]

	mu      sync.Mutex
	lastRef uint64
	queue   turns.Queue[uint64, *job] // not sent yet, by affinity: connections take turns
	pending map[uint64]*job           // sent, by ref
	wake    chan struct{}             // something is queued, or the state changed
}

var errLeft = errors.New("replica left and owes nothing")

// enqueue appends j. The stream must not have ended.
func (st *stream) enqueue(j *job) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.queue.Add(j.Affinity, j)
	st.notify()
}

func (st *stream) notify() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// take moves the next batch from the queue to pending. The message is nil when nothing waits, or the replica has
// not answered enough of what it was sent.
func (st *stream) take(cfg Config) *ingestv1.PublishRequest {
	st.mu.Lock()
	defer st.mu.Unlock()
	var batch []*job
	for most, bytes := min(cfg.BatchEvents, cfg.Window-len(st.pending)), 0; len(batch) < most && !st.queue.Empty(); {
		bytes += proto.Size(st.queue.Next().Event)
		if len(batch) > 0 && bytes > cfg.BatchBytes {
			break
		}
		batch = append(batch, st.queue.Take())
	}
	n := len(batch)
	if n == 0 {
		return nil
	}
	req := &ingestv1.PublishRequest{Gateway: cfg.Gateway, Submissions: make([]*ingestv1.Submission, n)}
	for i, j := range batch {
		st.lastRef++
		j.Event.Ref = st.lastRef
		j.attempts++
		st.pending[st.lastRef] = j
		req.Submissions[i] = j.Event
	}
	return req
}

// settle takes the job of a verdict out of pending.
func (st *stream) settle(ref uint64) (*job, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	j, ok := st.pending[ref]
	delete(st.pending, ref)
	if len(st.pending) == 0 {
		st.notify()
	}
	return j, ok
}

// refill wakes the sender after verdicts, if there is something to send.
func (st *stream) refill() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.queue.Empty() {
		st.notify()
	}
}

// expired takes out what is past its deadline. A verdict that comes later finds nothing.
func (st *stream) expired(now time.Time) []*job {
	st.mu.Lock()
	defer st.mu.Unlock()
	var late []*job
	for ref, j := range st.pending {
		if now.After(j.deadline) {
			late = append(late, j)
			delete(st.pending, ref)
		}
	}
	late = append(late, st.queue.Remove(func(j *job) bool { return now.After(j.deadline) })...)
	if len(late) > 0 {
		st.notify() // a leaving stream may owe nothing now
	}
	return late
}

// end closes the containers and returns what was in them: sent jobs in the order of their refs, and
// jobs that were never sent.
func (st *stream) end() (sent, unsent []*job) {
	st.mu.Lock()
	defer st.mu.Unlock()
	refs := make([]uint64, 0, len(st.pending))
	for ref := range st.pending {
		refs = append(refs, ref)
	}
	slices.Sort(refs)
	for _, ref := range refs {
		sent = append(sent, st.pending[ref])
	}
	unsent = st.queue.Remove(func(*job) bool { return true })
	st.pending = nil
	return sent, unsent
}

func (st *stream) idle() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.pending) == 0 && st.queue.Empty()
}

// serve keeps a stream to one replica until it leaves the set or ctx ends.
func (s *Submitter) serve(ctx context.Context, n replica.Node[Client], left <-chan struct{}) {
	replica.Keep(ctx, left, func() (bool, error) {
		err := s.stream(ctx, n, left)
		return errors.Is(err, errLeft), err
	}, func(err error) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "ingest stream broke",
			slog.String(telemetry.KeyPeer, n.Name), slog.Any(telemetry.KeyError, err))
	})
}

// stream opens one stream, uses it until it breaks, and passes on what was left on it.
func (s *Submitter) stream(ctx context.Context, n replica.Node[Client], left <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rpc, err := n.Client.Publish(ctx)
	if err != nil {
		return err
	}
	st := &stream{name: n.Name, rpc: rpc, pending: make(map[uint64]*job), wake: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	wg.Go(func() { cancel(s.send(ctx, st, left)) })
	s.add(st)
	err = s.receive(st)
	cancel(err)
	wg.Wait()

	s.forget(ctx, st)
	return context.Cause(ctx)
}

// send sends whatever waits until the stream breaks, or until the replica has left and owes nothing.
func (s *Submitter) send(ctx context.Context, st *stream, left <-chan struct{}) error {
	leaving := false
	for {
		for req := st.take(s.cfg); req != nil; req = st.take(s.cfg) {
			if err := st.rpc.Send(req); err != nil {
				// The receiver learns why; Send only says that it is over.
				<-ctx.Done()
				return context.Cause(ctx)
			}
		}
		if leaving && st.idle() {
			return errLeft
		}
		select {
		case <-st.wake:
		case <-left:
			s.remove(st)
			leaving, left = true, nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// receive settles verdicts until the stream breaks.
func (s *Submitter) receive(st *stream) error {
	for {
		resp, err := st.rpc.Recv()
		if err != nil {
			return err
		}
		for _, v := range resp.GetVerdicts() {
			if j, ok := st.settle(v.GetRef()); ok {
				j.Done(Verdict{Reason: v.GetReason(), Message: v.GetMessage()})
			}
		}
		st.refill()
	}
}
