package partition

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

const (
	// inputBuffer is how many decoded messages of a stream may wait for Run.
	inputBuffer = 4
	// stateTimeout bounds one question about a stream's head.
	stateTimeout   = 5 * time.Second
	openBackoff    = 100 * time.Millisecond
	maxOpenBackoff = 2 * time.Second
)

// feed is one incarnation of the partition's consumption. Its helpers send to its own channels, so that
// what an abandoned feed still had is never taken for the next one's.
type feed struct {
	cancel context.CancelFunc
	opened chan heads
	inputs [position.Streams]chan input
	open   bool // owned by Run
}

// heads is where the streams ended when the feed was opened.
type heads struct {
	ctx    context.Context // the feed's, for its consumers
	cursor position.Cursor
}

// message is a decoded message of one of the partition's streams.
type message struct {
	epoch     uint64
	sequence  uint64
	pending   uint64
	envelopes []*commonv1.Envelope
}

// input is one thing that a helper tells Run; what is set says which.
type input struct {
	message   *message
	gap       *bus.Gap
	recreated *bus.Recreated
	// progress says that nothing up to a position was for this partition.
	progress position.Position
	// err ended the consumption or the replay.
	err error

	// replay is set by replays only: begin asks for its bounds, end says that it is complete or err.
	replay     *replay
	stream     position.Stream // of a replayed message
	begin, end bool
}

func (p *Partition) isOpen() bool { return p.feed != nil && p.feed.open }

// openFeed begins to consume. The heads are read by a helper, however long that takes.
func (p *Partition) openFeed(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{cancel: cancel, opened: make(chan heads, 1)}
	for i := range f.inputs {
		f.inputs[i] = make(chan input, inputBuffer)
	}
	p.feed = f
	p.recent = position.NewRecent(p.cfg.RecentIDs)
	p.helper.Go(func() { p.readHeads(ctx, f) })
}

// readHeads reads the last sequence of both streams, trying until ctx is done.
func (p *Partition) readHeads(ctx context.Context, f *feed) {
	log := telemetry.Sampled(p.deps.Log, stateTimeout)
	for pause := openBackoff; ; pause = min(2*pause, maxOpenBackoff) {
		cursor, err := p.heads(ctx)
		if err == nil {
			f.opened <- heads{ctx: ctx, cursor: cursor}
			return
		}
		if ctx.Err() != nil {
			return
		}
		log.LogAttrs(ctx, slog.LevelWarn, "cannot read the streams' heads, trying again", slog.Any(telemetry.KeyError, err))
		if !lifecycle.Pause(ctx, pause) {
			return
		}
	}
}

func (p *Partition) heads(ctx context.Context) (c position.Cursor, err error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	for stream := range position.Streams {
		state, err := p.deps.Bus.StreamState(ctx, stream.Name())
		if err != nil {
			return c, err
		}
		c[stream] = position.After(state.Epoch, state.LastSeq)
	}
	return c, nil
}

// opened starts the consumers and places those who waited.
func (p *Partition) opened(ctx context.Context, h heads) {
	f := p.feed
	f.open = true
	p.cursor = h.cursor
	p.stats.open.Store(true)
	for stream := range position.Streams {
		p.helper.Go(func() { p.consume(h.ctx, f, stream, h.cursor[stream]) })
	}
	p.placeWaiting(ctx)
	if p.subs == 0 {
		p.idle = time.Now()
	}
}

// closeFeed stops consuming. Whoever is subscribed was lost before.
func (p *Partition) closeFeed() {
	p.feed.cancel()
	p.feed, p.recent, p.work = nil, nil, nil
	p.cursor = position.Cursor{}
	p.stats.open.Store(false)
	for i := range p.stats.lag {
		p.stats.lag[i].Store(0)
	}
}

// consume is a helper: it decodes what one stream delivers until ctx is done.
func (p *Partition) consume(ctx context.Context, f *feed, stream position.Stream, from position.Position) {
	send := func(ctx context.Context, in input) error {
		select {
		case f.inputs[stream] <- in:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := p.deps.Bus.ConsumeOrdered(ctx, stream.Name(), stream.Subject(p.number), from.Next(),
		func(ctx context.Context, m bus.Msg) error {
			return send(ctx, input{message: p.decode(ctx, m)})
		},
		bus.WithEpoch(from.Epoch),
		bus.OnGap(func(ctx context.Context, g bus.Gap) error { return send(ctx, input{gap: &g}) }),
		bus.OnRecreated(func(ctx context.Context, r bus.Recreated) error { return send(ctx, input{recreated: &r}) }),
		bus.OnProgress(func(ctx context.Context, epoch, seq uint64) error {
			return send(ctx, input{progress: position.After(epoch, seq)})
		}),
	)
	if ctx.Err() == nil {
		_ = send(ctx, input{err: err}) // fails only when nobody wants to know any more
	}
}

// decode reads a message. One that cannot be read is a fault of the publisher: it is logged, and its
// position passes.
func (p *Partition) decode(ctx context.Context, m bus.Msg) *message {
	out := &message{epoch: m.Epoch, sequence: m.Sequence, pending: m.Pending}
	var batch busv1.EnvelopeBatch
	if err := proto.Unmarshal(m.Data, &batch); err != nil {
		p.deps.Metrics.drop(ctx, dropMalformed, 1)
		p.deps.Log.LogAttrs(ctx, slog.LevelError, "message on the bus cannot be read",
			slog.Uint64("sequence", m.Sequence), slog.Any(telemetry.KeyError, err))
		return out
	}
	out.envelopes = batch.GetEnvelopes()
	return out
}

// take handles what the feed has to say about a stream.
func (p *Partition) take(ctx context.Context, stream position.Stream, in input) {
	switch {
	case in.message != nil:
		p.stats.lag[stream].Store(in.message.pending)
		if after(in.message).IsAfter(p.cursor[stream]) {
			p.work = &work{stream: stream, message: in.message}
		}
	case in.gap != nil:
		p.gap(ctx, stream, position.After(in.gap.Epoch, in.gap.To), false)
	case in.recreated != nil:
		r := in.recreated
		p.gap(ctx, stream, position.After(r.NewEpoch, r.Next-1), r.NewEpoch == r.OldEpoch)
	case in.err != nil:
		p.deps.Log.LogAttrs(ctx, slog.LevelWarn, "consumption ended, beginning anew",
			slog.String("stream", stream.Name()), slog.Any(telemetry.KeyError, in.err))
		p.restart(ctx, fault.Overloaded, "consumption was interrupted", dropBus)
	case in.progress.IsAfter(p.cursor[stream]):
		p.cursor[stream] = in.progress
	}
}

// gap handles messages that left the stream before they were consumed. For committed events it is the
// end of every subscription here; ephemeral ones were owed only while they were held, so consumption goes
// on after them, unless the stream went back and positions that are known to gateways come again.
func (p *Partition) gap(ctx context.Context, stream position.Stream, resume position.Position, back bool) {
	p.deps.Log.LogAttrs(ctx, slog.LevelWarn, "messages left the stream before they were consumed",
		slog.String("stream", stream.Name()), slog.Uint64("next", resume.Sequence+1))
	if stream == position.Events || back {
		p.restart(ctx, fault.NotFound, "messages were lost from the stream", dropGap)
		return
	}
	p.deps.Metrics.drop(ctx, dropGap, 1)
	p.cursor[stream] = resume
}

// restart loses everybody and closes the feed; who comes next opens it again at the head.
func (p *Partition) restart(ctx context.Context, reason fault.Reason, message, why string) {
	p.loseAll(ctx, reason, message, why)
	p.closeFeed()
}

// after returns the position after a message.
func after(m *message) position.Position { return position.After(m.epoch, m.sequence) }
