package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// forum has posts, comments and votes in a channel, and what messages of it are marked with.
func forum(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c, nostrtest.Tag("channel_type", "forum"), nostrtest.Tag("private"))
	bob, mallory := h.dial("bob"), h.dial("mallory")
	h.must(h.owner, nostr.KindPutUser, pubkey(who(t, "bob")))
	live := bob.Subscribe(nostr.Filter{
		Kinds: []nostr.Kind{nostr.KindForumPost, nostr.KindForumVote, nostr.KindForumComment, nostr.KindMessagePin, nostr.KindMessageBookmark, nostr.KindMessageReminder},
		Tags:  in(h.h).Tags,
	})
	summaries := bob.Subscribe(nostr.Filter{Kinds: []nostr.Kind{nostr.KindThreadSummary}, Tags: in(h.h).Tags})

	post := h.must(h.owner, nostr.KindForumPost, nostrtest.Content("which honey is best?"))
	comment := h.must(bob, nostr.KindForumComment, nostrtest.Content("lime"), answers(post))
	vote := h.must(bob, nostr.KindForumVote, nostrtest.Content("+"), to(post))
	other := h.must(h.owner, nostr.KindForumVote, nostrtest.Content("+"), to(comment))
	pin := h.must(h.owner, nostr.KindMessagePin, to(post))
	bookmark := h.must(bob, nostr.KindMessageBookmark, to(comment))
	later := h.must(bob, nostr.KindMessageReminder, to(comment))
	all := []*nostr.Event{post, comment, vote, other, pin, bookmark, later}
	for _, want := range all {
		require.Equal(t, want, live.Next())
	}
	e, _ := summaries.Next().Tags.First("e")
	require.Equal(t, post.ID.String(), e, "a comment is a reply of its post")
	require.ElementsMatch(t, ids(all), ids(bob.Query(nostr.Filter{Kinds: []nostr.Kind{45001, 45002, 45003, 40004, 40005, 40007}, Tags: in(h.h).Tags})))

	chat := h.must(bob, nostr.KindChat, nostrtest.Content("no post"))
	h.refuse("invalid: vote target must be a forum post or comment", bob, nostr.KindForumVote, to(chat))
	h.refuse("invalid: vote target must be a forum post or comment", bob, nostr.KindForumVote, to(vote))
	h.refuse("invalid: vote must reference a target event via e tag", bob, nostr.KindForumVote)
	h.refuse("invalid: vote target event not found", bob, nostr.KindForumVote, nostrtest.Tag("e", strings.Repeat("ef", 32)))
	for _, kind := range []nostr.Kind{45001, 45002, 45003, 40004, 40005, 40006, 40007} {
		verdict := bob.Publish(bob.Event(nostrtest.Kind(kind), to(post)))
		require.Equal(t, "invalid: channel-scoped events must include an h tag", verdict.Message)
		// Who is not in the channel is told the same as of one that does not exist.
		hidden := mallory.Publish(mallory.Event(nostrtest.Kind(kind), nostrtest.Channel(h.h), to(post)))
		missing := mallory.Publish(mallory.Event(nostrtest.Kind(kind), nostrtest.Channel(h.h+"-none"), to(post)))
		require.Equal(t, cluster.Verdict{Message: "restricted: not a channel member"}, hidden)
		require.Equal(t, missing, hidden)
	}
	h.must(bob, nostr.KindDeletion, to(comment))
	h.refuse("invalid: vote target event not found", h.owner, nostr.KindForumVote, to(comment))
	require.Empty(t, mallory.Query(in(h.h)))
	h.must(h.owner, nostr.KindEditMetadata, nostrtest.Tag("archived", "true"))
	h.refuse("invalid: channel is archived", bob, nostr.KindForumVote, to(post))
}

// readPositions has two devices of one key tell each other how far it has read (NIP-RS), each at its own address.
func readPositions(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	phone, desktop := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "alice"))
	f := by(who(t, "alice"))
	f.Kinds = []nostr.Kind{nostr.KindReadState}
	live := desktop.Subscribe(f)
	slot := func(x string) string { return "read-state:" + strings.Repeat(x, 32) }
	now := time.Now().Unix()
	position := func(client *cluster.Client, slot string, at int64) *nostr.Event {
		return client.Event(nostrtest.Kind(nostr.KindReadState), nostrtest.Tag("d", slot), nostrtest.Tag("t", "read-state"),
			nostrtest.Content("encrypted"), nostrtest.CreatedAt(at))
	}
	first, second, mine := position(phone, slot("a"), now), position(phone, slot("a"), now+1), position(desktop, slot("b"), now)
	for _, event := range []*nostr.Event{first, mine, second} {
		require.Equal(t, cluster.Verdict{OK: true}, phone.Publish(event))
		require.Equal(t, event, live.Next())
	}
	require.True(t, phone.Publish(position(phone, slot("a"), now-1)).OK, "a device that is late is not told off")
	f.Tags = []nostr.TagCondition{{Name: 't', Values: []string{"read-state"}}}
	require.Equal(t, []*nostr.Event{second, mine}, phone.Query(f), "of each device the newest")
	live.Silent()
	verdict := phone.Publish(position(phone, "read-state:"+strings.Repeat("a", 1014), now))
	require.Equal(t, "invalid: d tag too long (1025 bytes, max 1024)", verdict.Message)
}
