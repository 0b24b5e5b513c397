package gateway_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

const lagged = "error: lagged, resubscribe"

func numbered(t *testing.T, n int) *commonv1.Envelope {
	t.Helper()
	return envelope(t, "", uint64(n), nostrtest.Content(strconv.Itoa(n)))
}

// subscribed returns which of the nodes got the next Subscribe, and the Subscribe.
func (w *world) subscribed() (node int, s *fanoutv1.Subscribe) {
	w.tb.Helper()
	deadline := time.After(patience)
	for {
		for i, f := range w.fanouts {
			select {
			case s := <-f.subscribed:
				return i, s
			default:
			}
		}
		select {
		case <-deadline:
			require.FailNow(w.tb, "nobody was asked")
		case <-time.After(time.Millisecond):
		}
	}
}

// linked waits until the gateway has a stream to every node, so that placement is settled.
func (w *world) linked() {
	w.tb.Helper()
	require.Eventually(w.tb, func() bool {
		for _, f := range w.fanouts {
			f.mu.Lock()
			n := len(f.links)
			f.mu.Unlock()
			if n == 0 {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
}

// The node that serves a subscription dies; another one takes over from the last position, repeats what
// it may repeat, and the client sees every event once.
func TestALostNodeIsResumedElsewhere(t *testing.T) {
	w := newWorld(t, fanouts(2))
	w.linked()
	for _, f := range w.fanouts {
		f.setHead(10)
	}
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	first, s := w.subscribed()
	require.Nil(t, s.GetResumeAfter())
	dead, other := w.fanouts[first], w.fanouts[1-first]
	for n := 11; n <= 13; n++ {
		dead.publish(uint64(n), numbered(t, n))
		require.Equal(t, idOf(t, numbered(t, n)), c.event("s"))
	}

	other.answer(func(l *link, s *fanoutv1.Subscribe) bool {
		l.attached(s, 16)
		// The replay may begin earlier than asked, and repeats are no news.
		for n := 12; n <= 16; n++ {
			l.deliver(uint64(n), numbered(t, n), s.GetHandle())
			l.deliver(uint64(n), numbered(t, n), s.GetHandle())
		}
		return true
	})
	w.stop("fanout-" + strconv.Itoa(first))
	next, resumed := w.subscribed()
	require.Equal(t, 1-first, next)
	require.Equal(t, uint64(13), resumed.GetResumeAfter().GetEvents().GetSequence())
	require.Equal(t, uint64(epoch), resumed.GetResumeAfter().GetEvents().GetEpoch())
	for n := 14; n <= 16; n++ {
		require.Equal(t, idOf(t, numbered(t, n)), c.event("s"))
	}
	other.publish(17, numbered(t, 17))
	require.Equal(t, idOf(t, numbered(t, 17)), c.event("s"))
}

// What a node has said about a partition counts for handles that were quiet.
func TestResumePositions(t *testing.T) {
	resumeAfter := func(t *testing.T, before func(w *world, l *link, s *fanoutv1.Subscribe, c *client)) uint64 {
		t.Helper()
		w := newWorld(t)
		w.fanouts[0].setHead(10)
		c := w.login(openHost, "alice")
		c.send(`["REQ","s",{"limit":0}]`)
		c.eose("s")
		s := take(t, w.fanouts[0].subscribed)
		l := w.fanouts[0].link(t)
		before(w, l, s, c)
		// A delivery shows that the gateway has got so far; it is on another partition's books.
		l.cancel(fault.New(fault.Overloaded, "broken by the test"))
		return take(t, w.fanouts[0].subscribed).GetResumeAfter().GetEvents().GetSequence()
	}
	// marker makes sure that what was sent before has been received.
	marker := func(w *world, c *client) {
		c.send(`["REQ","marker",{"#h":["elsewhere"],"limit":0}]`)
		c.eose("marker")
		take(w.tb, w.fanouts[0].subscribed)
		c.send(`["CLOSE","marker"]`)
		take(w.tb, w.fanouts[0].forgotten)
	}
	t.Run("start", func(t *testing.T) {
		require.Equal(t, uint64(10), resumeAfter(t, func(*world, *link, *fanoutv1.Subscribe, *client) {}))
	})
	t.Run("watermark", func(t *testing.T) {
		require.Equal(t, uint64(40), resumeAfter(t, func(w *world, l *link, s *fanoutv1.Subscribe, c *client) {
			l.watermark(s, 40)
			marker(w, c)
		}))
	})
	t.Run("delivery to somebody else", func(t *testing.T) {
		require.Equal(t, uint64(30), resumeAfter(t, func(w *world, l *link, _ *fanoutv1.Subscribe, c *client) {
			l.deliver(30, numbered(t, 30), 999_999)
			marker(w, c)
		}))
	})
}

// A handle that is being replayed is behind its node: until a watermark says that the replay is over,
// only its own deliveries count.
func TestAReplayThatIsCutShortIsResumed(t *testing.T) {
	w := newWorld(t)
	f := w.fanouts[0]
	f.setHead(10)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	take(t, f.subscribed)
	cut := func() *fanoutv1.Subscribe {
		f.link(t).cancel(fault.New(fault.Overloaded, "broken by the test"))
		return take(t, f.subscribed)
	}
	f.answer(func(l *link, s *fanoutv1.Subscribe) bool {
		l.attached(s, 50)
		l.deliver(50, numbered(t, 50), 999_999) // to somebody else: the node itself is far ahead
		l.deliver(11, numbered(t, 11), s.GetHandle())
		return true
	})
	require.Equal(t, uint64(10), cut().GetResumeAfter().GetEvents().GetSequence())
	require.Equal(t, idOf(t, numbered(t, 11)), c.event("s"))
	f.answer(func(l *link, s *fanoutv1.Subscribe) bool {
		l.attached(s, 50)
		l.deliver(12, numbered(t, 12), s.GetHandle())
		l.watermark(s, 60)
		l.deliver(61, numbered(t, 61), s.GetHandle())
		return true
	})
	require.Equal(t, uint64(11), cut().GetResumeAfter().GetEvents().GetSequence())
	require.Equal(t, idOf(t, numbered(t, 12)), c.event("s"))
	require.Equal(t, idOf(t, numbered(t, 61)), c.event("s"))
	require.Equal(t, uint64(61), cut().GetResumeAfter().GetEvents().GetSequence())
}

func TestAnOverloadedNodeIsLeft(t *testing.T) {
	w := newWorld(t, fanouts(2))
	w.linked()
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	first, s := w.subscribed()
	w.fanouts[first].publish(5, numbered(t, 5))
	require.Equal(t, idOf(t, numbered(t, 5)), c.event("s"))
	w.fanouts[first].link(t).lost(fault.Overloaded, s.GetHandle())
	next, resumed := w.subscribed()
	require.Equal(t, 1-first, next)
	require.Equal(t, uint64(5), resumed.GetResumeAfter().GetEvents().GetSequence())
	w.fanouts[next].publish(6, numbered(t, 6))
	require.Equal(t, idOf(t, numbered(t, 6)), c.event("s"))
}

// A node that does not reach the bus is left, make before break, also by those that it has not answered; it gets nothing
// new, and what it had once it reaches the bus again.
func TestANodeWithoutTheBusIsLeft(t *testing.T) {
	w := newWorld(t, fanouts(2))
	w.linked()
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	first, s := w.subscribed()
	far, near := w.fanouts[first], w.fanouts[1-first]
	far.publish(5, numbered(t, 5))
	require.Equal(t, idOf(t, numbered(t, 5)), c.event("s"))
	far.answer(func(*link, *fanoutv1.Subscribe) bool { return true }) // it answers nobody any more
	c.send(`["REQ","unanswered",{"limit":0}]`)
	take(t, far.subscribed)

	far.link(t).bus(true)
	resumed, asked := take(t, near.subscribed), take(t, near.subscribed)
	if resumed.GetResumeAfter() == nil {
		resumed, asked = asked, resumed
	}
	require.Equal(t, uint64(5), resumed.GetResumeAfter().GetEvents().GetSequence())
	require.Nil(t, asked.GetResumeAfter())
	c.eose("unanswered")
	left := []uint64{take(t, far.forgotten), take(t, far.forgotten)}
	require.Contains(t, left, s.GetHandle())
	far.link(t).deliver(6, numbered(t, 6), s.GetHandle()) // nobody's any more
	c.send(`["CLOSE","unanswered"]`)
	take(t, near.forgotten)
	near.publish(6, numbered(t, 6))
	require.Equal(t, idOf(t, numbered(t, 6)), c.event("s"))
	c.send(`["REQ","new",{"limit":0}]`)
	c.eose("new")
	take(t, near.subscribed)

	far.answer(nil)
	far.link(t).bus(false)
	require.Equal(t, uint64(6), take(t, far.subscribed).GetResumeAfter().GetEvents().GetSequence())
	take(t, far.subscribed)
	take(t, near.forgotten)
	take(t, near.forgotten)
	far.publish(7, numbered(t, 7))
	require.ElementsMatch(t, []string{"s", "new"}, []string{c.expect(wire.LabelEvent).SubID, c.expect(wire.LabelEvent).SubID})
}

// A node that has said that it lives and then says nothing is left, however well its connection looks, and serves nobody
// before it has said something again.
func TestASilentNodeIsLeft(t *testing.T) {
	w := newWorld(t, fanouts(2))
	w.linked()
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	first, _ := w.subscribed()
	frozen, other := w.fanouts[first], w.fanouts[1-first]
	frozen.publish(5, numbered(t, 5))
	require.Equal(t, idOf(t, numbered(t, 5)), c.event("s"))
	before := frozen.link(t)
	before.bus(false)
	before.hush()
	require.Equal(t, uint64(5), take(t, other.subscribed).GetResumeAfter().GetEvents().GetSequence())

	require.Eventually(t, func() bool {
		frozen.mu.Lock()
		defer frozen.mu.Unlock()
		return len(frozen.links) == 1 && frozen.links[0] != before
	}, patience, time.Millisecond, "the gateway tries again")
	c.send(`["REQ","new",{"limit":0}]`)
	c.eose("new")
	take(t, other.subscribed)
	require.Empty(t, frozen.subscribed)
	frozen.link(t).bus(false)
	take(t, frozen.subscribed)
	take(t, frozen.subscribed)
	take(t, other.forgotten)
	take(t, other.forgotten)
	frozen.publish(6, numbered(t, 6))
	require.ElementsMatch(t, []string{"s", "new"}, []string{c.expect(wire.LabelEvent).SubID, c.expect(wire.LabelEvent).SubID})
}

// When the last node that reaches the bus loses it as well everybody stays, and new subscriptions go where they would.
func TestNobodyMovesWhenTheBusIsAway(t *testing.T) {
	w := newWorld(t, fanouts(2))
	w.linked()
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	first, _ := w.subscribed()
	far, near := w.fanouts[first], w.fanouts[1-first]
	far.link(t).bus(true)
	take(t, near.subscribed)
	take(t, far.forgotten)

	near.link(t).bus(true)
	near.publish(5, numbered(t, 5)) // comes behind that, so the gateway knows
	require.Equal(t, idOf(t, numbered(t, 5)), c.event("s"))
	c.send(`["REQ","new",{"limit":0}]`)
	c.eose("new")
	require.Nil(t, take(t, far.subscribed).GetResumeAfter())
	far.publish(6, numbered(t, 6))
	require.Equal(t, idOf(t, numbered(t, 6)), c.event("new"))
	require.Empty(t, near.forgotten)
	require.Empty(t, far.subscribed)
}

func TestAnOverloadedOnlyNodeIsAskedAgain(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	for range 3 {
		s := take(t, w.fanouts[0].subscribed)
		w.fanouts[0].link(t).lost(fault.Overloaded, s.GetHandle())
	}
	take(t, w.fanouts[0].subscribed)
	w.fanouts[0].publish(6, numbered(t, 6))
	require.Equal(t, idOf(t, numbered(t, 6)), c.event("s"))
}

func TestAGapIsSaid(t *testing.T) {
	t.Run("positions that are gone", func(t *testing.T) {
		w := newWorld(t)
		c := w.login(openHost, "alice")
		c.send(`["REQ","s",{"limit":0}]`)
		c.eose("s")
		s := take(t, w.fanouts[0].subscribed)
		w.fanouts[0].link(t).lost(fault.NotFound, s.GetHandle())
		f := c.expect(wire.LabelClosed)
		require.Equal(t, "s", f.SubID)
		require.Equal(t, lagged, f.Message)
		w.fanouts[0].link(t).deliver(1, numbered(t, 1), s.GetHandle())
		c.send(`["REQ","s",{"limit":0}]`)
		c.eose("s")
	})
	t.Run("no node for too long", func(t *testing.T) {
		w := newWorld(t, with(func(c *gateway.Config) { c.LiveWait = 300 * time.Millisecond }))
		c := w.login(openHost, "alice")
		c.send(`["REQ","s",{"limit":0}]`)
		c.eose("s")
		w.stop("fanout-0")
		require.Equal(t, lagged, c.expect(wire.LabelClosed).Message)
	})
	t.Run("one topic of two", func(t *testing.T) {
		w := newWorld(t)
		c := w.login(openHost, "alice")
		c.send(`["REQ","s",{"#h":["a","b"],"limit":0}]`)
		c.eose("s")
		a, b := take(t, w.fanouts[0].subscribed), take(t, w.fanouts[0].subscribed)
		w.fanouts[0].link(t).lost(fault.NotFound, a.GetHandle())
		require.Equal(t, lagged, c.expect(wire.LabelClosed).Message)
		require.Equal(t, b.GetHandle(), take(t, w.fanouts[0].forgotten))
		c.quiet()
	})
}

func TestANodeThatRefusesIsBelieved(t *testing.T) {
	w := newWorld(t)
	w.fanouts[0].answer(func(l *link, s *fanoutv1.Subscribe) bool {
		l.lost(fault.Invalid, s.GetHandle())
		return true
	})
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	require.Contains(t, c.expect(wire.LabelClosed).Message, "invalid: ")
}

func TestAnOutageOfFanoutIsWaitedOut(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	take(t, w.fanouts[0].subscribed)
	w.fanouts[0].publish(3, numbered(t, 3))
	require.Equal(t, idOf(t, numbered(t, 3)), c.event("s"))
	w.stop("fanout-0")
	w.startFanout(0)
	require.Equal(t, uint64(3), take(t, w.fanouts[0].subscribed).GetResumeAfter().GetEvents().GetSequence())
	w.fanouts[0].publish(4, numbered(t, 4))
	require.Equal(t, idOf(t, numbered(t, 4)), c.event("s"))
}

// A node that joins gets the partitions that rank it first, make before break: the old node serves until
// the new one has answered, and nothing is lost or repeated in between.
func TestANodeThatJoinsTakesOver(t *testing.T) {
	const subs = 40
	w := newWorld(t, fanouts(2))
	w.linked()
	w.stop("fanout-1")
	c := w.login(openHost, "alice")
	for i := range subs {
		c.send(`["REQ","s` + strconv.Itoa(i) + `",{"#h":["ch` + strconv.Itoa(i) + `"],"limit":0}]`)
	}
	for range subs {
		c.expect(wire.LabelEOSE)
	}
	for range subs {
		take(t, w.fanouts[0].subscribed)
	}
	w.startFanout(1)
	moved := take(t, w.fanouts[1].subscribed)
	require.NotNil(t, moved.GetResumeAfter())
	old := take(t, w.fanouts[0].forgotten)
	require.NotEqual(t, old, moved.GetHandle())

	e := envelope(t, moved.GetChannel(), 5)
	w.fanouts[0].link(t).deliver(5, e, old) // too late, and the new node has it
	w.fanouts[1].publish(5, e)
	require.Equal(t, idOf(t, e), c.expect(wire.LabelEvent).EventID.String())

	e = envelope(t, moved.GetChannel(), 6, nostrtest.Content("later"))
	w.fanouts[1].publish(6, e)
	require.Equal(t, idOf(t, e), c.expect(wire.LabelEvent).EventID.String())
}

func TestTheLossOfAChannelIsSaid(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"#h":["hive"],"limit":0}]`)
	c.eose("s")
	i, s := w.subscribed()
	w.fanouts[i].link(t).lost(fault.Blocked, s.GetHandle())
	f := c.expect(wire.LabelClosed)
	require.Equal(t, "s", f.SubID)
	require.Equal(t, "restricted: channel access revoked", f.Message)
}
