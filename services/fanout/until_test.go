package fanout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// What ends at a time takes no new version with it: the event that was judged then, or later, is asked about.
func TestAccessThatEndsAtATime(t *testing.T) {
	t.Parallel()
	for _, channel := range []string{"hive", ""} {
		t.Run("in "+channel, func(t *testing.T) {
			t.Parallel()
			c := newCell(t)
			c.directory.turnAt(channel, alice, turn{at: 1000, allowed: true})
			g := c.node().attach()
			g.send(subscribe(1, channel, chats, asKeys(alice)), subscribe(2, channel, chats, asKeys(bob)))
			g.attached(1)
			g.attached(2)
			first := c.event(channel, judged(1))
			c.publish(first)
			g.delivered(first, 1, 2)
			asked := c.directory.count()
			last, after := c.event(channel, judged(999)), c.event(channel, judged(1000))
			c.publish(last)
			g.delivered(last, 1, 2)
			require.Equal(t, asked, c.directory.count(), "nothing has ended: nobody is asked")
			c.publish(after)
			g.lost(map[string]fault.Reason{"hive": fault.Blocked, "": fault.Restricted}[channel], 1)
			g.delivered(after, 2)
			again := c.event(channel, judged(1001))
			c.publish(again)
			g.delivered(again, 2)
			require.Equal(t, asked+1, c.directory.count())
		})
	}
}

// While nobody can be asked, what has ended is not taken for what still holds.
func TestAccessThatEndsWhileNobodyCanBeAsked(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.directory.turnAt("hive", alice, turn{at: 1000, allowed: true})
	g := c.node(func(cfg *Config, _ *Deps) {
		cfg.AccessTimeout, cfg.AccessHold = 10*time.Millisecond, 100*time.Millisecond
	}).attach()
	g.send(subscribe(1, "hive", chats, asKeys(alice)), subscribe(2, "hive", chats, asKeys(bob)))
	g.attached(1)
	g.attached(2)
	first := c.event("hive", judged(1))
	c.publish(first)
	g.delivered(first, 1, 2)
	c.directory.fail(errDown)
	last, after := c.event("hive", judged(999)), c.event("hive", judged(1000))
	c.publish(last, after)
	g.delivered(last, 1, 2)
	g.lost(fault.Overloaded, 1)
	g.delivered(after, 2)
	g.silent()
}

// A ban that ends gives back at once what comes from then on: nothing is missing.
func TestARefusalThatEndsAtATime(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.directory.turnAt("hive", alice, turn{at: 1000})
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats, asKeys(alice)), subscribe(2, "hive", chats, asKeys(bob)))
	g.attached(1)
	g.attached(2)
	before, after := c.event("hive", judged(999)), c.event("hive", judged(1000))
	c.publish(before, after)
	g.delivered(before, 2)
	g.delivered(after, 1, 2)
}

// A channel that was deleted has no version, so what is said of it holds for one event; and not for one that came later.
func TestWhatEndsInAChannelThatIsGone(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.directory.turnAt("hive", alice, turn{at: 1000, allowed: true})
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats, asKeys(alice)))
	g.attached(1)
	before, after := c.event("hive", versions(0, 7), judged(999)), c.event("hive", versions(0, 7), judged(1000))
	c.publish(before)
	g.delivered(before, 1)
	c.publish(after)
	g.lost(fault.Blocked, 1)
	g.silent()
}

// The state of a channel goes by the same rule to subscriptions that are not about one.
func TestAChannelsStateAfterTheEndOfAccess(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.directory.turnAt("hive", alice, turn{at: 1000, allowed: true})
	g := c.node().attach()
	g.send(subscribe(1, "", everything, asKeys(alice)), subscribe(2, "", everything, asKeys(bob)))
	g.attached(1)
	g.attached(2)
	state := func(at int64) *event {
		return c.event("hive", ofKind(nostr.KindGroupMetadata), tagged("d", "hive"), judged(at))
	}
	global := c.event("").envelope.GetHeader().GetPartition()
	before, after := state(999), state(1000)
	c.publishAt(global, before, after)
	g.delivered(before, 1, 2)
	g.delivered(after, 2)
}
