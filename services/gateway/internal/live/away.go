package live

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// awayGrace is how long a node must have been without the bus before what it serves is moved: when it is the bus that
// has gone, the others say so within that time, and nobody moves in vain.
const awayGrace = 100 * time.Millisecond

const (
	// maxSilence is how long a node that has begun to say that it lives may say nothing. Then it is frozen, or cut off from
	// here, and its subscriptions go on elsewhere, long before the connection is found to be dead.
	maxSilence = 1500 * time.Millisecond
	// maxDoze is how long the loop may have been held up without doubting what it has not heard meanwhile.
	maxDoze = 500 * time.Millisecond
)

// endSilent ends the links to nodes that have been silent for too long. Who was frozen itself listens first.
func (lv *Live) endSilent(now time.Time) {
	if now.Sub(lv.book.ticked) > maxDoze {
		lv.book.awake = now
	}
	lv.book.ticked = now
	for _, l := range lv.book.links {
		heard := l.heard.Load()
		if heard != 0 && now.Sub(time.Unix(0, heard)) > maxSilence && now.Sub(lv.book.awake) > maxSilence {
			l.cancel(errSilent)
		}
	}
}

// rename makes the list of nodes to choose from: those that reach the bus; all of them when none does, because one that
// will is as good as another.
func (lv *Live) rename() {
	lv.book.names = lv.book.names[:0]
	every := len(lv.book.away) == len(lv.book.links)
	for name, l := range lv.book.links {
		if _, away := lv.book.away[l]; every || !away {
			lv.book.names = append(lv.book.names, name)
		}
	}
	slices.Sort(lv.book.names)
	clear(lv.book.ranks)
}

// onBus notes whether a node reaches the bus. One that does again has what it had before moved back once it has settled.
func (lv *Live) onBus(ctx context.Context, l *link, away bool) {
	if lv.book.links[l.name] != l {
		return // it leaves anyhow
	}
	if _, was := lv.book.away[l]; was == away {
		return
	}
	lv.log.LogAttrs(ctx, slog.LevelInfo, "fan-out node and the bus", slog.String(telemetry.KeyPeer, l.name), slog.Bool("away", away))
	if away {
		lv.book.away[l] = time.Now()
		lv.rename()
		return
	}
	delete(lv.book.away, l)
	lv.rename()
	lv.book.settle[l] = time.Now().Add(lv.cfg.SettleTime)
}

// evacuate resumes elsewhere what nodes without the bus serve, all at once and make before break: they may still have
// something to say, and go on when nobody else answers. It does nothing while no node reaches the bus.
func (lv *Live) evacuate(ctx context.Context, now time.Time) {
	if len(lv.book.away) == len(lv.book.links) {
		return
	}
	var resumed int64
	for l, since := range lv.book.away {
		if now.Sub(since) < awayGrace {
			continue
		}
		for _, s := range l.seats {
			if lv.evacuateSeat(s) {
				resumed++
			}
		}
	}
	if resumed > 0 {
		lv.book.moveEnd = now.Add(moveTimeout)
		lv.m.Resumed(ctx, metrics.OutcomeNodeAway, resumed)
	}
}

// evacuateSeat reports whether another node is asked to take over.
func (lv *Live) evacuateSeat(s *seat) bool {
	a := s.att
	switch {
	case s == a.next: // it was to take over and cannot
		a.next = nil
		lv.moved(a)
		lv.leave(s)
		if a.cur == nil {
			lv.place(a)
		}
		return false
	case s != a.cur || a.next != nil:
		return false
	}
	to := lv.best(a, nil)
	if to == nil || to == s.link {
		return false
	}
	if !a.trouble.IsZero() { // it was never served there
		lv.leave(s)
		a.cur = lv.subscribe(a, to)
		return true
	}
	s.settle()
	a.next = lv.subscribe(a, to)
	lv.book.moving[a] = struct{}{}
	return true
}
