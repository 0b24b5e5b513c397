package live

import (
	"context"
	"log/slog"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// book is what the loop knows. Only the loop goroutine touches it.
type book struct {
	links      map[string]*link    // usable, by node name
	names      []string            // of those links that are to be chosen from, sorted
	away       map[*link]time.Time // links to nodes without the bus, and since when
	partitions map[uint32]map[*Attachment]struct{}
	topics     map[topicKey]*topic
	joined     uint64                   // attachments so far
	measured   time.Time                // when topics were looked at last
	ranks      map[uint32][]string      // names in the order of a partition, as far as was asked for
	waiting    map[*Attachment]struct{} // not attached
	moving     map[*Attachment]struct{} // next is set
	moves      []uint32                 // partitions to look at, in turn
	moveEnd    time.Time                // when the moves in hand are given up
	settle     map[*link]time.Time      // links too young to be moved to
	ticked     time.Time                // when the loop looked at the time last
	awake      time.Time                // since when it has done so without a pause
}

func newBook() book {
	return book{
		links:      make(map[string]*link),
		away:       make(map[*link]time.Time),
		partitions: make(map[uint32]map[*Attachment]struct{}),
		topics:     make(map[topicKey]*topic),
		ranks:      make(map[uint32][]string),
		measured:   time.Now(),
		waiting:    make(map[*Attachment]struct{}),
		moving:     make(map[*Attachment]struct{}),
		settle:     make(map[*link]time.Time),
	}
}

func (lv *Live) handle(ctx context.Context, o op) {
	switch o.kind {
	case opAttach:
		lv.onAttach(o.att)
	case opDetach:
		lv.forget(o.att)
	case opAttached:
		lv.onAttached(o.seat)
	case opLost:
		lv.onLost(ctx, o.seat, o.reason, o.message)
	case opLinkUp:
		lv.onLinkUp(o.link)
	case opLinkLeaving:
		lv.onLinkLeaving(o.link)
	case opLinkDown:
		lv.onLinkDown(ctx, o.link)
		close(o.done)
	case opBus:
		lv.onBus(ctx, o.link, o.away)
	}
}

func (lv *Live) onAttach(a *Attachment) {
	a.known = true
	set := lv.book.partitions[a.partition]
	if set == nil {
		set = make(map[*Attachment]struct{})
		lv.book.partitions[a.partition] = set
	}
	set[a] = struct{}{}
	lv.join(a)
	lv.await(a)
	lv.place(a)
}

// await notes that a is not attached.
func (lv *Live) await(a *Attachment) {
	if a.trouble.IsZero() {
		a.trouble = time.Now()
	}
	lv.book.waiting[a] = struct{}{}
}

// place puts a on the best node there is; without one it goes on waiting.
func (lv *Live) place(a *Attachment) {
	if now := time.Now(); now.Before(a.holdOff) {
		if l := lv.best(a, a.avoid); l != nil {
			a.cur = lv.subscribe(a, l)
		}
		return
	}
	a.avoid = nil
	if l := lv.best(a, nil); l != nil {
		a.cur = lv.subscribe(a, l)
	}
}

// subscribe gives a a seat on l, resuming if it was attached before.
func (lv *Live) subscribe(a *Attachment, l *link) *seat {
	s := &seat{att: a, link: l, resumed: a.served}
	cmd := &fanoutv1.Subscribe{
		Community: a.spec.Community,
		Channel:   a.spec.Channel,
		Filters:   a.spec.Filters,
		Principal: a.spec.Principal,
	}
	if s.resumed {
		a.mu.Lock()
		cmd.ResumeAfter = a.last.proto()
		a.mu.Unlock()
	}
	s.handle = lv.seats.Add(s)
	cmd.Handle = s.handle
	l.seats[s.handle] = s
	l.command(&fanoutv1.Command{Command: &fanoutv1.Command_Subscribe{Subscribe: cmd}})
	return s
}

// leave gives a seat up.
func (lv *Live) leave(s *seat) {
	lv.seats.Remove(s.handle)
	if _, ok := s.link.seats[s.handle]; !ok {
		return
	}
	delete(s.link.seats, s.handle)
	s.link.command(&fanoutv1.Command{Command: &fanoutv1.Command_Unsubscribe{
		Unsubscribe: &fanoutv1.Unsubscribe{Handle: s.handle},
	}})
	lv.endIfDrained(s.link)
}

// endIfDrained ends the link to a node that has left once nobody is served through it.
func (lv *Live) endIfDrained(l *link) {
	if l.leaving && len(l.seats) == 0 {
		l.cancel(errDrained)
	}
}

// forget takes a out of the books.
func (lv *Live) forget(a *Attachment) {
	if !a.known {
		return
	}
	a.known = false
	a.end()
	for _, s := range []*seat{a.cur, a.next} {
		if s != nil {
			lv.leave(s)
		}
	}
	a.cur, a.next = nil, nil
	delete(lv.book.waiting, a)
	set := lv.book.partitions[a.partition]
	delete(set, a)
	if len(set) == 0 {
		delete(lv.book.partitions, a.partition)
	}
	lv.part(a)
	lv.moved(a)
}

// lose ends a and tells its Target.
func (lv *Live) lose(a *Attachment, reason fault.Reason) {
	lv.forget(a)
	a.spec.Target.Lost(reason)
}

func (lv *Live) onAttached(s *seat) {
	a := s.att
	if s != a.cur && s != a.next {
		return
	}
	if s == a.next {
		old := a.cur
		a.cur, a.next = s, nil
		if old != nil {
			lv.leave(old)
		}
		lv.moved(a)
	}
	a.trouble, a.holdOff, a.avoid, a.attempts = time.Time{}, time.Time{}, nil, 0
	delete(lv.book.waiting, a)
	if !a.served {
		a.served = true
		a.spec.Target.Attached()
	}
}

// Hold-off of a node that refused an attachment because it is overloaded.
const (
	firstHoldOff = 100 * time.Millisecond
	lastHoldOff  = 2 * time.Second
)

func (lv *Live) onLost(ctx context.Context, s *seat, reason fault.Reason, message string) {
	a := s.att
	delete(s.link.seats, s.handle)
	lv.seats.Remove(s.handle)
	defer lv.endIfDrained(s.link)
	if s != a.cur && s != a.next {
		return
	}
	lv.log.LogAttrs(ctx, slog.LevelDebug, "attachment lost",
		slog.String(telemetry.KeyPeer, s.link.name), slog.String(telemetry.KeyReason, reason.String()),
		slog.String("message", message))
	if s == a.next {
		// A move that fails does no harm: a stays where it is.
		a.next = nil
		lv.moved(a)
		if a.cur == nil {
			lv.retry(a, s.link)
		}
		return
	}
	a.cur = nil
	switch reason {
	case fault.Overloaded:
		lv.m.Resumed(ctx, metrics.OutcomeOverloaded, 1)
		if a.next != nil {
			lv.await(a) // the move goes on and is what saves it
			return
		}
		lv.retry(a, s.link)
	default:
		lv.lose(a, reason)
	}
}

// retry places a again after a node refused it: elsewhere at once, there only after a hold-off.
func (lv *Live) retry(a *Attachment, refused *link) {
	wait := min(firstHoldOff<<min(a.attempts, 10), lastHoldOff)
	a.attempts++
	a.avoid, a.holdOff = refused, time.Now().Add(wait)
	lv.await(a)
	// A second refusal in a row waits for the hold-off wherever it came from, so that a does not bounce
	// between nodes that are all full.
	if a.attempts <= 1 {
		lv.place(a)
	}
}

func (lv *Live) onLinkUp(l *link) {
	if l.leaving {
		return // it left before it had said anything
	}
	lv.book.links[l.name] = l
	lv.rename()
	lv.book.settle[l] = time.Now().Add(lv.cfg.SettleTime)
	for a := range lv.book.waiting {
		if a.cur == nil && a.next == nil {
			lv.place(a)
		}
	}
}

// drop takes l out of the links that may get seats.
func (lv *Live) drop(l *link) {
	delete(lv.book.settle, l)
	delete(lv.book.away, l)
	if lv.book.links[l.name] == l {
		delete(lv.book.links, l.name)
		lv.rename()
	}
}

// onLinkLeaving moves what l serves while it still serves it.
func (lv *Live) onLinkLeaving(l *link) {
	l.leaving = true
	lv.drop(l)
	lv.endIfDrained(l)
	lv.reviewAll()
}

func (lv *Live) onLinkDown(ctx context.Context, l *link) {
	lv.drop(l)
	seats := l.seats
	l.seats = make(map[uint64]*seat)
	var resumed int64
	for handle, s := range seats {
		lv.seats.Remove(handle)
		s.settle()
		a := s.att
		switch s {
		case a.next:
			a.next = nil
			lv.moved(a)
		case a.cur:
			a.cur = nil
			lv.await(a)
		default:
			continue
		}
		if a.cur == nil && a.next == nil {
			lv.place(a)
			resumed++
		}
	}
	if resumed > 0 {
		lv.m.Resumed(ctx, metrics.OutcomeNodeLost, resumed)
		lv.log.LogAttrs(ctx, slog.LevelInfo, "resuming attachments elsewhere",
			slog.String(telemetry.KeyPeer, l.name), slog.Int64("attachments", resumed))
	}
}

func (lv *Live) onTick(ctx context.Context, now time.Time) {
	for a := range lv.book.waiting {
		switch {
		case now.Sub(a.trouble) > lv.cfg.Patience:
			lv.lose(a, fault.Overloaded)
		case a.cur == nil && a.next == nil && !now.Before(a.holdOff):
			lv.place(a)
		}
	}
	for l, at := range lv.book.settle {
		if !now.Before(at) {
			delete(lv.book.settle, l)
			lv.reviewAll()
		}
	}
	lv.evacuate(ctx, now)
	lv.measure(ctx, now)
	if len(lv.book.moving) > 0 && now.After(lv.book.moveEnd) {
		lv.abandonMoves(ctx)
	}
}

// abandonMoves leaves where they are those whose new node does not answer.
func (lv *Live) abandonMoves(ctx context.Context) {
	lv.log.LogAttrs(ctx, slog.LevelWarn, "moves are not answered", slog.Int("attachments", len(lv.book.moving)))
	for a := range lv.book.moving {
		lv.leave(a.next)
		a.next = nil
		lv.moved(a)
	}
}

// reviewAll has every partition looked at, for attachments that are not on their best node.
func (lv *Live) reviewAll() {
	lv.book.moves = lv.book.moves[:0]
	for p := range lv.book.partitions {
		lv.book.moves = append(lv.book.moves, p)
	}
}

// moveTimeout is how long a node may take to answer the moves of one partition.
const moveTimeout = 5 * time.Second

// moved notes that a no longer moves.
func (lv *Live) moved(a *Attachment) { delete(lv.book.moving, a) }

// move begins the moves of the next partition once those of the one before are done: make before
// break, and never more than one partition's worth of replays at a time.
func (lv *Live) move(ctx context.Context) {
	var begun int64
	for len(lv.book.moving) == 0 && len(lv.book.moves) > 0 {
		p := lv.book.moves[len(lv.book.moves)-1]
		lv.book.moves = lv.book.moves[:len(lv.book.moves)-1]
		for a := range lv.book.partitions[p] {
			if a.cur == nil || !a.served || !a.trouble.IsZero() {
				continue
			}
			to := lv.best(a, nil)
			if to == nil || to == a.cur.link {
				continue
			}
			if _, young := lv.book.settle[to]; young {
				continue // looked at again when it has settled
			}
			a.cur.settle()
			a.next = lv.subscribe(a, to)
			lv.book.moving[a] = struct{}{}
			begun++
		}
	}
	if begun > 0 {
		lv.book.moveEnd = time.Now().Add(moveTimeout)
		lv.m.Resumed(ctx, metrics.OutcomeMoved, begun)
	}
}
