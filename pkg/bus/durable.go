package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// DurableConfig is a consumer that the server remembers by name; all processes that use the name share
// its messages.
type DurableConfig struct {
	// Stream and Subject say what is consumed.
	Stream  string
	Subject string
	// Name identifies the consumer; its position outlives every process.
	Name string
	// Batch is the most messages handed over at once; 64 if 0.
	Batch int
	// AckWait is how long a batch may take before its messages are given to somebody else; 30 s if 0.
	AckWait time.Duration
	// OnGap is called, from the goroutine of ConsumeDurable and mostly before later messages, when the stream has dropped
	// messages that the consumer may not have acknowledged: it was away, or slower than the stream's limits. An error
	// makes it come again. Each process that consumes just then may be told, and again after its restart. When the
	// stream was made anew, the gap is in the old one and To is math.MaxUint64: what it held is not known. May be nil:
	// a gap is logged and counted in any case.
	OnGap func(ctx context.Context, g Gap) error
}

const (
	defaultBatch   = 64
	defaultAckWait = 30 * time.Second
	// idleWait is how long one request waits for a message.
	idleWait = 10 * time.Second
	// nakMost bounds the wait before a failed message comes again; it doubles from nakFirst.
	nakFirst = 250 * time.Millisecond
	nakMost  = 30 * time.Second
	nakSteps = 8
)

// ConsumeDurable calls handle for the messages of a durable consumer, from this goroutine, and
// acknowledges them after it has returned nil: at least once, so the effect has to be idempotent. When
// handle fails, all messages of the batch come again, later each time. A consumer that is not there yet
// is made and begins with the oldest message. It blocks until ctx ends and returns its cause, or nil after
// ErrStop, which leaves the batch for another time. What the stream no longer held is told (see OnGap).
func (b *Bus) ConsumeDurable(ctx context.Context, cfg DurableConfig, handle func(context.Context, []Msg) error) error {
	if cfg.Batch == 0 {
		cfg.Batch = defaultBatch
	}
	if cfg.AckWait == 0 {
		cfg.AckWait = defaultAckWait
	}
	d := &durable{bus: b, cfg: cfg, handle: handle}
	wait := retryFirst
	for {
		if err := b.awaitConnection(ctx); err != nil {
			return err
		}
		began := time.Now()
		err := d.session(ctx)
		switch {
		case errors.Is(err, ErrStop):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		level := slog.LevelWarn
		if errors.Is(err, ErrNoStream) || errors.Is(err, errAgain) {
			level = slog.LevelInfo // whoever defines the stream has yet to come, or the connection has been told about
		}
		b.log.LogAttrs(ctx, level, "durable consumer has to try again", slog.String("stream", cfg.Stream),
			slog.String("consumer", cfg.Name), slog.Any("error", err))
		if time.Since(began) > retryMost {
			wait = retryFirst
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(wait*2, retryMost)
	}
}

// durable is one process's part of a durable consumption. Only the goroutine of ConsumeDurable touches it.
type durable struct {
	bus    *Bus
	cfg    DurableConfig
	handle func(context.Context, []Msg) error

	// epoch is the stream's incarnation; 0 until it is known.
	epoch uint64
	// floor is the sequence up to which everything was acknowledged when the consumer was looked at, at looked; told is
	// up to where losses have been told.
	floor  uint64
	told   uint64
	looked time.Time
	// high is the highest sequence that was fetched.
	high uint64
}

// session fetches and processes until the connection changes or something fails.
func (d *durable) session(parent context.Context) (err error) {
	ctx, release := d.bus.untilChanged(parent)
	defer release()
	defer func() {
		// What was asked for just then fails because of the change, not by itself.
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	state, err := d.bus.StreamState(ctx, d.cfg.Stream)
	if err != nil {
		return err
	}
	consumer, err := d.bus.js.CreateOrUpdateConsumer(ctx, d.cfg.Stream, jetstream.ConsumerConfig{
		Durable: d.cfg.Name, FilterSubject: d.cfg.Subject, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: d.cfg.AckWait, MaxDeliver: -1, MaxAckPending: 4 * d.cfg.Batch,
	})
	if err != nil {
		return fmt.Errorf("make durable consumer: %w", translate(err))
	}
	if d.looked.IsZero() { // otherwise what was acknowledged then is the safer thing to go by
		d.floor = consumer.CachedInfo().AckFloor.Stream
	}
	if err := d.look(ctx, parent, consumer); err != nil {
		return err
	}
	for ctx.Err() == nil {
		batch, err := d.fetch(ctx, consumer)
		if err != nil {
			return err
		}
		// What is missing in front of the batch is with another process, or lost: told before it is acknowledged.
		if d.jumps(batch) || time.Since(d.looked) >= proveEvery {
			if err := d.look(ctx, parent, consumer); err != nil {
				giveBack(batch, nakFirst)
				return err
			}
		}
		// The handler's work goes on when the connection is lost; only the acknowledgement is then in vain.
		if err := d.process(parent, state.Epoch, batch); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// jumps reports whether sequences are missing in front of a batch, or in it.
func (d *durable) jumps(batch []jetstream.Msg) bool {
	jumps := false
	for _, msg := range batch {
		if meta, err := msg.Metadata(); err == nil && meta.Sequence.Stream > d.high {
			jumps = jumps || meta.Sequence.Stream != d.high+1
			d.high = meta.Sequence.Stream
		}
	}
	return jumps
}

// look tells what the stream dropped since the last look before it was acknowledged. A stream drops from its front
// only: as long as the front is not behind what was acknowledged already at the last look, nothing was missing since.
func (d *durable) look(ctx, parent context.Context, consumer jetstream.Consumer) error {
	began := time.Now()
	info, err := consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at durable consumer: %w", translate(err))
	}
	state, err := d.bus.StreamState(ctx, d.cfg.Stream)
	if err != nil {
		return err
	}
	if d.epoch != 0 && d.epoch != state.Epoch {
		if err := d.tell(parent, Gap{Epoch: d.epoch, From: max(d.floor, d.told) + 1, To: math.MaxUint64}); err != nil {
			return err
		}
		d.told, d.high, d.floor = 0, 0, info.AckFloor.Stream
	}
	d.epoch = state.Epoch
	if sound := max(d.floor, d.told); state.FirstSeq > sound+1 {
		if err := d.tell(parent, Gap{Epoch: d.epoch, From: sound + 1, To: state.FirstSeq - 1}); err != nil {
			return err
		}
		d.told = state.FirstSeq - 1
	}
	d.floor, d.looked = info.AckFloor.Stream, began
	return nil
}

// tell tells a gap.
func (d *durable) tell(ctx context.Context, g Gap) error {
	g.Stream, g.Subject = d.cfg.Stream, d.cfg.Subject
	d.bus.log.LogAttrs(ctx, slog.LevelWarn, "stream no longer holds what a durable consumer wants", slog.String("stream", g.Stream),
		slog.String("consumer", d.cfg.Name), slog.Uint64("from", g.From), slog.Uint64("to", g.To))
	d.bus.metrics.gaps.Add(ctx, 1, streamAttr(g.Stream))
	if d.cfg.OnGap == nil {
		return nil
	}
	if err := d.cfg.OnGap(ctx, g); err != nil {
		return fmt.Errorf("handle gap: %w", err)
	}
	return nil
}

// fetch returns what is waiting, or else the next message; nothing after a while without one.
func (d *durable) fetch(ctx context.Context, consumer jetstream.Consumer) ([]jetstream.Msg, error) {
	waiting, err := consumer.FetchNoWait(d.cfg.Batch)
	if err != nil {
		return nil, fmt.Errorf("fetch messages: %w", translate(err))
	}
	batch, err := collect(waiting)
	if len(batch) > 0 || err != nil {
		return batch, err
	}
	waitCtx, cancel := context.WithTimeout(ctx, idleWait)
	defer cancel()
	next, err := consumer.Fetch(1, jetstream.FetchContext(waitCtx))
	if err != nil {
		return nil, fmt.Errorf("fetch messages: %w", translate(err))
	}
	batch, err = collect(next)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil
	}
	return batch, err
}

func collect(b jetstream.MessageBatch) ([]jetstream.Msg, error) {
	var list []jetstream.Msg
	for msg := range b.Messages() {
		list = append(list, msg)
	}
	if err := b.Error(); err != nil && len(list) == 0 {
		return nil, fmt.Errorf("fetch messages: %w", translate(err))
	}
	return list, nil
}

// process hands a batch over and acknowledges it.
func (d *durable) process(ctx context.Context, epoch uint64, batch []jetstream.Msg) error {
	if len(batch) == 0 {
		return nil
	}
	list := make([]Msg, 0, len(batch))
	var deliveries uint64
	for _, msg := range batch {
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read message position: %w", err)
		}
		deliveries = max(deliveries, meta.NumDelivered)
		list = append(list, Msg{
			Subject: msg.Subject(), Data: msg.Data(), Epoch: epoch, Sequence: meta.Sequence.Stream,
			Published: meta.Timestamp, Pending: meta.NumPending,
		})
	}
	if err := d.handle(ctx, list); err != nil {
		delay := min(nakFirst<<min(deliveries, nakSteps), nakMost)
		if errors.Is(err, ErrStop) || ctx.Err() != nil {
			delay = 0 // another process may have them at once
		} else {
			d.bus.log.LogAttrs(ctx, slog.LevelError, "messages were not processed and will come again", slog.String("stream", d.cfg.Stream),
				slog.String("consumer", d.cfg.Name), slog.Int("messages", len(batch)), slog.Duration("delay", delay), slog.Any("error", err))
		}
		giveBack(batch, delay)
		if errors.Is(err, ErrStop) {
			return ErrStop
		}
		return nil
	}
	d.bus.metrics.consumed.Add(ctx, int64(len(batch)), streamAttr(d.cfg.Stream))
	for _, msg := range batch {
		// A lost acknowledgement means that the message comes again, which the effect has to bear anyway.
		if err := msg.Ack(); err != nil {
			return fmt.Errorf("acknowledge: %w", translate(err))
		}
	}
	return nil
}

// giveBack makes the messages of a batch come again after a while.
func giveBack(batch []jetstream.Msg, delay time.Duration) {
	for _, msg := range batch {
		_ = msg.NakWithDelay(delay) // otherwise they come again after AckWait
	}
}
