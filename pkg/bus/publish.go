package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/propagation"
)

// propagator carries W3C trace context in message headers.
var propagator propagation.TraceContext

// headerCarrier lets the propagator read and write NATS headers under its own lower-case names.
type headerCarrier nats.Header

func (h headerCarrier) Get(key string) string {
	if values := h[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func (h headerCarrier) Set(key, value string) { h[key] = []string{value} }

func (h headerCarrier) Keys() []string {
	keys := make([]string, 0, len(h))
	for key := range h {
		keys = append(keys, key)
	}
	return keys
}

// Future is a publish that waits for its acknowledgement.
type Future struct {
	done chan struct{}
	ack  Ack
	err  error
}

// Done is closed when the outcome is known.
func (f *Future) Done() <-chan struct{} { return f.done }

// Wait returns the outcome. Errors are those of Publish; when ctx ends first, its cause, and the message
// may still be stored.
func (f *Future) Wait(ctx context.Context) (Ack, error) {
	select {
	case <-f.done:
		return f.ack, f.err
	case <-ctx.Done():
		return Ack{}, context.Cause(ctx)
	}
}

// Publish stores a message in the stream that takes the subject and returns when the stream has said so.
// Messages with the same msgID are stored once within the stream's duplicate window; an empty msgID is
// never a duplicate. The trace of ctx goes along.
//
// Errors wrap ErrDisconnected (it was not, or may not have been, sent), ErrUnacknowledged (it may be
// stored), ErrNoStream or ErrTooLarge. It is safe to publish again with the same msgID.
func (b *Bus) Publish(ctx context.Context, subject, msgID string, payload []byte) (Ack, error) {
	f, err := b.PublishAsync(ctx, subject, msgID, payload)
	if err != nil {
		return Ack{}, err
	}
	return f.Wait(ctx)
}

// PublishAsync is Publish without the wait for the acknowledgement: messages of one caller reach the
// stream in the order of its calls. It waits only while Config.MaxInFlight messages are unacknowledged.
// The payload must not change until the Future is done.
func (b *Bus) PublishAsync(ctx context.Context, subject, msgID string, payload []byte) (*Future, error) {
	msg := &nats.Msg{Subject: subject, Data: payload, Header: nats.Header{}}
	if msgID != "" {
		msg.Header[jetstream.MsgIDHeader] = []string{msgID}
	}
	propagator.Inject(ctx, headerCarrier(msg.Header))
	return b.publish(ctx, msg)
}

func (b *Bus) publish(ctx context.Context, msg *nats.Msg) (*Future, error) {
	if err := b.slots.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("publish to %s: wait for earlier messages: %w", msg.Subject, context.Cause(ctx))
	}
	f, err := b.hand(ctx, msg)
	if err != nil {
		b.slots.Release(1)
		b.metrics.published.Add(ctx, 1, outcomeFailed)
		return nil, fmt.Errorf("publish to %s: %w", msg.Subject, translate(err))
	}
	return f, nil
}

// hand gives a message to the driver, unless the Bus is closed.
func (b *Bus) hand(ctx context.Context, msg *nats.Msg) (*Future, error) {
	b.closing.RLock()
	defer b.closing.RUnlock()
	select {
	case <-b.closed:
		return nil, nats.ErrConnectionClosed
	default:
	}
	ack, err := b.js.PublishMsgAsync(msg)
	if err != nil {
		return nil, err
	}
	f := &Future{done: make(chan struct{})}
	// One goroutine per unacknowledged message, so at most MaxInFlight; each ends within AckTimeout.
	b.inFlight.Go(func() { b.resolve(context.WithoutCancel(ctx), f, msg.Subject, ack) })
	return f, nil
}

// resolve waits for one acknowledgement.
func (b *Bus) resolve(ctx context.Context, f *Future, subject string, ack jetstream.PubAckFuture) {
	defer b.slots.Release(1)
	defer close(f.done)
	select {
	case a := <-ack.Ok():
		f.ack = Ack{Stream: a.Stream, Sequence: a.Sequence, Duplicate: a.Duplicate}
		if a.Duplicate {
			b.metrics.published.Add(ctx, 1, outcomeDuplicate)
		} else {
			b.metrics.published.Add(ctx, 1, outcomeAcked)
		}
		return
	case err := <-ack.Err():
		f.err = fmt.Errorf("publish to %s: %w", subject, translate(err))
	case <-b.closed:
		f.err = fmt.Errorf("publish to %s: %w", subject, translate(nats.ErrConnectionClosed))
	}
	b.metrics.published.Add(ctx, 1, outcomeFailed)
}

// Notify publishes a message that is in no stream: whoever listens now gets it, once at most.
func (b *Bus) Notify(ctx context.Context, subject string, payload []byte) error {
	msg := &nats.Msg{Subject: subject, Data: payload, Header: nats.Header{}}
	propagator.Inject(ctx, headerCarrier(msg.Header))
	if err := b.conn.PublishMsg(msg); err != nil {
		return fmt.Errorf("notify %s: %w", subject, translate(err))
	}
	return nil
}

// translate puts the driver's errors under the sentinels of this package.
func translate(err error) error {
	var sentinel error
	switch {
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrInvalidConnection), errors.Is(err, jetstream.ErrConnectionClosed):
		sentinel = ErrDisconnected
	case errors.Is(err, jetstream.ErrAsyncPublishTimeout), errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		sentinel = ErrUnacknowledged
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, nats.ErrNoResponders):
		sentinel = ErrNoStream
	case errors.Is(err, nats.ErrMaxPayload):
		sentinel = ErrTooLarge
	case isWrongRevision(err):
		sentinel = ErrRevision
	default:
		return err
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// isWrongRevision reports whether the server has refused a message because of what it was to come after; a stream of several
// replicas says so in another way.
func isWrongRevision(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
