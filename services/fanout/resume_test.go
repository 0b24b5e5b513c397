package fanout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

// cursorAfter is where somebody stands who has seen an event and no ephemeral one.
func (c *cell) cursorAfter(e *event) position.Cursor {
	c.t.Helper()
	state, err := c.bus.StreamState(c.t.Context(), position.Ephemeral.Name())
	require.NoError(c.t, err)
	return position.Cursor{position.Events: e.at, position.Ephemeral: position.After(state.Epoch, state.LastSeq)}
}

func TestResumeOnANodeThatDoesNotConsumeYet(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	seen, missed, also, other := c.event("hive"), c.event("hive"), c.event("hive"), c.event("hive", ofKind(nostr.KindReaction))
	c.publish(seen, missed)
	c.publish(other, also)
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats, resume(c.cursorAfter(seen))))
	require.Equal(t, seen.at, g.attached(1)[position.Events])
	require.Equal(t, missed.at, position.FromProto(g.delivered(missed, 1).GetPosition()))
	g.delivered(also, 1)
	live := c.event("hive")
	c.publish(live)
	g.delivered(live, 1)
	g.silent()
}

func TestResumeBehindOthers(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	n := c.node()
	others, g := n.attach(), n.attach()
	others.send(subscribe(1, "hive", chats))
	others.attached(1)
	var events []*event
	for range 10 {
		e := c.event("hive")
		c.publish(e)
		others.delivered(e, 1)
		events = append(events, e)
	}
	// Several handles of one gateway, from different places, on different topics of the partition.
	g.send(
		subscribe(1, "hive", chats, resume(c.cursorAfter(events[2]))),
		subscribe(2, "hive", chats, resume(c.cursorAfter(events[5]))),
		subscribe(3, "hive", reactions, resume(c.cursorAfter(events[0]))),
		subscribe(4, "hive", chats, resume(c.cursorAfter(events[9]))),
		subscribe(5, "hive", chats),
	)
	for range 5 {
		require.NotNil(t, g.next().GetAttached())
	}
	for i := 3; i < 10; i++ {
		if i > 5 {
			g.delivered(events[i], 1, 2)
		} else {
			g.delivered(events[i], 1)
		}
	}
	live := c.event("hive")
	c.publish(live)
	others.delivered(live, 1)
	// In one message or in two: those who are just being brought up to date get it after that.
	var handles []uint64
	for len(handles) < 4 {
		d := g.next().GetDelivery()
		require.Equal(t, live.envelope.GetHeader().GetId(), d.GetEnvelope().GetHeader().GetId())
		handles = append(handles, d.GetHandles()...)
	}
	require.ElementsMatch(t, []uint64{1, 2, 4, 5}, handles)
	g.silent()
	others.silent()
}

func TestWatermarksWaitForTheReplay(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	n := c.node(func(cfg *Config, _ *Deps) { cfg.Replays, cfg.Watermark = 1, time.Millisecond })
	busy := n.attach()
	busy.send(subscribe(1, "hive", chats))
	busy.attached(1)
	first := c.event("hive")
	c.publish(first)
	for range 200 {
		c.publish(c.event("hive"))
	}
	g := n.attach()
	g.send(subscribe(1, "hive", chats, resume(c.cursorAfter(first))))
	g.attached(1)
	got := 0
	for {
		item := <-g.items
		if item.GetWatermark() != nil {
			require.Equal(t, 200, got)
			return
		}
		require.NotNil(t, item.GetDelivery())
		got++
	}
}

func TestResumeAheadOfTheNode(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(9, "hive", chats))
	at := g.attached(9)
	// Another node has delivered two messages that this one has yet to get.
	ahead := at
	ahead[position.Events].Sequence += 2
	g.send(subscribe(1, "hive", chats, resume(ahead)))
	require.Equal(t, ahead, g.attached(1))
	var events []*event
	for range 3 {
		e := c.event("hive")
		c.publish(e)
		events = append(events, e)
	}
	g.delivered(events[0], 9)
	g.delivered(events[1], 9)
	g.delivered(events[2], 1, 9)
}

func TestResumeInTheMiddleOfABatch(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	n := c.node()
	first, second, third := c.event("hive"), c.event("hive"), c.event("hive")
	c.publish(first, second, third)
	g := n.attach()
	g.send(subscribe(1, "hive", chats, resume(c.cursorAfter(second))))
	g.attached(1)
	g.delivered(third, 1)
	g.silent()
}

func TestResumeOfEphemeralEvents(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	base := c.event("hive")
	c.publish(base)
	at := c.cursorAfter(base)
	missed := c.event("hive", ofKind(20001))
	c.publish(missed)
	n := c.node()
	g := n.attach()
	g.send(subscribe(1, "hive", typing, resume(at)))
	g.attached(1)
	g.delivered(missed, 1)

	// A position of an earlier incarnation: everything that the stream holds now is new.
	at[position.Ephemeral].Epoch--
	at[position.Ephemeral].Sequence = 1 << 40
	g.send(subscribe(2, "hive", typing, resume(at)))
	g.attached(2)
	g.delivered(missed, 2)
	g.silent()
}

// A restart of NATS takes the ephemeral stream with it. That is no reason to give up those who are being
// brought up to date: nothing of the committed events is missing.
func TestAReplayOutlivesTheEphemeralStream(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	gated := &gatedBus{Bus: c.bus, gate: make(chan struct{})}
	n := c.node(func(_ *Config, d *Deps) { d.Bus = gated })
	others, g := n.attach(), n.attach()
	others.send(subscribe(9, "hive", nostr.Filter{}))
	others.attached(9)
	first, missed, typed := c.event("hive"), c.event("hive"), c.event("hive", ofKind(20001))
	c.publish(first)
	at := c.cursorAfter(first)
	others.delivered(first, 9)
	c.publish(missed)
	others.delivered(missed, 9)
	c.publish(typed)
	others.delivered(typed, 9)

	g.send(subscribe(1, "hive", nostr.Filter{}, resume(at)))
	g.attached(1)
	<-gated.replaying()
	c.server.Restart(t)
	c.reconnect()
	close(gated.gate)
	g.delivered(missed, 1)

	live, again := c.event("hive"), c.event("hive", ofKind(20001))
	c.publish(live)
	g.delivered(live, 1)
	c.publish(again)
	g.delivered(again, 1)
	g.silent()
}

func TestResumeOfWhatIsGone(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	require.NoError(t, c.bus.EnsureStreams(t.Context(), bus.StreamOptions{EventsMaxBytes: 64 << 10}))
	first := c.event("hive")
	c.publish(first)
	n := c.node()
	g := n.attach()
	for range 8 {
		c.publish(c.event("hive", content(string(make([]byte, 4<<10)))))
	}
	g.send(subscribe(1, "hive", chats, resume(c.cursorAfter(first))))
	g.attached(1)
	g.lost(fault.NotFound, 1)

	anew := c.cursorAfter(first)
	anew[position.Events].Epoch--
	g.send(subscribe(2, "hive", chats, resume(anew)))
	g.lost(fault.NotFound, 2)
	anew[position.Events].Epoch += 2
	g.send(subscribe(3, "hive", chats, resume(anew)))
	g.lost(fault.Overloaded, 3)

	g.send(subscribe(4, "hive", chats))
	g.attached(4)
	e := c.event("hive")
	c.publish(e)
	g.delivered(e, 4)
}

func TestTooMuchDuringAReplayIsSaid(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	slow := &gatedBus{Bus: c.bus, gate: make(chan struct{})}
	n := c.node(func(cfg *Config, d *Deps) { cfg.ReplayItems = 3; d.Bus = slow })
	others := n.attach()
	others.send(subscribe(9, "hive", chats))
	others.attached(9)
	first, missed := c.event("hive"), c.event("hive")
	c.publish(first)
	c.publish(missed)
	others.delivered(first, 9)
	others.delivered(missed, 9)

	g := n.attach()
	g.send(subscribe(1, "hive", chats, resume(c.cursorAfter(first))), subscribe(2, "hive", reactions, resume(c.cursorAfter(first))))
	g.attached(1)
	g.attached(2)
	<-slow.replaying()
	var live []*event
	for range 4 {
		e := c.event("hive")
		c.publish(e)
		others.delivered(e, 9)
		live = append(live, e)
	}
	g.lost(fault.Overloaded, 1)
	close(slow.gate)
	// The gateway comes again from what it knows, and misses nothing.
	g.send(subscribe(3, "hive", chats, resume(c.cursorAfter(first))))
	g.attached(3)
	g.delivered(missed, 3)
	for _, e := range live {
		g.delivered(e, 3)
	}
	reaction := c.event("hive", ofKind(nostr.KindReaction))
	c.publish(reaction)
	g.delivered(reaction, 2)
}
