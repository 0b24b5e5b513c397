package limit

import (
	"sync"
	"time"
)

// Bucket is one token bucket, for what has its own object to keep it in. The zero value has no limit.
type Bucket struct {
	perToken, window time.Duration

	mu   sync.Mutex
	full time.Time // guarded by mu; when it will be full again
}

// NewBucket returns a full bucket with rate tokens a second and room for burst (at least 1). A rate of
// 0 or less switches the limit off.
func NewBucket(rate float64, burst int) *Bucket {
	b := &Bucket{}
	if rate > 0 {
		b.perToken = max(time.Duration(float64(time.Second)/rate), 1)
		b.window = b.perToken * time.Duration(max(burst, 1))
	}
	return b
}

// Allow is Keyed.Allow for one bucket.
func (b *Bucket) Allow(n int, now time.Time) (wait time.Duration, ok bool) {
	if b.perToken == 0 || n <= 0 {
		return 0, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	next, wait, ok := take(b.full, now, b.perToken*time.Duration(n), b.window)
	b.full = next
	return wait, ok
}

// Spend takes n tokens whether they are there or not, for what has happened already, and returns how long it
// takes until the bucket is out of its debt: until then Allow grants nothing. The debt is never more than burst
// tokens.
func (b *Bucket) Spend(n int, now time.Time) (debt time.Duration) {
	if b.perToken == 0 || n <= 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full, debt = spend(b.full, now, now, b.perToken*time.Duration(n), b.window)
	return debt
}

// spend is the arithmetic of Spend for what was used from a time until now: what the bucket has gained in between is not
// lost, even if it was full, since it was used as it came.
func spend(full, from, now time.Time, cost, window time.Duration) (next time.Time, debt time.Duration) {
	if from.After(full) {
		full = from
	}
	next = full.Add(min(cost, now.Sub(from)+2*window))
	if most := now.Add(2 * window); next.After(most) {
		next = most
	}
	return next, max(next.Sub(now)-window, 0)
}

// take is the arithmetic of a bucket that will be full again at full: the instant after a grant of
// cost, or the same instant and the wait until the grant is possible.
func take(full, now time.Time, cost, window time.Duration) (next time.Time, wait time.Duration, ok bool) {
	begin := full
	if now.After(begin) {
		begin = now
	}
	switch next = begin.Add(cost); {
	case cost > window:
		return full, window, false
	case next.Sub(now) > window:
		return full, next.Sub(now) - window, false
	default:
		return next, 0, true
	}
}
