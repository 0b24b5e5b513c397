package limit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// ErrTooLarge is returned by Acquire for a request that exceeds the whole budget.
var ErrTooLarge = errors.New("request exceeds the whole budget")

// Budget is an amount, such as bytes of memory, that many share. Waiters are served in order of
// arrival, so that a large request is not starved by small ones.
type Budget struct {
	size int64
	sem  *semaphore.Weighted
	used atomic.Int64
}

// NewBudget returns a budget of size units. A size of 0 or less has no limit.
func NewBudget(size int64) *Budget {
	return &Budget{size: size, sem: semaphore.NewWeighted(max(size, 0))}
}

// TryAcquire takes n units if they are there now.
func (b *Budget) TryAcquire(n int64) bool {
	if b.size > 0 && !b.sem.TryAcquire(n) {
		return false
	}
	b.used.Add(n)
	return true
}

// Acquire waits for n units. It fails at once with ErrTooLarge when they can never be there, and with
// ctx's error when ctx ends first.
func (b *Budget) Acquire(ctx context.Context, n int64) error {
	if b.size > 0 {
		if n > b.size {
			return fmt.Errorf("acquire %d of %d: %w", n, b.size, ErrTooLarge)
		}
		if err := b.sem.Acquire(ctx, n); err != nil {
			return fmt.Errorf("acquire %d of %d: %w", n, b.size, err)
		}
	}
	b.used.Add(n)
	return nil
}

// Release gives n units back, as many as were taken.
func (b *Budget) Release(n int64) {
	b.used.Add(-n)
	if b.size > 0 {
		b.sem.Release(n)
	}
}

// Used returns how much is taken, for metrics.
func (b *Budget) Used() int64 { return b.used.Load() }
