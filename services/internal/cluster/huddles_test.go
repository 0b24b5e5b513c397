package cluster_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// huddles has two talk in private: what they tell of it is in the conversation that it belongs to, stored and live, and
// their reactions are live only. Nobody else learns of it.
func huddles(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bob := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	eve := cluster.Dial(t, c.Gateway(1), who(t, "eve"))
	h := openConversation(t, alice, "bob").Channel
	life := in(h)
	life.Kinds = []nostr.Kind{
		nostr.KindHuddleStarted, nostr.KindHuddleJoined, nostr.KindHuddleLeft, nostr.KindHuddleEnded, nostr.KindHuddleGuidelines, nostr.KindHuddleReaction,
	}
	own, outside, outsideAll := bob.Subscribe(life), eve.Subscribe(life), eve.Subscribe(by(who(t, "alice"), who(t, "eve")))
	tell := func(by *cluster.Client, kind nostr.Kind) *nostr.Event {
		t.Helper()
		ev := by.Accept(nostrtest.Kind(kind), nostrtest.Channel(h), unique())
		require.Equal(t, ev, own.Next())
		return ev
	}
	want := []*nostr.Event{
		tell(alice, nostr.KindHuddleGuidelines), tell(alice, nostr.KindHuddleStarted), tell(bob, nostr.KindHuddleJoined),
		tell(bob, nostr.KindHuddleLeft), tell(alice, nostr.KindHuddleEnded),
	}
	reaction := tell(alice, nostr.KindHuddleReaction)
	require.ElementsMatch(t, want, alice.Query(life))

	for _, kind := range life.Kinds {
		verdict := alice.Publish(alice.Event(nostrtest.Kind(kind)))
		require.Equal(t, cluster.Verdict{Message: "invalid: channel-scoped events must include an h tag"}, verdict, "kind %d", kind)
		hidden := eve.Publish(eve.Event(nostrtest.Kind(kind), nostrtest.Channel(h)))
		require.Equal(t, eve.Publish(eve.Event(nostrtest.Kind(kind), nostrtest.Channel("no-such-channel"))), hidden, "kind %d", kind)
		require.False(t, hidden.OK, "kind %d", kind)
	}
	answer := post(t, c.Gateway(0), "localhost", who(t, "alice"), reaction)
	require.Equal(t, http.StatusBadRequest, answer.Status)
	require.Empty(t, eve.Query(by(who(t, "alice"))))
	marker := eve.Accept(nostrtest.Content("marker"))
	require.Equal(t, marker, outsideAll.Next())
	outside.Silent()
}
