package fanout

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/fanout/internal/access"
)

// hear makes a channel of version 8 that somebody reads.
func hear(c *cell, g *gateway) {
	for range 8 {
		c.directory.admit("hive", alice)
	}
	g.send(subscribe(1, "hive", chats, asKeys(alice)))
	g.attached(1)
	old := c.event("hive", versions(0, 8))
	c.publish(old)
	g.delivered(old, 1)
}

// requireNothingOfTheNext has a private channel under the id of the one that was deleted, and was lost. Whatever its
// version, who read the old one gets nothing of it.
func requireNothingOfTheNext(c *cell, g *gateway) {
	for _, version := range []uint64{1, 1 << 28} {
		c.publish(c.event("hive", versions(0, version), content("not for who was in the channel before")))
	}
	g.silent()
}

// The deletion is all that ever comes of a channel: search has to be asked again if it fails then.
func TestADeletedChannelIsLostWhenSearchIsBack(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	hear(c, g)
	c.directory.fail(errDown)
	asked := c.directory.count()
	c.publish(c.event("hive", versions(0, 9), ofKind(nostr.KindDeleteGroup)))
	require.Eventually(t, func() bool { return c.directory.count() > asked }, patience, time.Millisecond)
	c.directory.remove("hive", alice)
	c.directory.fail(nil)
	g.lost(fault.Blocked, 1)
	requireNothingOfTheNext(c, g)
}

func TestADeletedChannelIsLostByMoreKeysThanOneQuestionHolds(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	for range 8 {
		c.directory.admit("hive", alice)
	}
	var keys []nostr.PubKey
	for h := uint64(1); h <= access.MaxKeys+100; h++ {
		keys = append(keys, nostr.PubKey{byte(h), byte(h >> 8), 0x77})
		g.send(subscribe(h, "hive", chats, asKeys(keys[h-1])))
		g.attached(h)
	}
	c.publish(c.event("hive", versions(0, 8)))
	require.Len(t, g.next().GetDelivery().GetHandles(), len(keys))
	c.directory.remove("hive", keys...)
	c.publish(c.event("hive", versions(0, 9), ofKind(nostr.KindDeleteGroup)))
	for lost := 0; lost < len(keys); {
		item := g.next()
		require.NotNil(t, item.GetLost(), "unexpected %v", item)
		lost += len(item.GetLost().GetHandles())
	}
	requireNothingOfTheNext(c, g)
}

// While another question is under way a key comes that search was never asked about, and then the deletion.
func TestADeletedChannelIsLostWhileAKeyIsNew(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	hear(c, g)
	partition := c.event("hive").envelope.GetHeader().GetPartition()
	other := "other"
	for i := 0; c.event(other).envelope.GetHeader().GetPartition() != partition; i++ {
		other = "other" + strconv.Itoa(i)
	}
	open := c.directory.shut()
	g.send(subscribe(2, other, chats, asKeys(bob)))
	g.attached(2)
	require.Eventually(t, func() bool { return c.directory.waiting() == 1 }, patience, time.Millisecond)
	g.send(subscribe(3, "hive", nostr.Filter{Kinds: []nostr.Kind{nostr.KindText}}, asKeys(bob)))
	g.attached(3)
	last := c.event("hive", versions(0, 8))
	c.publish(c.event("hive", versions(0, 9), ofKind(nostr.KindDeleteGroup)), last)
	g.delivered(last, 1)
	c.directory.remove("hive", alice, bob)
	open()
	g.lost(fault.Blocked, 1)
	requireNothingOfTheNext(c, g)
}
