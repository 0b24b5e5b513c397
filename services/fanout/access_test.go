package fanout

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

var everything = nostr.Filter{}

func TestRevocationIsExact(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats, asKeys(alice)), subscribe(2, "hive", chats, asKeys(bob)), subscribe(3, "hive", chats, asKeys(bob, alice)))
	for h := uint64(1); h <= 3; h++ {
		g.attached(h)
	}
	before := c.event("hive")
	c.publish(before)
	g.delivered(before, 1, 2, 3)
	asked := c.directory.count()
	again := c.event("hive")
	c.publish(again)
	g.delivered(again, 1, 2, 3)
	require.Equal(t, asked, c.directory.count(), "nothing has changed: nobody is asked")

	v := c.directory.revoke("hive", bob)
	after := c.event("hive", versions(0, v))
	c.publish(after)
	g.lost(fault.Blocked, 2)
	g.delivered(after, 1, 3)
	g.send(subscribe(4, "hive", chats, asKeys(bob)))
	g.attached(4)
	v = c.directory.admit("hive", bob)
	back := c.event("hive", versions(0, v))
	c.publish(back)
	g.delivered(back, 1, 3, 4)
	g.silent()
}

// Whoever loses a channel is told, also if nothing comes any more that it has asked for. Whoever never had it gets
// silence, as for a channel that does not exist.
func TestTheLossOfAChannelIsTold(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	carol := nostr.PubKey{0xca}
	c.directory.revoke("hive", carol)
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats, asKeys(alice)), subscribe(2, "hive", nostr.Filter{Kinds: []nostr.Kind{1}}, asKeys(bob)), subscribe(3, "hive", chats, asKeys(carol)))
	for h := uint64(1); h <= 3; h++ {
		g.attached(h)
	}
	before := c.event("hive", versions(0, 1))
	c.publish(before)
	g.delivered(before, 1)
	v := c.directory.revoke("hive", bob)
	after := c.event("hive", versions(0, v))
	c.publish(after)
	g.lost(fault.Blocked, 2)
	g.delivered(after, 1)
	g.silent()
}

// Whoever may not use the community any more is told so.
func TestARemovedMemberIsTold(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(1, "", chats, asKeys(alice)), subscribe(2, "", chats, asKeys(bob)), subscribe(3, "", chats, asKeys(bob, alice)))
	for h := uint64(1); h <= 3; h++ {
		g.attached(h)
	}
	v := c.directory.revoke("", bob)
	after := c.event("", versions(v, 0))
	c.publish(after)
	g.lost(fault.Restricted, 2)
	g.delivered(after, 1, 3)
	again := c.event("", versions(v, 0))
	c.publish(again)
	g.delivered(again, 1, 3)
	g.silent()
}

func TestNobodyKnownToBeAllowedGetsNothing(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.directory.revoke("hidden", alice)
	g := c.node().attach()
	g.send(subscribe(1, "hidden", chats))
	g.attached(1)
	c.publish(c.event("hidden", versions(0, 1)))
	g.silent()
	v := c.directory.admit("hidden", alice)
	e := c.event("hidden", versions(0, v))
	c.publish(e)
	g.delivered(e, 1)
}

func TestAnUndecidedPartitionIsHeldAndOthersGoOn(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	hive, wax := c.event("hive"), c.event(c.elsewhere("hive"))
	n := c.node(func(cfg *Config, _ *Deps) { cfg.AccessTimeout = 10 * time.Millisecond })
	g := n.attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	g.send(subscribe(2, wax.envelope.GetHeader().GetChannel(), chats))
	g.attached(2)
	c.publish(hive)
	g.delivered(hive, 1)
	c.publish(wax)
	g.delivered(wax, 2)

	c.directory.fail(errDown)
	v := c.directory.admit("hive", alice)
	held := c.event("hive", versions(0, v))
	asked := c.directory.count()
	c.publish(held, c.event("hive"))
	wax = c.event(wax.envelope.GetHeader().GetChannel())
	c.publish(wax)
	g.delivered(wax, 2)
	// Commands are served during the hold: what comes now starts behind the envelope that is held.
	require.Eventually(t, func() bool { return c.directory.count() > asked }, patience, time.Millisecond, "no other sign")
	g.send(subscribe(3, "hive", chats))
	require.False(t, held.at.IsAfter(g.attached(3)[0]))
	g.silent()
	c.directory.fail(nil)
	g.delivered(held, 1)
	require.ElementsMatch(t, []uint64{1, 3}, g.next().GetDelivery().GetHandles())
}

func TestTheHoldEndsWithLost(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	n := c.node(func(cfg *Config, _ *Deps) {
		cfg.AccessTimeout, cfg.AccessHold = 10*time.Millisecond, 100*time.Millisecond
	})
	g := n.attach()
	g.send(subscribe(1, "hive", chats, asKeys(alice)))
	g.attached(1)
	first := c.event("hive")
	c.publish(first)
	g.delivered(first, 1)
	c.directory.fail(errDown)
	g.send(subscribe(2, "hive", chats, asKeys(bob)))
	g.attached(2)
	// alice is known to be allowed under these versions, bob is not.
	e := c.event("hive")
	c.publish(e)
	g.lost(fault.Overloaded, 2)
	g.delivered(e, 1)
}

func TestPrivateKindsReachTheirParties(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	carol := nostr.PubKey{0xca}
	g.send(subscribe(1, "", everything, asKeys(alice)), subscribe(2, "", everything, asKeys(bob)), subscribe(3, "", everything, asKeys(carol)))
	for h := uint64(1); h <= 3; h++ {
		g.attached(h)
	}
	wrap := c.event("", ofKind(nostr.KindGiftWrap), from(nostr.PubKey{9}), tagged("p", alice.String()))
	message := c.event("", ofKind(4), from(bob), tagged("p", alice.String()))
	note := c.event("", ofKind(nostr.KindText))
	c.publish(wrap, message, note)
	g.delivered(wrap, 1)
	g.delivered(message, 1, 2)
	g.delivered(note, 1, 2, 3)
}

// What a kind says of its readers holds live as it does for stored events (search).
func TestKindsThatAreNotForEverybody(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	carol := nostr.PubKey{0xca}
	g.send(subscribe(1, "", everything, asKeys(alice)), subscribe(2, "", everything, asKeys(bob)), subscribe(3, "", everything, asKeys(carol)))
	for h := uint64(1); h <= 3; h++ {
		g.attached(h)
	}
	toBob := tagged("p", bob.String())
	for _, tt := range []struct {
		what string
		e    *event
		to   []uint64
	}{
		{"a reminder", c.event("", ofKind(nostr.KindReminder), from(alice), toBob), []uint64{1}},
		{"a push lease", c.event("", ofKind(nostr.KindPushLease), from(alice)), []uint64{1}},
		{"a persona", c.event("", ofKind(nostr.KindPersona), from(alice)), []uint64{1}},
		{"a shared persona", c.event("", ofKind(nostr.KindPersona), from(alice), tagged("shared", "true")), []uint64{1, 2, 3}},
		{"a persona that looks shared", c.event("", ofKind(nostr.KindTeamCatalog), from(alice), tagged("shared", "yes")), []uint64{1}},
		{"a frame of an agent", c.event("", ofKind(nostr.KindAgentFrame), from(alice), toBob), []uint64{1, 2}},
		{"a notice", c.event("", ofKind(nostr.KindMemberAdded), from(nostr.PubKey{9}), toBob), []uint64{2}},
		{"an agent's memory", c.event("", ofKind(nostr.KindAgentMemory), from(alice), toBob), []uint64{1, 2}},
		{"a metric", c.event("", ofKind(nostr.KindTurnMetric), from(alice), toBob), []uint64{2}},
		{"hidden conversations", c.event("", ofKind(nostr.KindHiddenConversations), from(nostr.PubKey{9}), toBob), []uint64{2}},
	} {
		c.publish(tt.e)
		g.delivered(tt.e, tt.to...)
	}
	c.publish(c.event("", ofKind(nostr.KindTurnMetric), from(alice), toBob, tagged("p", carol.String())))
	g.silent()
}

// Who acts with several keys gets a private event by a key that is a party and may read by itself: one that
// was removed brings nothing, whatever the others may.
func TestPrivateKindsNeedAPartyThatMayRead(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	carol := nostr.PubKey{0xca}
	g.send(subscribe(1, "", everything, asKeys(alice, carol)), subscribe(2, "", everything, asKeys(bob, carol)))
	g.attached(1)
	g.attached(2)
	v := c.directory.revoke("", bob)
	wrap := c.event("", ofKind(nostr.KindGiftWrap), from(nostr.PubKey{9}), tagged("p", alice.String()), tagged("p", bob.String()), versions(v, 0))
	live := c.event("", ofKind(nostr.KindLiveGiftWrap), from(nostr.PubKey{9}), tagged("p", bob.String()), versions(v, 0))
	message := c.event("", ofKind(4), from(bob), tagged("p", alice.String()), versions(v, 0))
	report := c.event("", ofKind(1984), from(bob), versions(v, 0))
	note := c.event("", ofKind(nostr.KindText), versions(v, 0))
	c.publish(wrap, live, message, report, note)
	g.delivered(wrap, 1)
	g.delivered(message, 1)
	g.delivered(note, 1, 2)
	g.silent()
}

// Reports go to their author and to who moderates the community, as far as they may read the topic; a role
// is taken and given like access.
func TestReportsReachModerators(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	carol := nostr.PubKey{0xca}
	c.directory.promote(carol)
	g.send(subscribe(1, "hive", everything, asKeys(alice)), subscribe(2, "hive", everything, asKeys(bob)),
		subscribe(3, "hive", everything, asKeys(carol)), subscribe(4, "hive", everything, asKeys(bob, carol)))
	for h := uint64(1); h <= 4; h++ {
		g.attached(h)
	}
	report := func(v uint64) *event { return c.event("hive", ofKind(1984), from(bob), versions(v, 0)) }
	first := report(1)
	chat := c.event("hive", from(bob))
	c.publish(first, chat)
	g.delivered(first, 2, 3, 4)
	g.delivered(chat, 1, 2, 3, 4)

	c.directory.promote(alice)
	second := report(c.directory.demote(carol))
	c.publish(second)
	g.delivered(second, 1, 2, 4)
	third := c.event("hive", ofKind(1984), from(nostr.PubKey{9}), versions(0, c.directory.revoke("hive", alice)))
	c.publish(third)
	g.lost(fault.Blocked, 1)
	g.silent()
}

func TestChannelStateReachesGlobalSubscriptionsUnderTheChannelsRule(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	c.directory.revoke("hive", bob)
	g.send(subscribe(1, "", everything, asKeys(alice)), subscribe(2, "", everything, asKeys(bob)))
	g.attached(1)
	g.attached(2)
	g.send(subscribe(3, "hive", everything, asKeys(alice)))
	g.attached(3)
	state := c.event("hive", ofKind(nostr.KindGroupMetadata), tagged("d", "hive"), versions(0, 1))
	global := c.event("").envelope.GetHeader().GetPartition()
	if p := state.envelope.GetHeader().GetPartition(); p != global {
		c.publish(state)
		g.delivered(state, 3)
		c.publishAt(global, state)
		g.delivered(state, 1)
	} else {
		c.publish(state)
		g.delivered(state, 1, 3)
	}
	// A copy that does not name its channel is nobody's but those who may read it.
	bare := c.event("", ofKind(nostr.KindGroupMembers), tagged("d", "hive"))
	c.publish(bare)
	g.delivered(bare, 1)
	plain := c.event("hive")
	c.publishAt(global, plain)
	c.publish(c.event("hive"))
	require.Equal(t, []uint64{3}, g.next().GetDelivery().GetHandles(), "other kinds stay in their channel")
}

func TestAnswersFromAChannelMadeAnewDecideOnce(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	// The directory is at version 0: the channel that the event was committed to is gone.
	e := c.event("hive", versions(0, 7))
	c.publish(e)
	g.delivered(e, 1)
	v := c.directory.revoke("hive", alice)
	require.Less(t, v, uint64(7))
	c.publish(c.event("hive", versions(0, v)))
	g.lost(fault.Blocked, 1)
	g.silent()
}

func TestKeysAreAskedAboutAhead(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	g := c.node().attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	require.Eventually(t, func() bool { return c.directory.count() == 1 }, patience, time.Millisecond, "no other sign")
	c.directory.fail(errDown)
	e := c.event("hive")
	c.publish(e)
	g.delivered(e, 1)
}

// elsewhere returns a channel of another partition.
func (c *cell) elsewhere(channel string) string {
	c.t.Helper()
	for _, name := range []string{"wax", "comb", "drone", "queen", "nectar", "pollen"} {
		if c.event(name).envelope.GetHeader().GetPartition() != c.event(channel).envelope.GetHeader().GetPartition() {
			return name
		}
	}
	require.FailNow(c.t, "all channels in one partition")
	return ""
}

func TestSampledEnvelopesAreTraced(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	g := c.node(func(_ *Config, d *Deps) { d.Tracer = provider.Tracer("fanout") }).attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	e, plain := c.event("hive", traced(parent)), c.event("hive")
	c.publish(e, plain)
	g.delivered(e, 1)
	g.delivered(plain, 1)
	ended := spans.Ended()
	require.Len(t, ended, 1)
	require.Equal(t, "fanout.match", ended[0].Name())
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", ended[0].SpanContext().TraceID().String())
	require.Equal(t, "b7ad6b7169203331", ended[0].Parent().SpanID().String())
	require.True(t, slices.ContainsFunc(ended[0].Attributes(), func(a attribute.KeyValue) bool {
		return a.Key == "recipients" && a.Value.AsInt64() == 1
	}))
}
