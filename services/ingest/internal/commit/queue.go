// Package commit forms batches. It owns the waiting lines before the database and before the memory
// stream, the rule which events may share a batch, and what happens to a batch when something fails. It
// must never write SQL or talk to a client.
//
// A Queue has one goroutine. While it commits a batch, events gather; when it is done, all that may go
// together goes in the next one. So a batch is as large as the load makes it, nobody waits for a timer, and
// an idle relay commits each event at once.
//
// Every item that Submit took is answered exactly once, whatever happens.
package commit

import (
	"context"

	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Item is one event that waits to be committed.
type Item interface {
	// Candidate is the event; the same at every call.
	Candidate() *policy.Candidate
	// Answer takes the verdict. It must not block.
	Answer(v policy.Verdict)
}

// Queue gathers items and hands them to a flush function, one batch at a time.
type Queue struct {
	in      chan Item
	limits  func() Limits
	flush   func(ctx context.Context, batch []Item)
	waiting []Item // only the Run goroutine
}

// NewQueue returns a queue that holds up to size items twice: on their way in, and held back from a batch.
// limits is asked before each batch. flush answers every item of its batch; its context is not cancelled by the
// end of the queue's, because a batch that is on its way should arrive.
func NewQueue(size int, limits func() Limits, flush func(ctx context.Context, batch []Item)) *Queue {
	return &Queue{in: make(chan Item, max(size, 1)), limits: limits, flush: flush}
}

// Submit queues an item. It blocks while the queue is full, and returns the cause of ctx's end, without
// having taken the item, if that comes first.
func (q *Queue) Submit(ctx context.Context, it Item) error {
	select {
	case q.in <- it:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run commits until ctx is done, finishes the batch in hand and refuses what is still waiting. It implements
// lifecycle.Service; nothing may be submitted after its context ended.
func (q *Queue) Run(ctx context.Context, ready func()) error {
	ready()
	for q.gather(ctx) {
		batch, rest := pick(q.waiting, q.limits())
		q.waiting = rest
		q.flush(context.WithoutCancel(ctx), batch)
	}
	q.refuse()
	return nil
}

// gather waits for the first item, if none was held back, and then takes what else is there. It reports false when
// ctx is done.
func (q *Queue) gather(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	if len(q.waiting) == 0 {
		select {
		case it := <-q.in:
			q.waiting = append(q.waiting, it)
		case <-ctx.Done():
			return false
		}
	}
	for len(q.waiting) < cap(q.in) {
		select {
		case it := <-q.in:
			q.waiting = append(q.waiting, it)
		default:
			return true
		}
	}
	return true
}

func (q *Queue) refuse() {
	for _, it := range q.waiting {
		it.Answer(policy.Draining)
	}
	q.waiting = nil
	for {
		select {
		case it := <-q.in:
			it.Answer(policy.Draining)
		default:
			return
		}
	}
}
