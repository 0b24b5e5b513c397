package partition

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/access"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

// decision is an envelope that matched and whose recipients may have to be decided upon.
type decision struct {
	envelope *commonv1.Envelope
	at       position.Position
	parts    []part
	// span is nil unless the envelope is sampled.
	span trace.Span
	// since is when it had to wait first; zero while it has not.
	since time.Time
}

// part is those recipients whose access is decided by the same topic.
type part struct {
	topic    *access.Topic
	versions access.Versions
	subs     []*subscription
	// grants are those of subs, in order; nil when they are the subscriptions' own.
	grants [][]*access.Grant
	// settled are verdicts that hold for this envelope only: search has answered from a state that is new
	// enough although its versions are lower.
	settled map[nostr.PubKey]settlement
	// audience is whom the event is for: only their keys count.
	audience kind.Audience
	// community is set for what is in no channel, so that whoever may not have it may not use the community.
	community bool
}

// settlement is what search said of a key.
type settlement struct{ allowed, moderates bool }

// channelPart is for global subscriptions that match a channel's state: they need access to the channel.
// That is asked for each time, because it is rare and the channel may belong to another partition.
func channelPart(key topicKey, e *nostr.Event, versions access.Versions, subs []*subscription) part {
	channel := key.channel
	if channel == "" {
		channel = e.DTag()
	}
	t := access.NewTopic(key.community, channel)
	pt := part{topic: t, versions: versions, subs: subs, audience: kind.AudienceOf(e), grants: make([][]*access.Grant, len(subs))}
	for i, s := range subs {
		pt.grants[i] = make([]*access.Grant, len(s.Keys))
		for j, k := range s.Keys {
			pt.grants[i][j] = t.Acquire(k)
		}
	}
	return pt
}

func (pt *part) grantsOf(i int) []*access.Grant {
	if pt.grants != nil {
		return pt.grants[i]
	}
	return pt.subs[i].grants
}

// counts reports whether it matters what a key may: only if the event is for it, or is if it moderates.
func (pt *part) counts(g *access.Grant) bool { return pt.audience.Has(g.Key(), true) }

// verdict says whether the i-th recipient may get the envelope, and whether that is known. Who acts with
// several keys may read what one of them may; that one must by itself be of the event's audience, because another
// that is may be banned by now.
func (pt *part) verdict(i int) (allowed, known bool) {
	known = true
	for _, g := range pt.grantsOf(i) {
		if !pt.counts(g) {
			continue
		}
		said, decided := settlement{g.Allowed(), g.Moderates()}, g.Fresh(pt.versions)
		if !decided {
			said, decided = pt.settled[g.Key()]
		}
		if decided && said.allowed && pt.audience.Has(g.Key(), said.moderates) {
			return true, true
		}
		known = known && decided
	}
	return false, known
}

// revoked reports whether the i-th recipient is known to have no key that may use the community any more. Nothing is
// said of channels: who asks for one that is hidden must not learn that it exists.
func (pt *part) revoked(i int) bool {
	if !pt.community {
		return false
	}
	for _, g := range pt.grantsOf(i) {
		said, decided := pt.settled[g.Key()]
		if g.Fresh(pt.versions) {
			said.allowed, decided = g.Allowed(), true
		}
		if !decided || said.allowed {
			return false
		}
	}
	return true
}

// undecided returns the recipients that are not decided upon, and their stale grants.
func (pt *part) undecided() (must []*access.Grant, open []*subscription) {
	for i, s := range pt.subs {
		if s.gone {
			continue
		}
		if _, known := pt.verdict(i); known {
			continue
		}
		open = append(open, s)
		for _, g := range pt.grantsOf(i) {
			if _, settled := pt.settled[g.Key()]; pt.counts(g) && !settled && !g.Fresh(pt.versions) {
				must = append(must, g)
			}
		}
	}
	return must, open
}

// settle takes over an answer that does not age like others, for the part that asked for it.
func (d *decision) settle(l landing) {
	for i := range d.parts {
		pt := &d.parts[i]
		if pt.topic != l.topic || !l.question.Min.Covers(pt.versions) || l.question.Min.Time < pt.versions.Time || l.answer.At.Covers(pt.versions) {
			continue
		}
		if pt.settled == nil {
			pt.settled = make(map[nostr.PubKey]settlement, len(l.answer.Keys))
		}
		for n, key := range l.answer.Keys {
			pt.settled[key] = settlement{l.answer.Allowed[n], l.answer.Moderator[n]}
		}
	}
}

// decide reports whether it is known for every recipient whether it is allowed. If not, search is asked;
// when the hold is over, those for whom it is not known are lost.
func (p *Partition) decide(ctx context.Context, d *decision) bool {
	for i := range d.parts {
		pt := &d.parts[i]
		must, open := pt.undecided()
		switch {
		case len(open) == 0:
		case !d.since.IsZero() && time.Since(d.since) >= p.cfg.AccessHold:
			for _, s := range open {
				p.lose(ctx, s, fault.Overloaded, "access could not be decided", dropUndecided)
			}
		default:
			if d.since.IsZero() {
				d.since = time.Now()
			}
			p.ask(d.inSpan(ctx), pt.topic, pt.versions, must)
			return false
		}
	}
	if !d.since.IsZero() {
		p.deps.Metrics.hold.Record(ctx, time.Since(d.since).Seconds())
	}
	return true
}

// inSpan returns ctx for a call that the decision makes.
func (d *decision) inSpan(ctx context.Context) context.Context {
	if d.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, d.span)
}

// end closes the span.
func (d *decision) end(recipients int) {
	if d.span != nil {
		d.span.SetAttributes(attribute.Int("recipients", recipients))
		d.span.End()
	}
}
