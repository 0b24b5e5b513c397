package cluster_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

func connectAndAuthenticate(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	url := c.Gateway(0)
	astray := cluster.Connect(t, url, who(t, "alice"))
	require.False(t, astray.Authenticate("wss://elsewhere.example").OK)

	alice := cluster.Connect(t, url, who(t, "alice"))
	require.Equal(t, cluster.Verdict{OK: true}, alice.Authenticate(url))
	require.Empty(t, alice.Query(by(who(t, "alice"))))
	alice.Leave()
}

func unauthenticated(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	stranger := cluster.Connect(t, c.Gateway(0), who(t, "alice"))
	event := stranger.Event(nostrtest.Content("hello"))
	verdict := stranger.Publish(event)
	require.False(t, verdict.OK)
	require.Regexp(t, "^auth-required: ", verdict.Message)
	require.Regexp(t, "^auth-required: ", stranger.Refused(by(who(t, "alice"))))

	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	require.Empty(t, alice.Query(nostr.Filter{IDs: []nostr.ID{event.ID}}), "it was stored all the same")
	require.True(t, alice.Publish(event).OK, "it was refused for another reason")
}

func sendAndReceive(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	s := h.owner.Subscribe(h.chat())
	bob := h.dial("bob") // no member
	message := h.must(bob, nostr.KindChat, nostrtest.Content("hello"))
	require.Equal(t, message, s.Next())
}

func largeEvent(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	s := h.dial("bob").Subscribe(h.chat())
	large := h.must(h.owner, nostr.KindChat, nostrtest.Content(strings.Repeat("large ", 70_000/6)))
	require.Equal(t, large, s.Next())
	after := h.must(h.owner, nostr.KindChat, nostrtest.Content("small"))
	require.Equal(t, after, s.Next())
}

func filtersByKind(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	s := h.owner.Subscribe(h.chat())
	all := in(h.h)
	all.Kinds = []nostr.Kind{nostr.KindChat, nostr.KindStreamMessageV2}
	both := h.owner.Subscribe(all)
	first := h.must(h.owner, nostr.KindChat, nostrtest.Content("first"))
	other := h.must(h.owner, nostr.KindStreamMessageV2, nostrtest.Content("of another kind"))
	second := h.must(h.owner, nostr.KindChat, nostrtest.Content("second"))
	require.Equal(t, []*nostr.Event{first, other, second}, []*nostr.Event{both.Next(), both.Next(), both.Next()})
	require.Equal(t, []*nostr.Event{first, second}, []*nostr.Event{s.Next(), s.Next()})
}

func closeStops(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	bob := h.dial("bob")
	closed, open := bob.Subscribe(h.chat()), bob.Subscribe(h.chat())
	first := h.must(h.owner, nostr.KindChat, nostrtest.Content("first"))
	require.Equal(t, first, closed.Next())
	require.Equal(t, first, open.Next())
	closed.Stop()
	require.Empty(t, bob.Query(by(who(t, "bob"))), "frames of a connection are taken in order")
	require.Equal(t, h.must(h.owner, nostr.KindChat, nostrtest.Content("second")), open.Next())
	require.Equal(t, h.must(h.owner, nostr.KindChat, nostrtest.Content("third")), open.Next())
	closed.Silent()
}

func concurrentClients(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	var subs []*cluster.Sub
	for i, name := range []string{"bob", "carol", "dave"} {
		subs = append(subs, cluster.Dial(t, c.Gateway(i), who(t, name)).Subscribe(by(who(t, "alice"))))
	}
	subs = append(subs, alice.Subscribe(by(who(t, "alice"))))
	first, second := alice.Accept(nostrtest.Content("first")), alice.Accept(nostrtest.Content("second"))
	for _, s := range subs {
		require.Empty(t, s.Stored)
		require.Equal(t, first, s.Next())
		require.Equal(t, second, s.Next())
	}
}

func storedBeforeEOSE(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	message := h.must(h.owner, nostr.KindChat, nostrtest.Content("hello"))
	s := h.dial("bob").Subscribe(h.chat())
	require.Equal(t, []*nostr.Event{message}, s.Stored)
	again := h.must(h.owner, nostr.KindChat, nostrtest.Content("and live"))
	require.Equal(t, again, s.Next(), "and only once")
}

func ephemeral(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	bob := h.dial("bob")
	presence := in(h.h)
	presence.Kinds = []nostr.Kind{nostr.KindPresence}
	channel, global := bob.Subscribe(presence), bob.Subscribe(by(who(t, "owner")))
	event := h.must(h.owner, nostr.KindPresence, nostrtest.Content("here"))
	require.Equal(t, event, channel.Next())
	require.Empty(t, bob.Query(presence))
	event = h.owner.Accept(nostrtest.Kind(20_100), nostrtest.Content("passing by"))
	require.Equal(t, event, global.Next())
	require.Empty(t, bob.Query(nostr.Filter{IDs: []nostr.ID{event.ID}}))
}

func authIsNoEvent(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	s := cluster.Dial(t, c.Gateway(1), who(t, "bob")).Subscribe(by(who(t, "alice")))
	proof := nostrtest.Auth(t, who(t, "alice"), "challenge", c.Gateway(0), time.Now().Unix())
	require.Equal(t, cluster.Verdict{Message: "invalid: AUTH events cannot be submitted"}, alice.Publish(proof))
	require.Equal(t, alice.Accept(nostrtest.Content("marker")), s.Next())
}

func subscriptionLimit(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const limit = 1024 // which NIP-11 states, see relayInfo
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	numbered := func(i int) nostr.Filter {
		f := by(who(t, "alice"))
		f.Tags, f.Limit = []nostr.TagCondition{{Name: 't', Values: []string{strconv.Itoa(i)}}}, new(int)
		return f
	}
	subs := make([]*cluster.Sub, limit)
	for i := range subs {
		subs[i] = alice.Subscribe(numbered(i))
	}
	require.Contains(t, alice.Refused(numbered(limit)), "too many")
	subs[0].Close()
	subs[0] = alice.Subscribe(numbered(limit))
	for i, s := range []*cluster.Sub{subs[limit-1], subs[0]} {
		require.Equal(t, alice.Accept(nostrtest.Tag("t", strconv.Itoa(limit-1+i))), s.Next())
	}
}

func pubkeyMismatch(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bob := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	foreign := bob.Event(nostrtest.Content("mine"))
	require.Equal(t, cluster.Verdict{Message: "invalid: event pubkey does not match authenticated identity"}, alice.Publish(foreign))
	require.Empty(t, bob.Query(by(who(t, "bob"))))
	require.True(t, bob.Publish(foreign).OK)
}

func emptySubscription(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	now := time.Now().Unix()
	fresh := h.chat()
	fresh.Since = &now
	s := h.owner.Subscribe(fresh)
	require.Empty(t, s.Stored)
	require.Equal(t, h.must(h.owner, nostr.KindChat), s.Next())
}

func anyFilterWill(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	message := h.must(h.owner, nostr.KindChat, nostrtest.Content("hello"))
	wrong := h.chat()
	wrong.Authors = by(who(t, "nobody")).Authors
	bob := h.dial("bob")
	require.Empty(t, bob.Query(wrong))
	for _, filters := range [][]nostr.Filter{{wrong, h.chat()}, {h.chat(), wrong}, {h.chat(), h.chat()}} {
		s := bob.Subscribe(filters...)
		require.Equal(t, []*nostr.Event{message}, s.Stored, "once")
		s.Close()
	}
}

func emptyKinds(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	alice.Accept(nostrtest.Content("hello"))
	nothing := alice.SubscribeRaw(`{"kinds":[],"authors":["` + nostrtest.PubKey(who(t, "alice")).String() + `"]}`)
	all := alice.SubscribeRaw(`{"authors":["` + nostrtest.PubKey(who(t, "alice")).String() + `"]}`)
	require.Empty(t, nothing.Stored)
	require.Len(t, all.Stored, 1)
	require.Equal(t, alice.Accept(nostrtest.Content("again")), all.Next())
	nothing.Silent()
}
