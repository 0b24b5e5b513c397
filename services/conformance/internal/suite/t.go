package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
)

// T is a running case. Its methods may only be called by the case's goroutine, and end it when the relay
// does otherwise than they say.
type T struct {
	ctx    context.Context // of the case; ends with it
	relay  *Relay
	opts   *Options
	result Result
	conns  []*client.Conn
	// unreachable is set when the relay takes no connection, which no case makes optional.
	unreachable bool
}

// Context is the context of the case.
func (t *T) Context() context.Context { return t.ctx }

// Relay is the relay that the case is about.
func (t *T) Relay() *Relay { return t.relay }

// Claims reports whether the relay claims a NIP.
func (t *T) Claims(nip int) bool {
	_, ok := t.relay.claims(t.opts, []int{nip})
	return ok
}

// Options are the options of the run.
func (t *T) Options() *Options { return t.opts }

// Rand returns the case's random numbers, the same for the same seed.
func (t *T) Rand() *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(t.result.Case.Name()) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(t.opts.Seed, h)) //nolint:gosec // a case must be repeatable, not secret
}

// Fail ends the case: the relay did something else than what was expected.
func (t *T) Fail(expected, saw string, args ...any) {
	t.result.Outcome, t.result.Expected, t.result.Saw = Failed, expected, fmt.Sprintf(saw, args...)
	runtime.Goexit()
}

// Check fails the case unless ok.
func (t *T) Check(ok bool, expected, saw string, args ...any) {
	if !ok {
		t.Fail(expected, saw, args...)
	}
}

// NotClaimed ends the case without a verdict: the relay does not claim to do this.
func (t *T) NotClaimed(why string, args ...any) {
	t.result.Outcome, t.result.Why = NotClaimed, fmt.Sprintf(why, args...)
	runtime.Goexit()
}

// Step returns a context for one answer of the relay.
func (t *T) Step() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.ctx, t.opts.Step)
}

// Pause waits, or ends the case with the run.
func (t *T) Pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
		t.Fail("the case runs to its end", "%v", context.Cause(t.ctx))
	}
}

// Eventually tries until do reports success, for Step at most, and then fails the case.
func (t *T) Eventually(expected string, do func() (saw string, ok bool)) {
	deadline := time.Now().Add(t.opts.Step)
	for {
		saw, ok := do()
		if ok {
			return
		}
		t.Check(time.Now().Before(deadline), expected, "%s", saw)
		t.Pause(50 * time.Millisecond)
	}
}

// Each runs do for 0 to n-1 at the same time, and fails the case with the first error. do must not end the
// case.
func (t *T) Each(n int, expected string, do func(ctx context.Context, i int) error) {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			ctx, cancel := t.Step()
			defer cancel()
			errs[i] = do(ctx, i)
		})
	}
	running.Wait()
	for i, err := range errs {
		t.Check(err == nil, expected, "number %d of %d: %v", i+1, n, err)
	}
}

// Now returns the current Unix second.
func (t *T) Now() int64 { return time.Now().Unix() }

// Past returns n different Unix seconds, rising, of which the last is now. Relays that take only new events
// take them.
func (t *T) Past(n int) []int64 {
	now := t.Now()
	seconds := make([]int64, n)
	for i := range seconds {
		seconds[i] = now - int64(n-1-i)
	}
	return seconds
}

// Key returns a new key.
func (t *T) Key() *nostr.SecretKey {
	key, err := nostr.GenerateSecretKey()
	t.Check(err == nil, "a new key", "%v", err)
	return key
}

// Dial opens a connection and says nothing on it. It tries for a while: what another case did may have made
// the relay start again.
func (t *T) Dial() *client.Conn {
	ctx, cancel := t.Step()
	defer cancel()
	c, err := client.Dial(ctx, t.relay.http, t.relay.next())
	for err != nil && ctx.Err() == nil {
		t.Pause(50 * time.Millisecond)
		c, err = client.Dial(ctx, t.relay.http, t.relay.next())
	}
	t.unreachable = err != nil
	t.Check(err == nil, "a WebSocket connection", "%v", err)
	t.conns = append(t.conns, c)
	return c
}

// close closes what the case opened.
func (t *T) close() {
	for _, c := range t.conns {
		c.Close()
	}
}

// checkFrames fails the case if the relay sent a frame that no client can read. Events were looked at where
// they were asked for.
func (t *T) checkFrames() {
	for _, c := range t.conns {
		for _, f := range c.Since(0) {
			t.Check(f.Malformed == nil || f.Label == client.LabelEvent, "frames as NIP-01 has them", "%s: %v", &f, f.Malformed)
		}
	}
}
