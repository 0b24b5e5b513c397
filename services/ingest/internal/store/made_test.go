package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Refusals, of what there may be so many of.
func youHaveMade(n int, what string) policy.Verdict {
	return policy.Verdict{Reason: fault.Restricted, Message: fmt.Sprintf("you and your agents have made %d %s, as many as you may", n, what)}
}

func theCommunityHas(n int, what string) policy.Verdict {
	return policy.Verdict{Reason: fault.Restricted, Message: fmt.Sprintf("the community has %d %s, as many as it may have", n, what)}
}

// A key makes so many channels, together with its agents; owners and admins of the community make as many as that may have.
func TestChannelsAreBounded(t *testing.T) {
	f := newTalk(t)
	WithMost(policy.Most{Member: 3, Community: 7}, policy.Most{})(f.Store)
	mine := youHaveMade(3, "channels")
	made := 0
	create := func(by string) (string, policy.Verdict) {
		made++
		h := fmt.Sprint("hall-", made)
		return h, f.verdict(f.ask(by, nostr.KindCreateGroup, nostrtest.Channel(h), nostrtest.Tag("name", h)))
	}
	require.NoError(t, f.attest(f.community, "bot", "alice", time.Time{}))
	require.NoError(t, f.attest(f.community, "robot", "alice", time.Time{}))
	first, v := create("alice")
	require.True(t, v.Accepted(), v.Message)
	for _, by := range []string{"bot", "robot"} {
		_, v = create(by)
		require.True(t, v.Accepted(), v.Message)
	}
	for _, by := range []string{"alice", "bot", "robot"} {
		h, v := create(by)
		require.Equal(t, mine, v)
		require.Zero(t, f.count(`SELECT count(*) FROM ingest.channels WHERE h = $1`, h))
		require.Zero(t, f.count(`SELECT count(*) FROM ingest.channel_members WHERE channel_id NOT IN (SELECT id FROM ingest.channels)`))
	}
	require.Equal(t, policy.ChannelExists, f.verdict(f.ask("alice", nostr.KindCreateGroup, nostrtest.Channel(first), nostrtest.Tag("name", "x"))),
		"what was answered before is answered as before")
	require.True(t, f.verdict(f.ask("alice", nostr.KindDeleteGroup, nostrtest.Channel(first))).Accepted())
	_, v = create("robot")
	require.True(t, v.Accepted(), "there is room for one: %s", v.Message)

	f.put(f.community, "admin", policy.RoleAdmin)
	for range 4 {
		_, v = create("admin")
		require.True(t, v.Accepted(), v.Message)
	}
	full := theCommunityHas(7, "channels")
	for _, by := range []string{"admin", "owner", "bob"} {
		_, v = create(by)
		require.Equal(t, full, v)
	}
	f.open("alice", "bob") // is no channel
	other := f.newCommunity("two.example", AccessOpen)
	require.True(t, f.verdict(f.command(other, "alice", nostr.KindCreateGroup, nostrtest.Channel("hall"), nostrtest.Tag("name", "x"))).Accepted())
}

// Whoever opens a conversation first has made it; the others of it have not. One that is there opens as ever.
func TestConversationsAreBounded(t *testing.T) {
	f := newTalk(t)
	WithMost(policy.Most{Member: 1, Community: 1}, policy.Most{Member: 2, Community: 4})(f.Store)
	open := func(by string, with ...string) policy.Verdict {
		return f.verdict(f.ask(by, nostr.KindOpenConversation, ps(with...)...))
	}
	require.NoError(t, f.attest(f.community, "bot", "alice", time.Time{}))
	h := f.open("alice", "bob")
	f.open("bot", "bob")
	mine := youHaveMade(2, "conversations")
	require.Equal(t, mine, open("alice", "carol"))
	require.Equal(t, mine, open("bot", "carol"))
	require.Equal(t, mine, f.verdict(f.ask("alice", nostr.KindAddToConversation, append(ps("carol"), nostrtest.Channel(h))...)))
	require.Equal(t, h, f.open("alice", "bob"))
	f.open("bob", "carol")
	f.open("owner", "carol")
	require.Equal(t, theCommunityHas(4, "conversations"), open("owner", "bob"))
	require.Equal(t, h, f.open("bob", "alice"))
}

// However many replicas make channels and conversations at once, there are never more than there may be.
func TestWhatIsBoundedIsCountedExactly(t *testing.T) {
	f := newTalk(t)
	stores := []*Store{f.replica(), f.replica(), f.replica()}
	for _, s := range stores {
		s.key = f.key
		WithMost(policy.Most{Member: 5, Community: 9}, policy.Most{Member: 4, Community: 7})(s)
	}
	require.NoError(t, f.attest(f.community, "bot", "alice", time.Time{}))
	var group errgroup.Group
	for i := range 30 {
		by := []string{"alice", "bot", "carol"}[i%3]
		batch := []*policy.Candidate{
			f.ask(by, nostr.KindCreateGroup, nostrtest.Channel(fmt.Sprint("a-", i)), nostrtest.Tag("name", "x")),
			f.ask(by, nostr.KindCreateGroup, nostrtest.Channel(fmt.Sprint("b-", i)), nostrtest.Tag("name", "x")),
		}
		talk := []*policy.Candidate{f.ask(by, nostr.KindOpenConversation, ps(fmt.Sprint("friend ", i))...)}
		for _, together := range [][]*policy.Candidate{batch, talk} {
			group.Go(func() error {
				_, err := stores[i%len(stores)].Commit(t.Context(), together)
				return err
			})
		}
	}
	require.NoError(t, group.Wait())
	of := func(kind string, names ...string) (n int) {
		for _, name := range names {
			key := nostrtest.PubKey(name)
			n += f.count(`SELECT count(*) FROM ingest.channels WHERE (type = 'dm') = $1 AND created_by = $2`, kind == "dm", key[:])
		}
		return n
	}
	require.Equal(t, 9, of("", "alice", "bot", "carol"))
	require.LessOrEqual(t, of("", "alice", "bot"), 5)
	require.LessOrEqual(t, of("", "carol"), 5)
	require.Equal(t, 7, of("dm", "alice", "bot", "carol"))
	require.LessOrEqual(t, of("dm", "alice", "bot"), 4)
	require.LessOrEqual(t, of("dm", "carol"), 4)
}
