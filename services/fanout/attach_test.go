package fanout

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/placement"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

var (
	chats     = nostr.Filter{Kinds: []nostr.Kind{nostr.KindChat}}
	reactions = nostr.Filter{Kinds: []nostr.Kind{nostr.KindReaction}}
	typing    = nostr.Filter{Kinds: []nostr.Kind{20001}}
)

func TestDeliversWhatIsPublishedAfterAttached(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.publish(c.event("hive"))
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats), subscribe(2, "hive", nostr.Filter{}), subscribe(3, "hive", reactions), subscribe(4, "wax", chats))
	froms := map[uint64]position.Cursor{}
	for range 4 {
		item := g.next()
		require.NotNil(t, item.GetAttached())
		froms[item.GetAttached().GetHandle()] = position.CursorFromProto(item.GetAttached().GetFrom(), position.Cursor{})
	}
	require.Equal(t, position.After(c.epoch(position.Events), 1), froms[1][position.Events])

	chat, reaction := c.event("hive"), c.event("hive", ofKind(nostr.KindReaction))
	c.publish(chat, reaction)
	d := g.delivered(chat, 1, 2)
	require.Equal(t, chat.at, position.FromProto(d.GetPosition()))
	require.Equal(t, chat.envelope.GetHeader().GetPartition(), d.GetPartition())
	g.delivered(reaction, 2, 3)
	typed := c.event("hive", ofKind(20001))
	c.publish(typed)
	require.Equal(t, position.Ephemeral.Proto(), g.delivered(typed, 2).GetStream())
	g.silent()
}

// An event that belongs to a channel by its target has no h tag, and is asked for with #h nevertheless. A channel's
// state is asked for so only if it has one.
func TestEventsOfAChannelNeedNoGroupTag(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	tag := func(values ...string) nostr.Filter {
		return nostr.Filter{Tags: []nostr.TagCondition{{Name: 'h', Values: values}}}
	}
	g.send(subscribe(1, "hive", tag("hive")))
	g.attached(1)
	g.send(subscribe(2, "hive", tag("wax")))
	g.attached(2)
	tagged := c.event("hive", func(e *event) { e.Tags = nostr.Tags{{"h", "hive"}} })
	plain, state := c.event("hive", ofKind(nostr.KindReaction)), c.event("hive", ofKind(nostr.KindGroupMetadata))
	c.publish(tagged, plain, state)
	g.delivered(tagged, 1)
	g.delivered(plain, 1)
	g.silent()
}

func TestTopicsAreApart(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(1, "", nostr.Filter{}))
	g.attached(1)
	g.send(subscribe(2, "hive", nostr.Filter{}, inCommunity(2)))
	g.attached(2)
	g.send(subscribe(3, "hive", nostr.Filter{}))
	g.attached(3)
	global, channel, other := c.event(""), c.event("hive"), c.event("hive", ofCommunity(2))
	for _, tt := range []struct {
		e      *event
		handle uint64
	}{{global, 1}, {other, 2}, {channel, 3}} {
		c.publish(tt.e)
		g.delivered(tt.e, tt.handle)
	}
	g.silent()
}

func TestOneDeliveryPerGateway(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	n := c.node()
	g1, g2 := n.attach(), n.attach()
	g1.send(subscribe(1, "hive", chats), subscribe(2, "hive", chats))
	g1.attached(1)
	g1.attached(2)
	g2.send(subscribe(1, "hive", chats))
	g2.attached(1)
	e := c.event("hive")
	c.publish(e)
	g1.delivered(e, 1, 2)
	g2.delivered(e, 1)
	g1.silent()
}

func TestReplacedAndForgottenHandles(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats), subscribe(2, "hive", chats))
	g.attached(1)
	g.attached(2)
	g.send(subscribe(1, "hive", reactions), unsubscribe(2), unsubscribe(77))
	g.attached(1)
	chat, reaction := c.event("hive"), c.event("hive", ofKind(nostr.KindReaction))
	c.publish(chat, reaction)
	g.delivered(reaction, 1)
	g.send(subscribe(1, "wax", chats)) // most likely another partition
	g.attached(1)
	c.publish(c.event("hive", ofKind(nostr.KindReaction)))
	wax := c.event("wax")
	c.publish(wax)
	g.delivered(wax, 1)
}

func TestWhatWasPublishedTwiceIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	first, second := c.event("hive"), c.event("hive")
	c.publish(first)
	c.publish(first, second)
	g.delivered(first, 1)
	g.delivered(second, 1)
	g.silent()
}

// A reminder comes when it is written and when it is due, each once, also if there is hardly any time between.
func TestAReminderIsDeliveredAgainWhenItIsDue(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(1, "", nostr.Filter{}))
	g.attached(1)
	written := c.event("")
	due := &event{Event: written.Event, envelope: proto.CloneOf(written.envelope)}
	due.envelope.Header.DueAt = written.CreatedAt + 1
	c.publish(written)
	c.publish(due, written)
	c.publish(due)
	require.Zero(t, g.delivered(written, 1).GetEnvelope().GetHeader().GetDueAt())
	require.NotZero(t, g.delivered(due, 1).GetEnvelope().GetHeader().GetDueAt())
	g.silent()
}

// A client may give one event to several communities. That two of them share a partition is no reason to
// take the second for a repeat.
func TestOneEventInTwoCommunities(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	neighbour := int64(community + 1)
	for placement.Partition(neighbour, "hive", testPartitions) != placement.Partition(community, "hive", testPartitions) {
		neighbour++
	}
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats), subscribe(2, "hive", chats, inCommunity(neighbour)))
	g.attached(1)
	g.attached(2)
	here := c.event("hive")
	there := c.event("hive", ofCommunity(neighbour), func(e *event) { e.ID = here.ID })
	c.publish(here)
	c.publish(there, here)
	g.delivered(here, 1)
	g.delivered(there, 2)
	g.silent()
}

func TestUnreadableEnvelopesDoNotStopAPartition(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(1, "hive", nostr.Filter{}))
	g.attached(1)
	broken, nameless, good := c.event("hive"), c.event("hive"), c.event("hive")
	broken.envelope.Raw = []byte("{")
	nameless.envelope.Header.Id = nil
	_, err := c.bus.Publish(t.Context(), position.Events.Subject(good.envelope.GetHeader().GetPartition()), "", []byte{0xff})
	require.NoError(t, err)
	c.publish(broken, nameless, good)
	g.delivered(good, 1)
}

func TestWatermarksFollowThePosition(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(1, "hive", reactions))
	g.attached(1)
	e := c.event("hive")
	c.publish(e) // matches nobody
	want := position.After(e.at.Epoch, e.at.Sequence)
	for {
		item := <-g.items
		require.NotNil(t, item.GetWatermark())
		require.Equal(t, e.envelope.GetHeader().GetPartition(), item.GetWatermark().GetPartition())
		if position.CursorFromProto(item.GetWatermark().GetCursor(), position.Cursor{})[position.Events] == want {
			return
		}
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	bad := map[uint64]func(*fanoutv1.Subscribe){
		1: func(s *fanoutv1.Subscribe) { s.Community = 0 },
		2: func(s *fanoutv1.Subscribe) { s.Principal = nil },
		3: func(s *fanoutv1.Subscribe) { s.Principal.Pubkeys[0] = []byte("short") },
		4: func(s *fanoutv1.Subscribe) { s.Filters[0].Kinds = []uint32{1 << 20} },
		5: func(s *fanoutv1.Subscribe) { s.Channel = string(make([]byte, maxChannel+1)) },
		6: func(s *fanoutv1.Subscribe) { s.Filters[0].Kinds = make([]uint32, maxValues+1) },
	}
	for handle, spoil := range bad {
		g.send(subscribe(handle, "hive", chats, spoil))
		g.lost(fault.Invalid, handle)
	}
	g.send(subscribe(9, "hive", chats))
	g.attached(9)

	g.send(make([]*fanoutv1.Command, maxCommands+1)...)
	require.Equal(t, fault.Invalid, fault.ReasonOf(g.ended()))
}

func TestTooManyHandles(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node(func(cfg *Config, _ *Deps) { cfg.MaxHandles = 1 }).attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	g.send(subscribe(2, "hive", chats))
	g.lost(fault.Overloaded, 2)
}
