package cluster_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// notForEverybody looks at kinds whose events are for some only, from the side of who may and who may not read them:
// live, stored, by id, by a count, by filters as wide as can be.
func notForEverybody(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Connect(t, c.Gateway(0), who(t, "alice"))
	require.True(t, alice.AuthenticateWith(c.Gateway(0), attestedBy(t, who(t, "bob"), who(t, "alice"), "")).OK)
	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	mallory := cluster.Dial(t, c.Gateway(1), who(t, "mallory"))
	wide := by(who(t, "alice"))
	live := map[*cluster.Client]*cluster.Sub{alice: alice.Subscribe(wide), bob: bob.Subscribe(wide), mallory: mallory.Subscribe(wide)}
	toBob := nostrtest.Tag("p", nostrtest.PubKey(who(t, "bob")).String())
	all := []*cluster.Client{alice, bob, mallory}
	for _, e := range []struct {
		what    string
		event   *nostr.Event
		readers []*cluster.Client
	}{
		{"a reminder", alice.Event(nostrtest.Kind(nostr.KindReminder), nostrtest.Tag("d", "tea"), toBob), []*cluster.Client{alice}},
		{"a persona", alice.Event(nostrtest.Kind(nostr.KindPersona), nostrtest.Tag("d", "draft")), []*cluster.Client{alice}},
		{"a shared persona", alice.Event(nostrtest.Kind(nostr.KindPersona), nostrtest.Tag("d", "cook"), nostrtest.Tag("shared", "true")), all},
		{"a memory", alice.Event(nostrtest.Kind(nostr.KindAgentMemory), nostrtest.Tag("d", strings.Repeat("0a", 32)), toBob, sealed("memory")), []*cluster.Client{alice, bob}},
		{"a metric", alice.Event(nostrtest.Kind(nostr.KindTurnMetric), toBob, nostrtest.Tag("agent", nostrtest.PubKey(who(t, "alice")).String()), sealed("metric")), []*cluster.Client{bob}},
	} {
		require.True(t, alice.Publish(e.event).OK, e.what)
		may := map[*cluster.Client]bool{}
		for _, reader := range e.readers {
			may[reader] = true
			require.Equal(t, e.event, live[reader].Next(), e.what)
		}
		for _, client := range all {
			var want []*nostr.Event
			var count uint64
			if may[client] {
				want, count = []*nostr.Event{e.event}, 1
			}
			byID := nostr.Filter{IDs: []nostr.ID{e.event.ID}}
			require.Equal(t, want, client.Query(byID), e.what)
			require.Equal(t, count, client.Count(byID), e.what)
		}
	}
	require.Len(t, alice.Query(wide), 4)
	require.Len(t, bob.Query(wide), 3)
	require.Len(t, mallory.Query(wide), 1)
	// What comes next is for everybody: nothing was before it for who may not read it.
	marker := alice.Accept(nostrtest.Content("marker"))
	for _, client := range all {
		require.Equal(t, marker, live[client].Next())
	}

	metrics := nostr.Filter{Kinds: []nostr.Kind{nostr.KindTurnMetric}}
	require.Equal(t, "restricted: p-gated events require #p matching your pubkey", mallory.Refused(metrics))
	metrics.Tags = []nostr.TagCondition{{Name: 'p', Values: []string{nostrtest.PubKey(who(t, "bob")).String()}}}
	require.Equal(t, "restricted: p-gated events require #p matching your pubkey", mallory.Refused(metrics))
	require.Len(t, bob.Query(metrics), 1)
}
