package lifecycle

import (
	"context"
	"time"
)

// Pause waits for d, and reports false as soon as ctx is done instead.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
