package live

import (
	"slices"

	"github.com/apiary-relay/apiary/pkg/broken"
	"github.com/apiary-relay/apiary/pkg/fault"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
)

// run is deliveries of one message that follow each other, are of one partition and stream, and name the same handles: each
// subscription gets all of them at once. It never outlives the message, so nothing waits for company. Owned by the
// receiver of a link.
type run struct {
	partition uint32
	stream    int
	handles   []uint64
	positions []position // of the events, ascending
	events    []*hub.Event
	at        position // of the last delivery, which may be a repeat and no event
	repeats   int64    // handles of deliveries that are repeats
	items     int64    // deliveries
}

// takes reports whether a delivery continues the run. A broken build goes wrong event by event.
func (r *run) takes(d *fanoutv1.Delivery, stream int, at position) bool {
	return r.items > 0 && !broken.Build && r.partition == d.GetPartition() && r.stream == stream && at.compare(r.at) > 0 &&
		slices.Equal(r.handles, d.GetHandles())
}

// gather adds a delivery to the run in hand, or to a new one once that has been delivered.
func (l *link) gather(lv *Live, d *fanoutv1.Delivery) {
	stream, ok := streamIndex(d.GetStream())
	if !ok || d.GetEnvelope() == nil {
		return // a newer node's stream; this gateway has asked for none of it
	}
	at := positionOf(d.GetPosition())
	r := &l.run
	if !r.takes(d, stream, at) {
		l.deliver(lv)
		r.partition, r.stream, r.handles = d.GetPartition(), stream, d.GetHandles()
	}
	r.at = at
	r.items++
	if lv.repeats.isRepeat(d.GetPartition(), d.GetEnvelope().GetHeader(), at) {
		r.repeats += int64(len(r.handles))
		return
	}
	r.positions = append(r.positions, at)
	r.events = append(r.events, hub.NewEvent(d.GetEnvelope()))
}

// deliver delivers the run in hand, if there is one.
func (l *link) deliver(lv *Live) {
	r := l.run
	if r.items == 0 {
		return
	}
	var of *topic
	var fresh int64
	stale := r.repeats
	if len(r.events) > 0 {
		whole := hub.NewRun(r.events...)
		for _, handle := range r.handles {
			s, ok := lv.seats.Get(handle)
			if !ok || s.link != l {
				continue // forgotten meanwhile
			}
			if broken.Build && broken.Drops(r.events[0].Raw()) {
				continue
			}
			n := s.att.deliver(r.stream, r.positions, whole)
			if n > 0 {
				of = s.att.topic
			}
			fresh += int64(n)
			stale += int64(len(r.events) - n)
			if broken.Build && n > 0 && broken.Repeats(r.events[0].Raw()) {
				s.att.spec.Target.Deliver(whole)
			}
			if broken.Build && n > 0 && broken.Closes(r.events[0].Raw()) {
				lv.tell(op{kind: opLost, seat: s, reason: fault.NotFound})
			}
		}
	}
	if of != nil {
		of.delivered.Add(fresh) // all are of one topic, but for what is of the channel and of the community
	}
	var to cursor
	to[r.stream] = r.at
	l.advance(r.partition, to, 0)
	lv.m.Delivery(r.items, fresh, stale)
	l.run = run{positions: r.positions[:0]}
}
