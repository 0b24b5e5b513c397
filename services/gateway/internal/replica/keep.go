package replica

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff of attempts at one replica.
const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// Keep calls attempt again and again, for a run function of Each: attempt opens something to the replica and
// uses it until it breaks. Between two attempts it waits with a backoff that starts anew after one that lasted.
// It returns when ctx ends, when the replica has left during such a wait, or when attempt says that it is done.
// broke is told why each other attempt ended.
func Keep(ctx context.Context, left <-chan struct{}, attempt func() (done bool, err error), broke func(error)) {
	backoff := firstBackoff
	for {
		began := time.Now()
		done, err := attempt()
		if done || ctx.Err() != nil {
			return
		}
		broke(err)
		if time.Since(began) > lastBackoff {
			backoff = firstBackoff
		}
		wait := time.NewTimer(backoff/2 + rand.N(backoff)) //nolint:gosec // jitter
		backoff = min(2*backoff, lastBackoff)
		select {
		case <-wait.C:
		case <-left:
			wait.Stop()
			return
		case <-ctx.Done():
			wait.Stop()
			return
		}
	}
}
