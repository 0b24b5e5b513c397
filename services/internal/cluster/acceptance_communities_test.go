package cluster_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// twins are two communities of the same people: alice owns both, bob is a member of both.
type twins struct {
	*testing.T
	c          *cluster.Cluster
	hosts      [2]string
	alice, bob [2]*cluster.Client
}

// newTwins makes the communities, which no other case may name alike.
func newTwins(t *testing.T, c *cluster.Cluster, name string) *twins {
	t.Helper()
	x := &twins{T: t, c: c}
	for i, side := range []string{"left", "right"} {
		x.hosts[i] = c.CreateCommunity(t, side+"."+name+".example", who(t, "alice"))
		c.PutMember(t, x.hosts[i], who(t, "bob"))
		x.alice[i] = cluster.DialHost(t, c.Gateway(0), x.hosts[i], who(t, "alice"))
		x.bob[i] = cluster.DialHost(t, c.Gateway(1), x.hosts[i], who(t, "bob"))
	}
	return x
}

func twoProfiles(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	x := newTwins(t, c, "profiles")
	var profiles [2]*nostr.Event
	for i := range profiles {
		profiles[i] = x.alice[i].Accept(nostrtest.Kind(nostr.KindMetadata), nostrtest.Content(`{"name":"Alice of `+x.hosts[i]+`"}`))
	}
	profile := by(who(t, "alice"))
	profile.Kinds = []nostr.Kind{nostr.KindMetadata}
	for i, want := range profiles {
		require.Equal(t, []*nostr.Event{want}, x.bob[i].Query(profile))
		require.Empty(t, x.bob[1-i].Query(nostr.Filter{IDs: []nostr.ID{want.ID}}))
	}
}

// named asks the gateway at url who has a name at a host (NIP-05).
func named(t *testing.T, url, host, name string) string {
	t.Helper()
	status, answer := cluster.HTTP(t, http.MethodGet, url, host, "/.well-known/nostr.json?name="+name, nil, "")
	require.Equal(t, http.StatusOK, status, answer)
	return answer
}

func twoNames(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	x := newTwins(t, c, "local-part")
	for i, client := range []*cluster.Client{x.alice[0], x.bob[1]} {
		client.Accept(nostrtest.Kind(nostr.KindMetadata), nostrtest.Content(`{"nip05":"sam@`+x.hosts[i]+`"}`))
	}
	for i, name := range []string{"alice", "bob"} {
		key := nostrtest.PubKey(who(t, name)).String()
		want := `{"names":{"sam":"` + key + `"},"relays":{"` + key + `":["ws://` + x.hosts[i] + `"]}}`
		require.Eventually(t, func() bool { return named(t, c.Gateway(i), x.hosts[i], "sam") == want }, time.Minute, 20*time.Millisecond,
			"profiles are indexed a moment later")
	}
}

func oneChannelTwice(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	x := newTwins(t, c, "one-channel")
	const h = "6d1c4bd3-6f0a-4d8f-9d43-1f1f6c1c8c55"
	var messages [2]*nostr.Event
	for i := range messages {
		x.alice[i].Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h), nostrtest.Tag("name", x.hosts[i]))
		messages[i] = x.alice[i].Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content("on "+x.hosts[i]))
	}
	for i, want := range messages {
		got := query(t, c.Gateway(1), x.hosts[i], who(t, "bob"), `[{"kinds":[9],"#h":["`+h+`"]}]`)
		require.Equal(t, []*nostr.Event{want}, got)
	}
}

func presenceOfTwo(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	x := newTwins(t, c, "presence-of-two")
	h := channelID(t)
	typing := in(h)
	typing.Kinds = []nostr.Kind{nostr.KindTyping}
	var subs [2]*cluster.Sub
	for i, status := range []string{"online", "away"} {
		announce(x.alice[i], status)
		x.alice[i].Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h), nostrtest.Tag("name", "Hall"))
		subs[i] = x.bob[i].Subscribe(typing)
	}
	var last [2]*nostr.Event
	for i, status := range []string{"online", "away"} {
		require.Equal(t, map[nostr.PubKey]string{nostrtest.PubKey(who(t, "alice")): status}, said(t, x.bob[i].Query(present(who(t, "alice")))))
		last[i] = x.alice[i].Accept(nostrtest.Kind(nostr.KindTyping), nostrtest.Channel(h), nostrtest.Content("on "+x.hosts[i]))
	}
	for i, s := range subs {
		require.Equal(t, last[i], s.Next(), "and nothing of the other community before it")
		again := x.alice[i].Accept(nostrtest.Kind(nostr.KindTyping), nostrtest.Channel(h), nostrtest.Content("again on "+x.hosts[i]))
		require.Equal(t, again, s.Next())
		s.Silent()
	}
}
