package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric"
)

const (
	// checkEvery is how often a consumer hears, when it hears nothing else, that it still is one, and how far
	// it has come; replayBeat is the same for replays, which end with it.
	checkEvery = 2 * time.Second
	replayBeat = 20 * time.Millisecond
	// settleTries and settleWait are how long a server may take to catch up with what it had sent.
	settleTries = 10
	settleWait  = 100 * time.Millisecond
	// proveEvery is how often a consumer makes sure that it has not been overtaken.
	proveEvery = time.Second
	// inactiveThreshold is when the server forgets a consumer whose client has vanished.
	inactiveThreshold = 2 * time.Minute
	// retryFirst and retryMost bound the wait before a consumer is made anew.
	retryFirst  = 20 * time.Millisecond
	retryMost   = 2 * time.Second
	deleteLimit = time.Second
)

// errAgain ends a session for a reason that the next one finds out about and deals with.
var errAgain = errors.New("consumer has to be made anew")

// handlerError carries a handler's error past the retries.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }

// OrderedOption changes how ConsumeOrdered and Replay work.
type OrderedOption func(*ordered)

// WithEpoch says which incarnation of the stream the start sequence belongs to. Without it, whichever
// there is at the start.
func WithEpoch(epoch uint64) OrderedOption { return func(o *ordered) { o.epoch = epoch } }

// OnGap is called, in order with the messages, when messages of the subject may have been lost. After nil
// consumption goes on behind the gap; an error ends it. Without OnGap a gap ends it with a *GapError.
func OnGap(fn func(ctx context.Context, g Gap) error) OrderedOption {
	return func(o *ordered) { o.onGap = fn }
}

// OnRecreated is called, in order with the messages, when the stream turns out to be another incarnation.
// After nil consumption goes on with the new one's first message; an error ends it. Without OnRecreated
// it ends with a *RecreatedError.
func OnRecreated(fn func(ctx context.Context, r Recreated) error) OrderedOption {
	return func(o *ordered) { o.onRecreated = fn }
}

// OnProgress is called every few seconds when no message comes, with a sequence up to which every message
// of the subject has certainly been handled or told to be lost, also when there were none. It keeps the
// position of a quiet subject from falling out of the stream.
func OnProgress(fn func(ctx context.Context, epoch, sequence uint64) error) OrderedOption {
	return func(o *ordered) { o.onProgress = fn }
}

// withCheckEvery is for tests, which do not want to wait.
func withCheckEvery(d time.Duration) OrderedOption {
	return func(o *ordered) { o.checkEvery, o.proveEvery = d, d/2 }
}

// ConsumeOrdered calls handle for each message of the subject with startSeq or a later sequence, in order,
// each once, from this goroutine. It goes on over lost connections, restarts of the server and streams
// that are not there yet, and blocks until ctx ends (its cause is returned), handle returns ErrStop (nil)
// or another error (returned), or something happened that has no callback (see OnGap, OnRecreated).
//
// A handler may take as long as it likes: what it has not asked for stays in the stream. A loss is always
// told, but it may be told up to two seconds late, when later messages have been handled already: only
// what OnProgress has named is certain.
func (b *Bus) ConsumeOrdered(ctx context.Context, stream, subject string, startSeq uint64, handle func(context.Context, Msg) error, opts ...OrderedOption) error {
	return b.newOrdered(stream, subject, startSeq, handle, opts).run(ctx)
}

// Replay is ConsumeOrdered for the sequences from to to, inclusive, and returns nil when they have been
// handled. to must not be beyond the stream's LastSeq. A new incarnation always ends it, with a
// *RecreatedError, because to has lost its meaning.
func (b *Bus) Replay(ctx context.Context, stream, subject string, from, to uint64, handle func(context.Context, Msg) error, opts ...OrderedOption) error {
	if from > to {
		return nil
	}
	o := b.newOrdered(stream, subject, from, handle, opts)
	o.until = to
	return o.run(ctx)
}

// ordered is one ordered consumption. Its consumers on the server come and go; what it has handled stays.
// Only the goroutine of run touches it.
type ordered struct {
	bus         *Bus
	stream      string
	subject     string
	handle      func(context.Context, Msg) error
	onGap       func(context.Context, Gap) error
	onRecreated func(context.Context, Recreated) error
	onProgress  func(context.Context, uint64, uint64) error
	// The same, with the caller's context: callbacks outlast a lost connection.
	deliver       func(trace headerCarrier, m Msg) error
	tellGap       func(Gap) error
	tellRecreated func(Recreated) error
	tellProgress  func(epoch, sequence uint64) error

	checkEvery time.Duration
	proveEvery time.Duration
	attr       metric.MeasurementOption
	// until ends a replay; 0 never.
	until uint64
	// epoch is the incarnation that next belongs to; 0 until it is known.
	epoch uint64
	// next is the least sequence that may still come.
	next uint64
	// sound: everything up to it has been handled, or told to be lost. What lies between it and next has
	// been handled unless the stream dropped it too early, which is still to be found out.
	sound uint64
}

func (b *Bus) newOrdered(stream, subject string, startSeq uint64, handle func(context.Context, Msg) error, opts []OrderedOption) *ordered {
	o := &ordered{
		bus: b, stream: stream, subject: subject, handle: handle, next: max(startSeq, 1),
		checkEvery: checkEvery, proveEvery: proveEvery, attr: streamAttr(stream),
	}
	o.sound = o.next - 1
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// bind makes what calls the callbacks.
func (o *ordered) bind(ctx context.Context) {
	o.deliver = func(trace headerCarrier, m Msg) error {
		if trace.Get("traceparent") == "" {
			return o.handle(ctx, m)
		}
		return o.handle(propagator.Extract(ctx, trace), m)
	}
	o.tellGap = func(g Gap) error { return o.onGap(ctx, g) }
	o.tellRecreated = func(r Recreated) error { return o.onRecreated(ctx, r) }
	o.tellProgress = func(epoch, sequence uint64) error { return o.onProgress(ctx, epoch, sequence) }
}

// run makes one session after the other.
func (o *ordered) run(ctx context.Context) error {
	o.bind(ctx)
	wait := retryFirst
	for {
		if err := o.bus.awaitConnection(ctx); err != nil {
			return err
		}
		began := o.next
		err := o.session(ctx)
		var final handlerError
		switch {
		case errors.Is(err, ErrStop):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &final):
			return final.error
		}
		o.bus.log.LogAttrs(ctx, slog.LevelDebug, "consumer is made anew", slog.String("stream", o.stream),
			slog.String("subject", o.subject), slog.Any("error", err))
		if o.next > began {
			wait = retryFirst
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(wait*2, retryMost)
	}
}

// pause waits for about d.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d)) //nolint:gosec // jitter needs no secrecy
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// session makes a consumer and takes its messages until something is wrong with it. ErrStop ends the
// consumption, a handlerError too; anything else is tried again.
func (o *ordered) session(ctx context.Context) error {
	// A connection made during the session may have cost messages on the way, and the server may have
	// forgotten the consumer.
	generation := o.bus.generation.Load()
	ctx, release := o.bus.untilChanged(ctx)
	defer release()
	before, err := o.settled(ctx)
	if err != nil {
		return err
	}
	if err := o.place(ctx, before); err != nil {
		return err
	}
	if o.until != 0 && o.next > o.until { // a gap up to the end
		return ErrStop
	}
	consumer, err := o.bus.js.CreateConsumer(ctx, o.stream, jetstream.ConsumerConfig{
		Name: "ordered-" + nats.NewInbox()[len(nats.InboxPrefix):], FilterSubject: o.subject,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: o.next, AckPolicy: jetstream.AckNonePolicy,
		MaxDeliver: 1, MemoryStorage: true, Replicas: 1, InactiveThreshold: inactiveThreshold,
	})
	if err != nil {
		return translate(err)
	}
	defer o.bus.forgetConsumer(ctx, o.stream, consumer.CachedInfo().Name)
	// Only now is it certain that nothing wanted was dropped before the consumer was there.
	after, err := o.bus.StreamState(ctx, o.stream)
	if err != nil {
		return err
	}
	if after.Epoch != o.epoch || after.FirstSeq > o.sound+1 || o.bus.generation.Load() != generation {
		return errAgain
	}
	s := &session{ordered: o, consumer: consumer.CachedInfo().Name, candidate: o.next - 1, reached: time.Now()}
	return s.consume(ctx)
}

// settled is the stream's state. In a cluster the server that leads the stream since a moment ago may not
// yet have got to what its predecessor had sent; that must not look like a loss of data.
func (o *ordered) settled(ctx context.Context) (State, error) {
	for try := 1; ; try++ {
		state, err := o.bus.StreamState(ctx, o.stream)
		if err != nil {
			return State{}, err
		}
		behind := (o.epoch == 0 || o.epoch == state.Epoch) && max(o.next-1, o.until) > state.LastSeq
		if !behind || try == settleTries {
			return state, nil
		}
		if err := pause(ctx, settleWait); err != nil {
			return State{}, err
		}
	}
}

// place compares where consumption stands with what the stream holds, and tells what does not fit.
func (o *ordered) place(ctx context.Context, state State) error {
	if o.epoch == 0 {
		o.epoch = state.Epoch
	}
	if o.epoch != state.Epoch || o.next > state.LastSeq+1 {
		r := Recreated{
			Stream: o.stream, Subject: o.subject, OldEpoch: o.epoch, NewEpoch: state.Epoch, Last: o.next - 1, Next: state.FirstSeq,
		}
		if r.OldEpoch == r.NewEpoch { // the server lost the end: what is left has been handled
			r.Next = state.LastSeq + 1
		}
		o.bus.log.LogAttrs(ctx, slog.LevelWarn, "stream was made anew", slog.String("stream", o.stream), slog.String("subject", o.subject))
		o.bus.metrics.gaps.Add(ctx, 1, o.attr)
		if o.onRecreated == nil || o.until != 0 {
			return handlerError{&RecreatedError{Recreated: r}}
		}
		if err := o.tellRecreated(r); err != nil {
			return handlerError{err}
		}
		o.epoch, o.next, o.sound = r.NewEpoch, r.Next, r.Next-1
	}
	if o.until > state.LastSeq {
		return handlerError{fmt.Errorf("replay %s to %d: stream %s ends at %d", o.subject, o.until, o.stream, state.LastSeq)}
	}
	if state.FirstSeq > o.sound+1 {
		g := Gap{Stream: o.stream, Subject: o.subject, Epoch: o.epoch, From: o.sound + 1, To: max(state.FirstSeq, o.next) - 1}
		o.bus.log.LogAttrs(ctx, slog.LevelWarn, "stream no longer holds what a consumer wants", slog.String("stream", o.stream),
			slog.String("subject", o.subject), slog.Uint64("from", g.From), slog.Uint64("to", g.To))
		o.bus.metrics.gaps.Add(ctx, 1, o.attr)
		if o.onGap == nil {
			return handlerError{&GapError{Gap: g}}
		}
		if err := o.tellGap(g); err != nil {
			return handlerError{err}
		}
		o.next = g.To + 1
	}
	o.sound = o.next - 1 // all of it was there, or has been told
	return nil
}

// ended tells the error of a handler apart from those of the bus.
func ended(err error) error {
	if err == nil || errors.Is(err, ErrStop) {
		return err
	}
	return handlerError{fmt.Errorf("handle message: %w", err)}
}
