package partition

import (
	"context"
	"encoding/hex"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/broken"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/placement"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/access"
	"github.com/apiary-relay/apiary/services/fanout/internal/deliver"
	"github.com/apiary-relay/apiary/services/fanout/internal/index"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

// work is the message being processed, live or of a replay.
type work struct {
	stream  position.Stream
	message *message
	replay  *replay
	next    int       // the envelope to begin
	open    *decision // the envelope begun, until it is dispatched
}

// batch collects the recipients of one envelope at one gateway.
type batch struct {
	handles []*deliver.Handle
	subs    []*subscription
}

func (b *batch) add(s *subscription) {
	b.handles = append(b.handles, s.Handle)
	b.subs = append(b.subs, s)
}

// begun returns the position after the last envelope begun: a subscription filed now gets what follows.
func (p *Partition) begun() position.Cursor {
	c := p.cursor
	if w := p.work; w != nil && w.replay == nil && w.open != nil {
		c[w.stream] = w.open.at
	}
	return c
}

// pump processes until there is nothing in hand or an access decision has to be waited for.
func (p *Partition) pump(ctx context.Context) {
	for p.work != nil {
		w := p.work
		if w.open == nil && !p.advance(ctx, w) {
			p.finish(w)
			break
		}
		if !p.decide(ctx, w.open) {
			return
		}
		p.dispatch(ctx, w)
	}
	p.askAhead(ctx)
}

// finish passes a message.
func (p *Partition) finish(w *work) {
	p.work = nil
	if w.replay == nil {
		p.cursor[w.stream] = after(w.message)
	}
}

// advance begins envelopes until one has matched; false when the message holds no more.
func (p *Partition) advance(ctx context.Context, w *work) bool {
	for w.next < len(w.message.envelopes) {
		envelope := w.message.envelopes[w.next]
		at := position.Position{Epoch: w.message.epoch, Sequence: w.message.sequence, Index: uint32(w.next)}
		w.next++
		p.deps.Metrics.envelopes.Add(ctx, 1)
		if p.isDue(ctx, w, envelope, at) {
			w.open = p.match(ctx, w, envelope, at)
		}
		if w.open != nil {
			return true
		}
		p.pass(w, at)
	}
	return false
}

// pass moves the partition's position after a live envelope.
func (p *Partition) pass(w *work, at position.Position) {
	if w.replay == nil {
		p.cursor[w.stream] = at
	}
}

// isDue reports whether an envelope is to be matched: it is readable, and not one seen before that was
// published again.
func (p *Partition) isDue(ctx context.Context, w *work, envelope *commonv1.Envelope, at position.Position) bool {
	raw := envelope.GetHeader().GetId()
	if len(raw) != len(nostr.ID{}) {
		p.malformed(ctx, at, "no id")
		return false
	}
	key := position.Key{Community: envelope.GetHeader().GetCommunity(), ID: nostr.ID(raw), DueAt: envelope.GetHeader().GetDueAt()}
	if p.recent.Add(key, at) {
		return true
	}
	first, _ := p.recent.First(key)
	if w.replay != nil && !at.IsAfter(first) {
		return true // this is where it was seen first
	}
	p.deps.Metrics.drop(ctx, dropRepeat, 1)
	return false
}

func (p *Partition) malformed(ctx context.Context, at position.Position, why string) {
	p.deps.Metrics.drop(ctx, dropMalformed, 1)
	p.deps.Log.LogAttrs(ctx, slog.LevelError, "envelope cannot be delivered",
		slog.Uint64("sequence", at.Sequence), slog.Uint64("index", uint64(at.Index)), slog.String("why", why))
}

// match returns the decision on an envelope, nil if it is for nobody.
func (p *Partition) match(ctx context.Context, w *work, envelope *commonv1.Envelope, at position.Position) *decision {
	h := envelope.GetHeader()
	key := topicKey{h.GetCommunity(), h.GetChannel()}
	versions := access.Versions{Community: h.GetCommunityAclVersion(), Channel: h.GetChannelAclVersion(), Time: h.GetJudgedAt()}
	if w.replay == nil {
		p.noteVersions(p.topics[key], versions)
	}
	own, global := p.indexOf(w, key), (*index.Index[*subscription])(nil)
	// Ordinary NIP-29 clients ask for the state of channels without #h.
	isState := kind.Of(nostr.Kind(h.GetKind())).Scope == kind.State
	if isState && placement.Partition(key.community, "", p.cfg.Partitions) == p.number {
		global = p.indexOf(w, topicKey{key.community, ""})
		if key.channel == "" {
			own = nil // whoever may read the channel, not everybody
		}
	}
	if own == nil && global == nil {
		return nil
	}
	event, err := wire.DecodeEvent(envelope.GetRaw(), wire.Limits{})
	if err != nil {
		p.malformed(ctx, at, err.Error())
		return nil
	}
	event = inChannel(event, key.channel)
	started := time.Now()
	audience := kind.AudienceOf(event)
	d := &decision{envelope: envelope, at: at, span: p.startSpan(ctx, h)}
	if subs := p.find(ctx, w, own, event, h, audience, at); len(subs) > 0 {
		d.parts = append(d.parts, part{
			topic: subs[0].topic.access, versions: versions, subs: subs, audience: audience, community: key.channel == "",
		})
	}
	if subs := p.find(ctx, w, global, event, h, audience, at); len(subs) > 0 {
		d.parts = append(d.parts, channelPart(key, event, versions, subs))
	}
	p.deps.Metrics.match.Record(ctx, time.Since(started).Seconds())
	if len(d.parts) == 0 {
		d.end(0)
		return nil
	}
	return d
}

// startSpan begins the span of an envelope that is sampled; nil for one that is not.
func (p *Partition) startSpan(ctx context.Context, h *commonv1.Header) trace.Span {
	if h.GetTraceparent() == "" {
		return nil
	}
	_, span := p.deps.Tracer.Start(telemetry.WithTraceParent(ctx, h.GetTraceparent()), "fanout.match", //nolint:spancheck // decision.end ends it
		trace.WithAttributes(attribute.Int64(telemetry.KeyPartition, int64(p.number)),
			attribute.String(telemetry.KeyEventID, hex.EncodeToString(h.GetId()))))
	return span //nolint:spancheck // decision.end ends it
}

// indexOf returns the index of a topic among all subscriptions, or among the members of a replay.
func (p *Partition) indexOf(w *work, key topicKey) *index.Index[*subscription] {
	if w.replay != nil {
		return w.replay.topics[key]
	}
	if t := p.topics[key]; t != nil {
		return t.index
	}
	return nil
}

// find returns the subscriptions that an event matches, that have not got it yet, and that can be of its
// audience.
func (p *Partition) find(
	ctx context.Context, w *work, x *index.Index[*subscription], e *nostr.Event, h *commonv1.Header, audience kind.Audience,
	at position.Position,
) []*subscription {
	if x == nil {
		return nil
	}
	var found []*subscription
	if subject := h.GetSubject(); len(subject) == len(nostr.PubKey{}) {
		found = x.MatchAbout(e, nostr.PubKey(subject), nil)
	} else {
		found = x.Match(e, nil)
	}
	p.deps.Metrics.matched.Add(ctx, int64(len(found)))
	kept := found[:0]
	for _, s := range found {
		switch {
		case !at.IsAfter(s.from[w.stream]):
		case w.replay != nil && at.IsAfter(w.replay.upto[w.stream]):
		case !audience.MayHave(s.Keys):
			p.deps.Metrics.drop(ctx, dropDenied, 1)
		default:
			kept = append(kept, s)
		}
	}
	return kept
}

// dispatch delivers a decided envelope, once per gateway, and passes it.
func (p *Partition) dispatch(ctx context.Context, w *work) {
	d := w.open
	w.open = nil
	delivery := &deliver.Delivery{
		Partition: p.number, Stream: w.stream, Position: d.at, Envelope: d.envelope, Size: proto.Size(d.envelope),
	}
	p.collect(ctx, w, d)
	recipients := 0
	for _, b := range p.touched {
		recipients += len(b.subs)
		s := b.subs[0]
		if w.replay == nil && s.replay != nil {
			p.hold(ctx, s.replay, delivery, batch{handles: append([]*deliver.Handle(nil), b.handles...), subs: append([]*subscription(nil), b.subs...)})
		} else {
			p.push(ctx, s.peer.link, delivery, b)
		}
		clear(b.subs)
		clear(b.handles)
		b.subs, b.handles = b.subs[:0], b.handles[:0]
	}
	clear(p.touched)
	p.touched = p.touched[:0]
	p.pass(w, d.at)
	d.end(recipients)
}

// collect sorts those who may get the envelope into the batches of their gateways, or of the replay that
// holds them.
func (p *Partition) collect(ctx context.Context, w *work, d *decision) {
	denied := 0
	for i := range d.parts {
		pt := &d.parts[i]
		for j, s := range pt.subs {
			if s.gone {
				continue
			}
			allowed, known := pt.verdict(j)
			if broken.Build && !allowed {
				allowed = broken.Leaks(d.envelope.GetRaw())
			}
			if !allowed || !known {
				if pt.revoked(j) {
					p.lose(ctx, s, fault.Restricted, "no key may use the community any more", dropDenied)
					continue
				}
				denied++
				continue
			}
			b := &s.peer.batch
			if w.replay == nil && s.replay != nil {
				b = &s.replay.batch
			}
			if len(b.subs) == 0 {
				p.touched = append(p.touched, b)
			}
			b.add(s)
		}
	}
	p.deps.Metrics.drop(ctx, dropDenied, denied)
}

// push queues a delivery at a gateway. Without room there the recipients are lost.
func (p *Partition) push(ctx context.Context, link *deliver.Link, d *deliver.Delivery, b *batch) {
	n, ok := link.Deliver(d, b.handles)
	if !ok {
		for _, s := range b.subs {
			if !s.gone {
				p.deps.Metrics.drop(ctx, dropOverflow, 1)
				p.remove(s)
			}
		}
		return
	}
	if n > 0 {
		p.deps.Metrics.delivered.Add(ctx, int64(n))
		p.deps.Metrics.messages.Add(ctx, 1)
	}
}
