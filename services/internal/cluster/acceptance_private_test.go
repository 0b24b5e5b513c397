package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// needsOwnP is what a filter is told that names a kind of which only the reader's own are shown.
const needsOwnP = "restricted: p-gated events require #p matching your pubkey"

// addressed filters on kinds and on whom p tags name.
func addressed(kinds []nostr.Kind, names ...string) nostr.Filter {
	f := nostr.Filter{Kinds: kinds}
	if len(names) > 0 {
		f.Tags = []nostr.TagCondition{{Name: 'p'}}
	}
	for _, name := range names {
		f.Tags[0].Values = append(f.Tags[0].Values, nostrtest.PubKey(name).String())
	}
	return f
}

var (
	notifications = []nostr.Kind{nostr.KindMemberAdded, nostr.KindMemberRemoved}
	giftWraps     = []nostr.Kind{nostr.KindGiftWrap}
)

func notificationsNeedP(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	require.Equal(t, needsOwnP, alice.Refused(addressed(notifications)))
	alice.Subscribe(addressed(notifications, who(t, "alice")))
}

// A filter that names no kinds is answered, without what is not for the reader.
func wildcardsShowNoNotifications(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	agent, eve := h.dial("agent"), h.dial("eve")
	everything := nostr.Filter{Limit: new(int)}
	own, others := agent.Subscribe(everything), eve.Subscribe(everything)
	stored := h.must(h.owner, nostr.KindPutUser, pubkey(who(t, "agent")))
	notice := func(s *cluster.Sub, marker *nostr.Event) (seen []*nostr.Event) {
		for {
			event := s.Next()
			if event.ID == marker.ID {
				return seen
			}
			if p, _ := event.Tags.First("p"); event.Kind == nostr.KindMemberAdded && p == nostrtest.PubKey(who(t, "agent")).String() {
				seen = append(seen, event)
			}
		}
	}
	marker := h.owner.Accept(nostrtest.Content("marker"))
	seen := notice(own, marker)
	require.Len(t, seen, 1)
	h.requireNotice(seen[0], nostr.KindMemberAdded, who(t, "agent"), "member_added")
	require.Empty(t, notice(others, marker))

	byID := nostr.Filter{IDs: []nostr.ID{seen[0].ID, stored.ID}}
	require.Len(t, agent.Query(byID), 2)
	require.Equal(t, []*nostr.Event{stored}, eve.Query(byID))
	require.EqualValues(t, 1, eve.Count(byID))
	since := stored.CreatedAt
	for _, event := range eve.Query(nostr.Filter{Since: &since}) {
		require.NotEqual(t, seen[0].ID, event.ID)
	}
}

func notificationsNeedOwnP(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	eve := cluster.Dial(t, c.Gateway(0), who(t, "eve"))
	require.Equal(t, needsOwnP, eve.Refused(addressed(notifications, who(t, "victim"))))
	eve.Subscribe(addressed(notifications, who(t, "eve")))
}

func notificationsNeedOnlyOwnP(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	eve := cluster.Dial(t, c.Gateway(0), who(t, "eve"))
	require.Equal(t, needsOwnP, eve.Refused(addressed(notifications, who(t, "eve"), who(t, "victim"))))
	eve.Subscribe(addressed(notifications, who(t, "eve"), who(t, "eve")))
}

func mixedFilters(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	gated := in(h.h)
	gated.Kinds = []nostr.Kind{nostr.KindMemberAdded}
	global := by(who(t, "owner"))
	require.Equal(t, needsOwnP, h.owner.Refused(gated, global))
	require.Equal(t, needsOwnP, h.owner.Refused(global, gated))
	h.owner.Subscribe(global, h.chat())
}

// wrap makes a gift wrap for somebody, signed by a key that is used for nothing else.
func wrap(t *testing.T, to string, opts ...nostrtest.Option) *nostr.Event {
	t.Helper()
	return nostrtest.Event(t, who(t, "throw-away"), append(opts,
		nostrtest.Kind(nostr.KindGiftWrap), nostrtest.CreatedAt(time.Now().Unix()), pubkey(to))...)
}

func giftWrapAccepted(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	gift := wrap(t, who(t, "bob"))
	require.Equal(t, cluster.Verdict{OK: true}, alice.Publish(gift))
	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	require.Equal(t, []*nostr.Event{gift}, bob.Query(addressed(giftWraps, who(t, "bob"))))
}

func giftWrapsNeedP(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	require.Equal(t, needsOwnP, alice.Refused(addressed(giftWraps)))
	require.Equal(t, needsOwnP, alice.Refused(addressed(giftWraps, who(t, "bob"))))
}

func giftWrapReceived(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, eve := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(0), who(t, "eve"))
	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	s, wide := bob.Subscribe(addressed(giftWraps, who(t, "bob"))), eve.Subscribe(by(who(t, "throw-away"), who(t, "alice")))
	gift := wrap(t, who(t, "bob"), nostrtest.Content("sealed"))
	require.True(t, alice.Publish(gift).OK)
	require.Equal(t, gift, s.Next())
	require.Equal(t, alice.Accept(nostrtest.Content("marker")), wide.Next(), "and nobody else gets it")
}

func giftWrapsAreNotSearched(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	bob := h.dial("bob")
	require.True(t, h.owner.Publish(wrap(t, who(t, "bob"), nostrtest.Content("the zwieback is sealed"))).OK)
	found := h.must(h.owner, nostr.KindChat, nostrtest.Content("the zwieback is open"))
	search := nostr.Filter{Search: "zwieback"}
	got := bob.QueryUntil(func(events []*nostr.Event) bool { return len(events) > 0 }, search)
	require.Equal(t, []*nostr.Event{found}, got, "what was sent before would have been found by now")
	search.Kinds, search.Tags = giftWraps, addressed(giftWraps, who(t, "bob")).Tags
	require.Empty(t, bob.Query(search))
}
