package session

import (
	"slices"
	"sync"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
	"github.com/apiary-relay/apiary/services/gateway/internal/live"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// lagged is what a client is told when its subscription could not be kept complete.
var lagged = fault.FrameText(fault.Overloaded, "lagged, resubscribe")

type phase uint8

const (
	opening    phase = iota // waiting for the topics to be attached
	reading                 // sending history
	catchingUp              // EOSE is out, sending what was held
	running                 // live
	closed
)

// subscription is one REQ. It implements live.Target for each of its topics.
type subscription struct {
	s      *Session
	id     string
	prefix []byte        // of its EVENT frames
	cost   int64         // charged to the session until it ends
	ready  chan struct{} // closed when every topic is attached

	mu        sync.Mutex
	query     *query // nil when it has ended, or is live
	phase     phase
	waiting   int    // topics not attached yet
	cancel    func() // stops the job that works on it; nil while there is none
	atts      []*live.Attachment
	snapshot  *commonv1.Snapshot // of the stored query, once it is known
	held      []*hub.Event
	heldBytes int
	twice     *recent // nil unless one event may come on two topics
}

func newSubscription(s *Session, id string, q query) *subscription {
	sub := &subscription{
		s: s, id: id, prefix: hub.Prefix(id), query: &q, cost: q.cost(),
		ready: make(chan struct{}), waiting: len(q.topics),
	}
	if len(q.topics) == 0 {
		close(sub.ready) // it is for stored events only
	}
	if len(q.topics) > 1 && slices.ContainsFunc(q.topics, func(t topic) bool { return t.channel == "" }) {
		sub.twice = new(recent)
	}
	return sub
}

// begin notes how to stop the job that works on the subscription and returns what it asks for, false when it
// has ended.
func (sub *subscription) begin(cancel func()) (query, bool) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.cancel = cancel
	if sub.phase == closed {
		return query{}, false
	}
	return *sub.query, true
}

// pause notes that no job works on the subscription any more.
func (sub *subscription) pause() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.cancel = nil
}

// attach begins to attach all topics.
func (sub *subscription) attach(p *commonv1.Principal) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.phase == closed {
		return
	}
	for _, t := range sub.query.topics {
		sub.atts = append(sub.atts, sub.s.srv.Live.Attach(live.Spec{
			Community: sub.s.community.ID, Channel: t.channel, Filters: t.filters, Principal: p, Target: sub,
		}))
	}
}

// Attached implements live.Target.
func (sub *subscription) Attached() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.waiting--
	if sub.waiting == 0 {
		close(sub.ready)
	}
}

// Deliver implements live.Target. It never blocks: what finds no room ends the subscription as lagged.
func (sub *subscription) Deliver(run *hub.Run) {
	if outcome := sub.take(run); outcome != "" {
		sub.s.srv.Metrics.Dropped(sub.s.ctx, outcome, 1)
		sub.lag(outcome)
	}
}

// take holds or sends events and returns which bound it hit, if any.
func (sub *subscription) take(run *hub.Run) string {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.phase == running && isAfter(sub.snapshot, run) && (sub.twice == nil || !run.HasChannelState()) {
		if !sub.s.conn.Event(run.Frames(sub.id, sub.prefix)...) {
			return metrics.OutcomeQueue
		}
		return ""
	}
	for _, ev := range run.Events() {
		if outcome := sub.takeOne(ev); outcome != "" {
			return outcome
		}
	}
	return ""
}

// takeOne is take of an event that may have to be dropped. Called with mu held.
func (sub *subscription) takeOne(ev *hub.Event) string {
	switch {
	case sub.phase == closed, sees(sub.snapshot, ev.Header):
		return ""
	case sub.twice != nil && hub.IsChannelState(ev.Header.GetKind()) && sub.twice.seen(ev.Header.GetId()):
		return ""
	case sub.phase == running:
		if !sub.s.conn.Event(ev.Fresh(sub.prefix)) {
			return metrics.OutcomeQueue
		}
		return ""
	}
	cfg := &sub.s.srv.cfg
	if len(sub.held) >= cfg.HeldEvents || (len(sub.held) > 0 && sub.heldBytes+ev.Size() > cfg.HeldBytes) {
		return metrics.OutcomeHeld
	}
	sub.held = append(sub.held, ev)
	sub.heldBytes += ev.Size()
	return ""
}

// lag ends the subscription because an event was dropped. The client is told when it has read enough to
// have room.
func (sub *subscription) lag(outcome string) {
	if !sub.end() {
		return
	}
	s := sub.s
	s.srv.Metrics.Lagged(s.ctx, outcome)
	s.mu.Lock()
	s.lagged = append(s.lagged, sub)
	s.mu.Unlock()
	s.conn.WantRoom()
}

// Lost implements live.Target.
func (sub *subscription) Lost(reason fault.Reason) {
	sub.mu.Lock()
	served := sub.waiting == 0
	sub.mu.Unlock()
	text := lagged
	switch {
	case reason == fault.Invalid:
		text = fault.FrameText(fault.Invalid, "this subscription cannot be served")
	case reason == fault.Blocked:
		text = fault.FrameText(fault.Restricted, "channel access revoked")
	case reason == fault.Restricted:
		text = fault.Frame(sub.s.community.lost())
	case !served:
		text = fault.FrameText(fault.Overloaded, "")
	default:
		sub.s.srv.Metrics.Lagged(sub.s.ctx, metrics.OutcomeGone)
	}
	sub.fail(text)
}

// fail ends the subscription with CLOSED, unless it has ended already.
func (sub *subscription) fail(text string) {
	if !sub.end() {
		return
	}
	s := sub.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs[sub.id] == sub {
		delete(s.subs, sub.id)
		if text != "" {
			s.closed(sub.id, text)
		}
	}
}

// end closes the subscription: no frame of it is queued after end returns. It reports whether this call
// did it.
func (sub *subscription) end() bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.phase == closed {
		return false
	}
	sub.phase = closed
	if sub.cancel != nil {
		sub.cancel()
	}
	for _, a := range sub.atts {
		sub.s.srv.Live.Detach(a)
	}
	sub.atts, sub.held, sub.snapshot, sub.query = nil, nil, nil, nil
	sub.s.values.Add(-sub.cost)
	sub.s.srv.Metrics.Subscribed(sub.s.ctx, -1)
	return true
}

// startReading notes that all topics are attached.
func (sub *subscription) startReading() bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.phase != opening {
		return false
	}
	sub.phase = reading
	return true
}

// setSnapshot notes what the stored query could see and drops it from what is held.
func (sub *subscription) setSnapshot(snap *commonv1.Snapshot) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.phase == closed {
		return
	}
	sub.snapshot = snap
	sub.held = slices.DeleteFunc(sub.held, func(ev *hub.Event) bool {
		if sees(snap, ev.Header) {
			sub.heldBytes -= ev.Size()
			return true
		}
		return false
	})
}

// send queues a frame that the caller has made room for; false when the subscription has ended.
func (sub *subscription) send(f cork.Frame) bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.phase == closed {
		return false
	}
	sub.s.conn.History(f)
	return true
}

// eose ends the history.
func (sub *subscription) eose() bool {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if sub.phase == closed {
		return false
	}
	sub.phase = catchingUp
	sub.s.conn.Control(cork.Build(len(sub.id)+16, func(b []byte) []byte { return wire.AppendEOSE(b, sub.id) }))
	return true
}

// release takes out what is held, or turns the subscription live when nothing is. more is false when it
// is live or has ended.
func (sub *subscription) release() (held []*hub.Event, more bool) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	switch {
	case sub.phase == closed:
		return nil, false
	case len(sub.held) == 0:
		sub.phase, sub.query = running, nil // the attachments know what they are for
		return nil, false
	}
	held, sub.held, sub.heldBytes = sub.held, nil, 0
	return held, true
}

// sees reports whether a snapshot could see the transaction that stored an event, so that the stored
// query has had its chance to return it. Ephemeral events have no transaction, and ids of another
// database mean nothing. Nor could it see what began after it, whatever the id: when Postgres crashes, it
// gives the last ids again if their transactions had left nothing in the log.
func sees(snap *commonv1.Snapshot, h *commonv1.Header) bool {
	xid := h.GetCommitXid()
	if snap == nil || xid == 0 || snap.GetDatabaseId() != h.GetDatabaseId() {
		return false
	}
	if taken := snap.GetTakenAt(); taken > 0 && h.GetBegunAt() > taken {
		return false
	}
	if xid < snap.GetXmin() {
		return true
	}
	if xid >= snap.GetXmax() {
		return false
	}
	_, running := slices.BinarySearch(snap.GetInProgress(), xid)
	return !running
}

// isAfter reports that a snapshot sees no event of a run, without a look at each; false means that one may be
// seen.
func isAfter(snap *commonv1.Snapshot, run *hub.Run) bool {
	return snap == nil || run.Oldest() == 0 || run.Oldest() >= snap.GetXmax()
}

// recent remembers the ids of the last channel states delivered, which come on two topics at about the
// same time.
type recent struct {
	ids  [64][32]byte
	next int
}

// seen reports whether an id was seen before and remembers it.
func (r *recent) seen(id []byte) bool {
	var key [32]byte
	copy(key[:], id)
	if slices.Contains(r.ids[:], key) {
		return true
	}
	r.ids[r.next] = key
	r.next = (r.next + 1) % len(r.ids)
	return false
}
