package partition

import (
	"context"
	"log/slog"
	"time"

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
	// unsure are topics with keys that search was never asked about: they are asked about ahead of the
	// first envelope, when there is nothing more urgent.
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
		l.topic.Apply(l.answer)
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

// askAhead asks about keys that are new, so that the first envelope need not wait for it. A failure is
// not repeated: an envelope will ask.
func (p *Partition) askAhead(ctx context.Context) {
	for t := range p.access.unsure {
		if p.access.aloft || p.access.backingOff {
			return
		}
		if t.access.Unsure() {
			p.ask(ctx, t.access, access.Versions{}, nil)
		}
		delete(p.access.unsure, t)
	}
}
