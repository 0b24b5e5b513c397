package verify

import (
	"context"
	"sync"

	"github.com/apiary-relay/apiary/pkg/turns"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// queue is a bounded number of jobs, of which clients have one each in turn.
type queue struct {
	places chan struct{} // one element for each job
	queued chan struct{} // likewise, from when it can be taken until a worker has claimed it; never full, because of places

	mu   sync.Mutex
	jobs turns.Queue[policy.Client, *Job] // guarded by mu
}

func newQueue(size int) *queue {
	return &queue{places: make(chan struct{}, size), queued: make(chan struct{}, size)}
}

// add waits for a place; the error is the cause of ctx's end.
func (q *queue) add(ctx context.Context, j *Job) error {
	select {
	case q.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	q.mu.Lock()
	q.jobs.Add(j.Submission.Client(), j)
	q.mu.Unlock()
	q.queued <- struct{}{}
	return nil
}

// take returns the next job. Called once for each element received from queued.
func (q *queue) take() *Job {
	q.mu.Lock()
	j := q.jobs.Take()
	q.mu.Unlock()
	<-q.places
	return j
}
