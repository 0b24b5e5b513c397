package partition

import (
	"context"
	"errors"
	"log/slog"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/services/fanout/internal/deliver"
	"github.com/apiary-relay/apiary/services/fanout/internal/index"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

// replay brings subscriptions of one gateway from where they were to where the partition is. It is
// collected while it waits for its turn, then begun: its members are filed, and what is live for them is
// held until the streams have been read again up to where that was.
type replay struct {
	peer   *peer
	ctx    context.Context // of its helper; ends when nobody is left
	cancel context.CancelFunc
	// bounds gets what to read, when Run has begun the replay.
	bounds chan bounds
	begun  bool
	subs   map[*subscription]*index.Entry[*subscription]
	topics map[topicKey]*index.Index[*subscription]
	upto   position.Cursor
	batch  batch
	held   []held
	bytes  int
}

// bounds is what a replay reads of each stream: what is after from, up to upto.
type bounds struct{ from, upto position.Cursor }

// held is a live delivery that waits for the end of a replay.
type held struct {
	delivery *deliver.Delivery
	batch    batch
}

// queueReplay adds a subscription to the replay that its gateway has not begun yet.
func (p *Partition) queueReplay(ctx context.Context, s *subscription) {
	q := s.peer
	if q.queued == nil {
		r := &replay{
			peer:   q,
			bounds: make(chan bounds, 1),
			subs:   make(map[*subscription]*index.Entry[*subscription]),
			topics: make(map[topicKey]*index.Index[*subscription]),
		}
		r.ctx, r.cancel = context.WithCancel(ctx)
		q.queued = r
		p.launchQueued(q)
	}
	q.queued.subs[s] = nil
	s.replay = q.queued
}

// launchQueued starts the helper of the queued replay when no other is under way for the gateway.
func (p *Partition) launchQueued(q *peer) {
	if r := q.queued; r != nil && q.replay == nil {
		p.helper.Go(func() { p.replay(r) })
	}
}

// replay is the helper: it waits for its turn on the node, learns its bounds, and reads.
func (p *Partition) replay(r *replay) {
	select {
	case p.deps.Replays <- struct{}{}:
		defer func() { <-p.deps.Replays }()
	case <-r.ctx.Done():
		return
	}
	send := func(ctx context.Context, in input) error {
		in.replay = r
		select {
		case p.replayed <- in:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if send(r.ctx, input{begin: true}) != nil {
		return
	}
	select {
	case b := <-r.bounds:
		err := p.read(r.ctx, b, send)
		_ = send(r.ctx, input{end: true, err: err}) // fails only when nobody is left
	case <-r.ctx.Done():
	}
}

// read sends every message between the bounds, stream after stream.
func (p *Partition) read(ctx context.Context, b bounds, send func(context.Context, input) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ReplayTimeout)
	defer cancel()
	for stream := range position.Streams {
		from, upto := b.from[stream], b.upto[stream]
		if !upto.IsAfter(from) {
			continue
		}
		opts := []bus.OrderedOption{bus.WithEpoch(upto.Epoch)}
		if stream == position.Ephemeral {
			// What has left the ephemeral stream is not owed any more: go on with what is left.
			opts = append(opts, bus.OnGap(func(context.Context, bus.Gap) error { return nil }))
		}
		err := p.deps.Bus.Replay(ctx, stream.Name(), stream.Subject(p.number), from.Next(), upto.Sequence,
			func(ctx context.Context, m bus.Msg) error {
				return send(ctx, input{message: p.decode(ctx, m), stream: stream})
			}, opts...)
		var anew *bus.RecreatedError
		if stream == position.Ephemeral && errors.As(err, &anew) {
			continue // the same for all that has left with the old stream; what the new one brings is live
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeReplayed handles what a replay has to say. One that has no members any more is not listened to.
func (p *Partition) takeReplayed(ctx context.Context, in input) {
	r := in.replay
	switch {
	case len(r.subs) == 0:
	case in.begin:
		p.beginReplay(r)
	case in.end && in.err != nil:
		p.failReplay(ctx, r, in.err)
	case in.end:
		p.endReplay(ctx, r)
	default:
		p.work = &work{stream: in.stream, message: in.message, replay: r}
	}
}

// beginReplay files the members at the present position and says what to read for them.
func (p *Partition) beginReplay(r *replay) {
	r.begun = true
	r.peer.queued, r.peer.replay = nil, r
	r.upto = p.begun()
	from := r.upto
	for s := range r.subs {
		p.file(s)
		x := r.topics[s.key()]
		if x == nil {
			x = index.New[*subscription]()
			r.topics[s.key()] = x
		}
		r.subs[s] = x.Add(s, s.Plan)
		for stream, at := range s.from {
			// Nothing of a later incarnation of a stream has been delivered.
			if at.Epoch < r.upto[stream].Epoch {
				at = position.After(r.upto[stream].Epoch, 0)
			}
			if from[stream].IsAfter(at) {
				from[stream] = at
			}
		}
	}
	r.bounds <- bounds{from: from, upto: r.upto}
}

// endReplay delivers what was held, and the members are like everybody else.
func (p *Partition) endReplay(ctx context.Context, r *replay) {
	p.deps.Metrics.replayed.Add(ctx, int64(len(r.subs)))
	for _, h := range r.held {
		p.push(ctx, r.peer.link, h.delivery, &h.batch)
	}
	for s := range r.subs {
		s.replay = nil
	}
	p.dropReplay(r)
}

func (p *Partition) failReplay(ctx context.Context, r *replay, err error) {
	reason, message := fault.Overloaded, "the replay did not succeed"
	var gone *bus.GapError
	var anew *bus.RecreatedError
	if errors.As(err, &gone) || errors.As(err, &anew) {
		reason, message = fault.NotFound, "resume_after is no longer in the stream"
	}
	p.deps.Log.LogAttrs(ctx, slog.LevelWarn, "replay failed",
		slog.Int("handles", len(r.subs)), slog.Any(telemetry.KeyError, err))
	for s := range r.subs {
		p.lose(ctx, s, reason, message, dropReplay)
	}
}

// leaveReplay takes a subscription that is removed out of its replay, which ends with its last member.
func (p *Partition) leaveReplay(s *subscription) {
	r := s.replay
	if e := r.subs[s]; e != nil {
		r.topics[s.key()].Remove(e)
	}
	delete(r.subs, s)
	s.replay = nil
	if len(r.subs) == 0 {
		p.dropReplay(r)
	}
}

// dropReplay ends a replay, whichever way, and lets the next one of the gateway begin.
func (p *Partition) dropReplay(r *replay) {
	r.cancel()
	clear(r.subs)
	r.held = nil
	switch r {
	case r.peer.queued:
		r.peer.queued = nil
	case r.peer.replay:
		r.peer.replay = nil
		p.launchQueued(r.peer)
	}
}

// hold keeps a live delivery for members of a replay. When it is too much they are lost: the gateway
// resumes them from what the replay has brought by then.
func (p *Partition) hold(ctx context.Context, r *replay, d *deliver.Delivery, b batch) {
	r.bytes += d.Size
	if len(r.held) >= p.cfg.HoldItems || r.bytes > p.cfg.HoldBytes {
		for _, s := range b.subs {
			p.lose(ctx, s, fault.Overloaded, "too much came during the replay", dropHold)
		}
		return
	}
	r.held = append(r.held, held{delivery: d, batch: b})
}
