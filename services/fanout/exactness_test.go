package fanout

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/placement"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

// TestEveryHandleGetsExactlyTheMatchingSuffix publishes, subscribes, moves, kills nodes and brings new ones
// in any order. Whatever happens, a subscription that keeps coming back from the last position it knows has
// got, when all is quiet, exactly what matches and was published after its first Attached, in order.
func TestEveryHandleGetsExactlyTheMatchingSuffix(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	tenant := int64(100)
	rapid.Check(t, func(rt *rapid.T) {
		tenant++
		w := &world{rt: rt, cell: c, community: tenant, bus: &lateBus{Bus: c.bus}}
		defer w.end()
		for i := range w.links {
			w.links[i] = w.newLink()
		}
		steps := rapid.IntRange(1, 30).Draw(rt, "steps")
		for range steps {
			w.bus.late.Store(rapid.SampledFrom([]int64{0, 0, int64(time.Millisecond), int64(5 * time.Millisecond)}).Draw(rt, "late"))
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0, 1, 2, 3:
				w.publish()
			case 4, 5:
				w.subscribe()
			case 6:
				w.unsubscribe()
			case 7:
				w.move()
			case 8:
				w.kill()
			case 9:
				w.settle()
			}
		}
		w.settle()
		w.check()
	})
}

var (
	worldChannels = []string{"", "hive", "wax", "comb"}
	worldKinds    = []nostr.Kind{nostr.KindChat, nostr.KindReaction, 20001}
)

// world is two nodes, one gateway, and everything that was published.
type world struct {
	rt        *rapid.T
	cell      *cell
	community int64
	bus       *lateBus
	links     [2]*worldLink
	subs      []*worldSub
	handles   uint64

	publishing sync.WaitGroup
	mu         sync.Mutex
	published  []*event
}

// lateBus lets replays begin late, so that others go on meanwhile.
type lateBus struct {
	*bus.Bus
	late atomic.Int64
}

func (b *lateBus) Replay(ctx context.Context, stream, subject string, from, to uint64, handle func(context.Context, bus.Msg) error, opts ...bus.OrderedOption) error {
	late := time.NewTimer(time.Duration(b.late.Load()))
	defer late.Stop()
	select {
	case <-late.C:
		return b.Bus.Replay(ctx, stream, subject, from, to, handle, opts...)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// worldSub is a subscription as a gateway keeps it.
type worldSub struct {
	channel   string
	partition uint32
	filter    nostr.Filter
	left      bool    // by the world only
	seats     []*seat // who serves it, two while it moves; by the world only

	mu      sync.Mutex
	begun   bool
	from    position.Cursor // of the first Attached
	last    position.Cursor // everything up to here has come
	got     [position.Streams][]position.Position
	problem string
}

// seat is a subscription's handle on one link.
type seat struct {
	sub      *worldSub
	link     *worldLink
	handle   uint64
	resumed  bool
	after    position.Cursor // where it must continue from
	attached bool
	caughtUp bool // a watermark came after Attached
}

// worldLink is a gateway's stream to a node.
type worldLink struct {
	node *node
	g    *gateway
	done chan struct{}

	mu    sync.Mutex
	seats map[uint64]*seat
	marks map[uint32]position.Cursor
}

func (w *world) newLink() *worldLink {
	n := w.cell.node(func(cfg *Config, d *Deps) { cfg.Watermark, d.Bus = time.Millisecond, w.bus })
	l := &worldLink{
		node: n, g: n.attach(), done: make(chan struct{}),
		seats: make(map[uint64]*seat), marks: make(map[uint32]position.Cursor),
	}
	go l.receive()
	return l
}

// receive does what the gateway does with items.
func (l *worldLink) receive() {
	defer close(l.done)
	for item := range l.g.items {
		l.mu.Lock()
		switch it := item.GetItem().(type) {
		case *fanoutv1.Item_Attached:
			if s := l.seats[it.Attached.GetHandle()]; s != nil {
				s.confirm(position.CursorFromProto(it.Attached.GetFrom(), position.Cursor{}))
			}
		case *fanoutv1.Item_Delivery:
			d := it.Delivery
			var to position.Cursor
			stream := position.Stream(d.GetStream() - position.Events.Proto())
			to[stream] = position.FromProto(d.GetPosition())
			for _, h := range d.GetHandles() {
				if s := l.seats[h]; s != nil {
					s.deliver(stream, to[stream])
				}
			}
			l.advance(d.GetPartition(), to)
		case *fanoutv1.Item_Watermark:
			l.advance(it.Watermark.GetPartition(), position.CursorFromProto(it.Watermark.GetCursor(), position.Cursor{}))
			for _, s := range l.seats {
				s.mark(it.Watermark.GetPartition())
			}
		case *fanoutv1.Item_Lost:
			for _, h := range it.Lost.GetHandles() {
				if s := l.seats[h]; s != nil {
					s.fail("lost: " + it.Lost.GetMessage())
				}
			}
		}
		l.mu.Unlock()
	}
}

func (l *worldLink) advance(partition uint32, to position.Cursor) {
	c := l.marks[partition]
	for i := range c {
		if to[i].IsAfter(c[i]) {
			c[i] = to[i]
		}
	}
	l.marks[partition] = c
}

func (s *seat) fail(problem string) {
	s.sub.mu.Lock()
	defer s.sub.mu.Unlock()
	if s.sub.problem == "" {
		s.sub.problem = problem
	}
}

func (s *seat) confirm(from position.Cursor) {
	s.sub.mu.Lock()
	defer s.sub.mu.Unlock()
	s.attached = true
	s.after = from
	if !s.resumed {
		s.sub.from, s.sub.last, s.sub.begun = from, from, true
	}
}

func (s *seat) deliver(stream position.Stream, at position.Position) {
	s.sub.mu.Lock()
	defer s.sub.mu.Unlock()
	if !s.attached || !at.IsAfter(s.after[stream]) {
		s.sub.problem = fmt.Sprintf("handle %d got %v after %v", s.handle, at, s.after[stream])
	}
	s.after[stream] = at
	if at.IsAfter(s.sub.last[stream]) { // else the other seat was faster
		s.sub.last[stream] = at
		s.sub.got[stream] = append(s.sub.got[stream], at)
	}
}

// mark notes a watermark of a partition.
func (s *seat) mark(partition uint32) {
	s.sub.mu.Lock()
	defer s.sub.mu.Unlock()
	if s.attached && partition == s.sub.partition {
		s.caughtUp = true
	}
}

// resumeFrom is the last position that the gateway knows for the seat.
func (s *seat) resumeFrom() position.Cursor {
	s.link.mu.Lock()
	mark := s.link.marks[s.sub.partition]
	s.link.mu.Unlock()
	s.sub.mu.Lock()
	defer s.sub.mu.Unlock()
	if s.attached && (!s.resumed || s.caughtUp) {
		for i := range mark {
			if mark[i].IsAfter(s.sub.last[i]) {
				s.sub.last[i] = mark[i]
			}
		}
	}
	return s.sub.last
}

// publish publishes a few messages while other things happen. Each comes some time after the one before.
func (w *world) publish() {
	var messages [][]*event
	for range rapid.IntRange(1, 8).Draw(w.rt, "messages") {
		channel := rapid.SampledFrom(worldChannels).Draw(w.rt, "channel")
		kind := rapid.SampledFrom(worldKinds).Draw(w.rt, "kind")
		batch := make([]*event, rapid.IntRange(1, 4).Draw(w.rt, "batch"))
		for i := range batch {
			batch[i] = w.cell.event(channel, ofCommunity(w.community), ofKind(kind))
		}
		messages = append(messages, batch)
	}
	w.publishing.Go(func() {
		for _, batch := range messages {
			if err := w.cell.tryPublish(batch[0].envelope.GetHeader().GetPartition(), batch...); err != nil {
				noError(w.cell.t, err)
				return
			}
			w.mu.Lock()
			w.published = append(w.published, batch...)
			w.mu.Unlock()
		}
	})
}

func (w *world) subscribe() {
	channel := rapid.SampledFrom(worldChannels).Draw(w.rt, "channel")
	s := &worldSub{
		channel: channel, partition: placement.Partition(w.community, channel, testPartitions),
		filter: nostr.Filter{Kinds: rapid.SliceOfNDistinct(rapid.SampledFrom(worldKinds), 0, 2, rapid.ID).Draw(w.rt, "kinds")},
	}
	w.subs = append(w.subs, s)
	w.seat(s, w.links[rapid.IntRange(0, 1).Draw(w.rt, "node")])
}

// seat subscribes on a link, resuming if the subscription has been attached before.
func (w *world) seat(s *worldSub, l *worldLink) {
	w.handles++
	s.mu.Lock()
	x := &seat{sub: s, link: l, handle: w.handles, resumed: s.begun}
	last := s.last
	s.mu.Unlock()
	s.seats = append(s.seats, x)
	opts := []subOption{inCommunity(w.community)}
	if x.resumed {
		opts = append(opts, resume(last))
	}
	l.mu.Lock()
	l.seats[x.handle] = x
	l.mu.Unlock()
	l.g.send(subscribe(x.handle, s.channel, s.filter, opts...))
}

// unseat gives a handle up.
func (w *world) unseat(x *seat, tell bool) {
	x.link.mu.Lock()
	delete(x.link.seats, x.handle)
	x.link.mu.Unlock()
	x.sub.seats = slices.DeleteFunc(x.sub.seats, func(y *seat) bool { return x == y })
	if tell {
		x.link.g.send(unsubscribe(x.handle))
	}
}

// pick returns a subscription that somebody serves.
func (w *world) pick() *worldSub {
	var live []*worldSub
	for _, s := range w.subs {
		if !s.left {
			live = append(live, s)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[rapid.IntRange(0, len(live)-1).Draw(w.rt, "sub")]
}

func (w *world) unsubscribe() {
	if s := w.pick(); s != nil {
		s.left = true
		for _, x := range slices.Clone(s.seats) {
			w.unseat(x, true)
		}
	}
}

// move brings a subscription to the other node, before or after leaving the first.
func (w *world) move() {
	s := w.pick()
	if s == nil || len(s.seats) != 1 {
		return
	}
	old := s.seats[0]
	old.resumeFrom()
	to := w.links[0]
	if old.link == to {
		to = w.links[1]
	}
	s.mu.Lock()
	begun := s.begun
	s.mu.Unlock()
	if !begun {
		return // not attached yet: the gateway does not move it
	}
	if rapid.Bool().Draw(w.rt, "make before break") {
		w.seat(s, to)
		w.waitFor("the new seat", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.seats[1].attached || s.problem != ""
		})
		w.unseat(old, true)
		return
	}
	w.unseat(old, true)
	w.seat(s, to)
}

// kill ends a node, resumes on the other what it served, and starts a new one.
func (w *world) kill() {
	i := rapid.IntRange(0, 1).Draw(w.rt, "node")
	dead, other := w.links[i], w.links[1-i]
	dead.node.kill()
	<-dead.done
	w.links[i] = w.newLink()
	if rapid.Bool().Draw(w.rt, "resume on the new one") {
		other = w.links[i]
	}
	for _, s := range w.subs {
		for _, x := range slices.Clone(s.seats) {
			if x.link == dead {
				x.resumeFrom()
				w.unseat(x, false)
				w.seat(s, other)
			}
		}
	}
}

// settle waits until everybody has what is owed.
func (w *world) settle() {
	w.publishing.Wait()
	for _, s := range w.subs {
		if s.left {
			continue
		}
		w.waitFor("Attached", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.begun || s.problem != ""
		})
		w.waitFor("deliveries", func() bool {
			want := w.owed(s)
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.problem != "" || (len(s.got[0]) >= len(want[0]) && len(s.got[1]) >= len(want[1]))
		})
	}
}

func (w *world) waitFor(what string, done func() bool) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			w.check()
			w.rt.Fatalf("waited in vain for %s", what)
		}
	}
}

// owed is what a subscription must get: what matches and was published after its first Attached.
func (w *world) owed(s *worldSub) (want [position.Streams][]position.Position) {
	s.mu.Lock()
	from := s.from
	s.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.published {
		if e.envelope.GetHeader().GetChannel() == s.channel && s.filter.Match(e.Event) && e.at.IsAfter(from[e.stream]) {
			want[e.stream] = append(want[e.stream], e.at)
		}
	}
	for _, list := range want {
		slices.SortFunc(list, position.Position.Compare)
	}
	return want
}

func (w *world) check() {
	for _, s := range w.subs {
		want := w.owed(s)
		s.mu.Lock()
		got, begun, problem := s.got, s.begun, s.problem
		s.mu.Unlock()
		require.Empty(w.rt, problem)
		for stream := range want {
			if s.left { // before the end
				want[stream] = want[stream][:min(len(want[stream]), len(got[stream]))]
			}
			if begun {
				require.True(w.rt, slices.Equal(want[stream], got[stream]), "want %v\ngot %v", want[stream], got[stream])
			}
		}
	}
}

func (w *world) end() {
	w.publishing.Wait()
	for _, l := range w.links {
		if l != nil {
			l.node.kill()
			<-l.done
		}
	}
}
