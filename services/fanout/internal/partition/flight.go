package partition

import (
	"context"
	"log/slog"
	"time"

	"github.com/apiary-relay/apiary/pkg/broken"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/services/fanout/internal/access"
)

const (
	askBackoff    = 50 * time.Millisecond
	maxAskBackoff = time.Second
)

// flights is the state of the questions to search, at most one at a time. Owned by Run.
type flights struct {
	aloft      bool
	landed     chan landing
	retry      *time.Timer
	backingOff bool
	pause      time.Duration
	// unsure are topics with keys that search has not said anything about, and channels of which an envelope has a newer
	// access version than what it said: they are asked about ahead of the envelopes that need it, when there is nothing
	// more urgent, until it is known of every key.
	unsure map[*topic]struct{}
}

// landing is how a question ended.
type landing struct {
	topic    *access.Topic
	question access.Question
	answer   access.Answer
	err      error
}

func newFlights() flights {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return flights{landed: make(chan landing, 1), retry: t, unsure: make(map[*topic]struct{})}
}

// ask begins a question if none is under way and no pause is due.
func (p *Partition) ask(ctx context.Context, t *access.Topic, v access.Versions, must []*access.Grant) {
	if p.access.aloft || p.access.backingOff {
		return
	}
	q := access.Question{Community: t.Community, Channel: t.Channel, Min: v, Keys: t.Stale(v, must, access.MaxKeys)}
	if len(q.Keys) == 0 {
		return
	}
	p.access.aloft = true
	p.deps.Metrics.asked.Add(ctx, 1)
	p.helper.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, p.cfg.AccessTimeout)
		defer cancel()
		answer, err := access.Ask(ctx, p.deps.Access, q)
		p.access.landed <- landing{topic: t, question: q, answer: answer, err: err}
	})
}

// land takes over an answer; after a failure there is a pause, longer each time.
func (p *Partition) land(ctx context.Context, l landing) {
	p.access.aloft = false
	if l.err == nil {
		p.access.pause = 0
		if l.topic.Apply(l.answer) {
			p.revoke(ctx, l.topic)
		}
		if w := p.work; w != nil && w.open != nil {
			w.open.settle(l)
		}
		return
	}
	p.access.pause = min(max(2*p.access.pause, askBackoff), maxAskBackoff)
	p.access.backingOff = true
	p.access.retry.Reset(p.access.pause)
	if ctx.Err() == nil {
		p.deps.Log.LogAttrs(ctx, slog.LevelWarn, "search does not say who may read", slog.Any(telemetry.KeyError, l.err))
	}
}

// askAhead asks about keys that are new, so that the first envelope need not wait for it, and about those of a channel
// whose members have changed, so that who was removed is told although nothing comes that it asked for. It goes on
// after a failure, and after an answer about as many keys as one question holds: of a channel that was deleted nothing
// comes that would ask again.
func (p *Partition) askAhead(ctx context.Context) {
	for t := range p.access.unsure {
		if p.access.aloft || p.access.backingOff {
			return
		}
		p.ask(ctx, t.access, t.newest, nil)
		if !p.access.aloft {
			delete(p.access.unsure, t) // there was nothing to ask
		}
	}
}

// noteVersions remembers that access to a channel has changed.
func (p *Partition) noteVersions(t *topic, v access.Versions) {
	if t == nil || t.key.channel == "" || t.newest.Covers(v) {
		return
	}
	t.newest = access.Versions{Community: max(t.newest.Community, v.Community), Channel: max(t.newest.Channel, v.Channel), Time: max(t.newest.Time, v.Time)}
	p.access.unsure[t] = struct{}{}
}

// revoke loses the subscriptions of a channel that could read it and may not any more. One that never could is left
// alone: it must not learn that there is a channel.
func (p *Partition) revoke(ctx context.Context, of *access.Topic) {
	t := p.topics[topicKey{of.Community, of.Channel}]
	if t == nil || t.access != of || t.key.channel == "" || broken.Build {
		return // a question about a single envelope
	}
	for _, q := range p.peers {
		for _, s := range q.subs {
			if s.topic == t && s.revoked() {
				p.lose(ctx, s, fault.Blocked, "no key may read the channel any more", dropDenied)
			}
		}
	}
}

// revoked reports whether none of the keys may read the topic, and one could.
func (s *subscription) revoked() bool {
	had := false
	for _, g := range s.grants {
		if !g.Denied() {
			return false
		}
		had = had || g.Revoked()
	}
	return had
}
