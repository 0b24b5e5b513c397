package bus

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// listenBuffer bounds the messages that wait for a slow handler; more are dropped, and resync is called.
const listenBuffer = 1024

// Listen calls handle for each message that is published to subject, which may be a pattern, with Notify.
// These are in no stream, so some may be missed: resync is called when the subscription has begun, and
// again whenever messages may have been lost since. Both run in this goroutine. Listen blocks until ctx
// ends and returns its cause.
func (b *Bus) Listen(ctx context.Context, subject string, handle func(context.Context, Msg), resync func(context.Context)) error {
	messages := make(chan *nats.Msg, listenBuffer)
	sub, err := b.conn.ChanSubscribe(subject, messages)
	if err != nil {
		return fmt.Errorf("listen to %s: %w", subject, translate(err))
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed
	var generation uint64
	var dropped int
	for {
		changed := b.Changed()
		var retry <-chan time.Time
		if g := b.generation.Load(); g != generation && b.Connected() {
			// The subscription has to be at the server before the listener reads the state that it keeps.
			if err := b.flush(ctx); err != nil {
				retry = time.After(retryMost)
			} else {
				generation = g
				resync(ctx)
			}
		}
		select {
		case m := <-messages:
			handle(propagator.Extract(ctx, headerCarrier(m.Header)), Msg{Subject: m.Subject, Data: m.Data})
		case <-changed:
		case <-retry:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if n, err := sub.Dropped(); err == nil && n != dropped {
			dropped = n
			resync(ctx)
		}
	}
}

// flush returns when the server has processed everything sent so far.
func (b *Bus) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return b.conn.FlushWithContext(ctx)
}
