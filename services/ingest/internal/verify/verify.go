// Package verify turns bytes into verified events. It owns the workers that do the arithmetic of
// signatures, so that no more of it runs at once than there are cores, however many streams there are. It
// must never block on anything but work: no database, no bus.
//
// A Pool's workers finish jobs in any order; whoever needs one keeps it. Clients take turns, and large events have a queue and
// workers of their own: nobody waits for all that another one has sent, or for what takes as long to read as many signatures take
// to verify. A job belongs to the worker from Submit until it is done, and to the submitter before and after.
package verify

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Config bounds a Pool.
type Config struct {
	// Workers is how many small events, or batches of them, are verified at once, and Large how many large ones; at least 1 each.
	Workers, Large int
	// Wire bounds the event's JSON. Its Content is ignored: Policy has that limit, and its text.
	Wire wire.Limits
	// Policy bounds what is in the event.
	Policy policy.Limits
	// Now is the clock.
	Now func() time.Time
	// Observe is told how long one event took, its share of its batch; it may be nil.
	Observe func(ctx context.Context, took time.Duration)
}

// Job is one submission and, once it is done, what became of it.
type Job struct {
	// Submission is what to verify.
	Submission policy.Submission
	// Candidate is set if the verdict accepts.
	Candidate *policy.Candidate
	// Verdict is final if it refuses.
	Verdict policy.Verdict
	// Done is called once, by a worker, when the fields above are set. It must not block. It may be nil.
	Done func()
}

// Pool verifies events on a fixed number of workers. Submit is safe for concurrent use.
type Pool struct {
	cfg          Config
	small, large *queue
}

const (
	// queuePerWorker keeps the workers busy while the submitters are woken up.
	queuePerWorker = 64
	// queuedLarge is so many that those who submit are hardly ever held up by large ones.
	queuedLarge = 1024
	// largeEvent is how many bytes make an event a large one. To read and hash those of a smaller one takes less than its
	// signature.
	largeEvent = 16 << 10
)

// New allocates a pool; its workers start with Run.
func New(cfg Config) *Pool {
	cfg.Workers, cfg.Large = max(cfg.Workers, 1), max(cfg.Large, 1)
	cfg.Wire.Content = 0
	return &Pool{cfg: cfg, small: newQueue(queuePerWorker * cfg.Workers), large: newQueue(queuedLarge)}
}

// Submit queues a job. It blocks while the queue is full, which is how load is felt by the caller, and
// returns the cause of ctx's end if that comes first.
func (p *Pool) Submit(ctx context.Context, j *Job) error {
	if len(j.Submission.Raw) > largeEvent {
		return p.large.add(ctx, j)
	}
	return p.small.add(ctx, j)
}

// Run runs the workers until ctx is done, and then finishes what is queued. It implements
// lifecycle.Service; nothing may be submitted after its context ended.
func (p *Pool) Run(ctx context.Context, ready func()) error {
	var workers sync.WaitGroup
	for range p.cfg.Workers {
		workers.Go(func() { p.work(ctx, p.small, p.waiting) })
	}
	for range p.cfg.Large {
		workers.Go(func() { p.work(ctx, p.large, func(first *Job) []*Job { return []*Job{first} }) })
	}
	ready()
	workers.Wait()
	return nil
}

// maxBatch is the most events that are verified together, and maxBatchBytes at how many bytes it is enough. The gain per event
// levels off well before it, and the first of a batch waits for the last.
const (
	maxBatch      = 64
	maxBatchBytes = 64 << 10
)

// work takes jobs from a queue, each with those that gather returns.
func (p *Pool) work(ctx context.Context, q *queue, gather func(first *Job) []*Job) {
	for {
		select {
		case <-q.queued:
			p.do(ctx, gather(q.take()))
		case <-ctx.Done():
			for { // what is queued
				select {
				case <-q.queued:
					p.do(ctx, gather(q.take()))
				default:
					return
				}
			}
		}
	}
}

// waiting returns first and this worker's share of what is queued behind it. It never waits for more: a
// batch grows with the load and is one event when there is none.
func (p *Pool) waiting(first *Job) []*Job {
	batch, bytes := []*Job{first}, len(first.Submission.Raw)
	for share := min(len(p.small.queued)/p.cfg.Workers, maxBatch-1); share > 0 && bytes < maxBatchBytes; share-- {
		select {
		case <-p.small.queued:
			j := p.small.take()
			batch = append(batch, j)
			bytes += len(j.Submission.Raw)
		default:
			return batch
		}
	}
	return batch
}

// do decides everything that needs no database, in the order in which clients are told: shape, kind, id,
// signature, then what policy.Check checks. The signatures of a batch are verified together; a bad one
// never fails a neighbour.
func (p *Pool) do(ctx context.Context, batch []*Job) {
	began := time.Now()
	jobs, events := make([]*Job, 0, len(batch)), make([]*nostr.Event, 0, len(batch))
	for _, j := range batch {
		ev := p.decode(j)
		if ev == nil {
			continue
		}
		jobs, events = append(jobs, j), append(events, ev)
	}
	errs := nostr.VerifyEach(events)
	for i, j := range jobs {
		if errs != nil && errs[i] != nil {
			j.Verdict = refuse(errs[i])
			continue
		}
		j.Candidate, j.Verdict = policy.Check(j.Submission, events[i], p.cfg.Policy, p.cfg.Now())
	}
	took := time.Since(began) / time.Duration(len(batch))
	for _, j := range batch {
		if p.cfg.Observe != nil {
			p.cfg.Observe(ctx, took)
		}
		if j.Done != nil {
			j.Done()
		}
	}
}

// decode decides what comes before the arithmetic. The event is nil if the job's verdict refuses.
func (p *Pool) decode(j *Job) *nostr.Event {
	ev, extra, err := wire.DecodeEventExtra(j.Submission.Raw, p.cfg.Wire)
	if err != nil {
		j.Verdict = refuse(err)
		return nil
	}
	if j.Verdict = policy.CheckKind(ev.Kind); !j.Verdict.Accepted() {
		return nil
	}
	if extra {
		// Nobody has signed the other keys, and readers would take them for a part of the event.
		j.Submission.Raw = ev.AppendJSON(make([]byte, 0, len(j.Submission.Raw)))
	}
	return ev
}

// refuse makes a verdict of an error whose text is public.
func refuse(err error) policy.Verdict {
	if decode, ok := errors.AsType[*wire.DecodeError](err); ok {
		return policy.Verdict{Reason: fault.Invalid, Message: decode.Msg}
	}
	if errors.Is(err, nostr.ErrBadID) || errors.Is(err, nostr.ErrBadSignature) {
		return policy.Verdict{Reason: fault.Invalid, Message: err.Error()}
	}
	return policy.Verdict{Reason: fault.Invalid, Message: "malformed event"}
}
