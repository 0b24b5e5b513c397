package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// to makes an e tag.
func to(target *nostr.Event) nostrtest.Option { return nostrtest.Tag("e", target.ID.String()) }

func followTargets(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	h := channelID(t)
	alice.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h))
	message := alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content("hello"))
	note := alice.Accept(nostrtest.Content("a note"))

	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	follow := in(h)
	follow.Kinds = []nostr.Kind{nostr.KindReaction, nostr.KindDeletion}
	channel, global := bob.Subscribe(follow), bob.Subscribe(by(who(t, "alice")))
	like := alice.Accept(nostrtest.Kind(nostr.KindReaction), to(message), nostrtest.Content("+"))
	require.Equal(t, like, channel.Next(), "live, although it has no h tag")
	require.Equal(t, cluster.Verdict{Message: "duplicate: reaction already exists"},
		alice.Publish(alice.Event(nostrtest.Kind(nostr.KindReaction), to(message), nostrtest.Content(""))))
	elsewhere := alice.Accept(nostrtest.Kind(nostr.KindReaction), to(note), nostrtest.Content("+"))
	unknown := alice.Accept(nostrtest.Kind(nostr.KindReaction), nostrtest.Tag("e", strings.Repeat("ab", 32)), nostrtest.Content("+"))
	taken := alice.Accept(nostrtest.Kind(nostr.KindDeletion), to(like))
	require.Equal(t, taken, channel.Next())
	// Nothing of the channel came on the global topic, and the other way round.
	require.Equal(t, elsewhere, global.Next())
	require.Equal(t, unknown, global.Next())
	again := alice.Accept(nostrtest.Kind(nostr.KindReaction), to(message), nostrtest.Content("+"), nostrtest.Tag("x", "again"))
	require.Equal(t, again, channel.Next())
	require.ElementsMatch(t, ids([]*nostr.Event{again, taken}), ids(bob.Query(follow)), "and stored")
}

// hiddenTargets sends commands about what is there and what is not, and wants one answer for whatever is not.
func hiddenTargets(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bob := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	open, other, private := channelID(t)+"-o", channelID(t)+"-e", channelID(t)+"-p"
	alice.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(open))
	alice.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(other))
	alice.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(private), nostrtest.Tag("private"))
	say := func(h, content string) *nostr.Event {
		return alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content(content))
	}
	host := c.CreateCommunity(t, "targets.example", who(t, "alice"))
	abroad := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	present, deleted := say(open, "present"), say(open, "deleted")
	alice.Accept(nostrtest.Kind(nostr.KindDeletion), to(deleted))
	own := bob.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(open), nostrtest.Content("own"))
	post := alice.Accept(nostrtest.Kind(nostr.KindForumPost), nostrtest.Channel(open), nostrtest.Content("post"))
	secret := alice.Accept(nostrtest.Kind(nostr.KindDirectMessage), nostrtest.Channel(open), pubkey(who(t, "alice")))
	absent := map[string]string{
		"for somebody else":    secret.ID.String(),
		"missing":              strings.Repeat("cd", 32),
		"deleted":              deleted.ID.String(),
		"hidden":               say(private, "hidden").ID.String(),
		"in another channel":   say(other, "elsewhere").ID.String(),
		"in another community": abroad.Accept(nostrtest.Content("abroad")).ID.String(),
	}
	for _, command := range []struct {
		name    string
		about   func(id string) *nostr.Event
		present string
		refusal string
	}{
		{"a reaction", func(id string) *nostr.Event {
			return bob.Event(nostrtest.Kind(nostr.KindReaction), nostrtest.Channel(open), nostrtest.Content("+"), nostrtest.Tag("e", id))
		}, present.ID.String(), "invalid: reaction target event not found"},
		{"a reply", func(id string) *nostr.Event {
			return bob.Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(open), nostrtest.Content("well"), nostrtest.Tag("e", id, "", "reply"))
		}, present.ID.String(), "invalid: reply parent not found"},
		{"a reply in a thread", func(id string) *nostr.Event {
			return bob.Event(nostrtest.Kind(nostr.KindStreamMessageV2), nostrtest.Channel(open), nostrtest.Tag("e", present.ID.String(), "", "root"), nostrtest.Tag("e", id, "", "reply"))
		}, present.ID.String(), "invalid: reply parent not found"},
		{"a pin", func(id string) *nostr.Event {
			return bob.Event(nostrtest.Kind(nostr.KindMessagePin), nostrtest.Channel(open), nostrtest.Tag("e", id))
		}, present.ID.String(), "invalid: target event not found"},
		{"an edit", func(id string) *nostr.Event {
			return bob.Event(nostrtest.Kind(nostr.KindMessageEdit), nostrtest.Channel(open), nostrtest.Content("better"), nostrtest.Tag("e", id))
		}, own.ID.String(), "invalid: edit target not found or not editable by you"},
		{"a vote", func(id string) *nostr.Event {
			return bob.Event(nostrtest.Kind(nostr.KindForumVote), nostrtest.Channel(open), nostrtest.Content("+"), nostrtest.Tag("e", id))
		}, post.ID.String(), "invalid: vote target event not found"},
		{"a bookmark", func(id string) *nostr.Event {
			return bob.Event(nostrtest.Kind(nostr.KindMessageBookmark), nostrtest.Channel(open), nostrtest.Tag("e", id))
		}, present.ID.String(), "invalid: target event not found"},
		{"a reminder", func(id string) *nostr.Event {
			return bob.Event(nostrtest.Kind(nostr.KindMessageReminder), nostrtest.Channel(open), nostrtest.Tag("e", id))
		}, present.ID.String(), "invalid: target event not found"},
		{"a deletion in the channel", func(id string) *nostr.Event {
			return bob.Event(nostrtest.Kind(nostr.KindDeleteEvent), nostrtest.Channel(open), nostrtest.Tag("e", id))
		}, own.ID.String(), "invalid: target event not found or not yours to delete"},
	} {
		require.Equal(t, cluster.Verdict{OK: true}, bob.Publish(command.about(command.present)), command.name)
		for name, id := range absent {
			require.Equal(t, cluster.Verdict{Message: command.refusal}, bob.Publish(command.about(id)), "%s to what is %s", command.name, name)
		}
		if command.present == own.ID.String() {
			require.Equal(t, cluster.Verdict{Message: command.refusal}, bob.Publish(command.about(present.ID.String())), "%s to what is another's", command.name)
		}
	}
	// A deletion asks for nothing that could be refused, and takes nothing that is not the author's.
	for name, id := range absent {
		require.Equal(t, cluster.Verdict{OK: true}, bob.Publish(bob.Event(nostrtest.Kind(nostr.KindDeletion), nostrtest.Tag("e", id))), name)
	}
	require.Equal(t, cluster.Verdict{OK: true}, bob.Publish(bob.Event(nostrtest.Kind(nostr.KindDeletion), to(present))))
	require.Len(t, bob.Query(nostr.Filter{IDs: []nostr.ID{present.ID}}), 1)
	// Without a channel a reaction is no reference that the relay vouches for: it is taken, twice if need be.
	for name, id := range absent {
		if name == "in another channel" {
			continue // which bob may read
		}
		for _, x := range []string{"1", "2"} {
			verdict := bob.Publish(bob.Event(nostrtest.Kind(nostr.KindReaction), nostrtest.Content("+"), nostrtest.Tag("e", id), nostrtest.Tag("x", x)))
			require.Equal(t, cluster.Verdict{OK: true}, verdict, name)
		}
	}
}

func threads(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bob := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	h := channelID(t)
	alice.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h))
	first := alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content("first"))
	summaries := in(h)
	summaries.Kinds = []nostr.Kind{nostr.KindThreadSummary}
	s := alice.Subscribe(summaries)
	require.Empty(t, s.Stored)
	next := func() (content struct {
		Replies     int      `json:"reply_count"`
		Descendants int      `json:"descendant_count"`
		Last        *int64   `json:"last_reply_at"`
		People      []string `json:"participants"`
	},
	) {
		t.Helper()
		ev := s.Next()
		require.Equal(t, nostr.Tags{{"e", first.ID.String()}, {"d", first.ID.String()}, {"h", h}}, ev.Tags)
		require.NoError(t, json.Unmarshal([]byte(ev.Content), &content))
		return content
	}
	answer := func(parent *nostr.Event) *nostr.Event {
		return bob.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content("well"),
			nostrtest.Tag("e", first.ID.String(), "", "root"), nostrtest.Tag("e", parent.ID.String(), "", "reply"))
	}
	direct := answer(first)
	said := next()
	require.Equal(t, 1, said.Replies)
	require.Equal(t, direct.CreatedAt, *said.Last)
	require.Equal(t, []string{nostrtest.PubKey(who(t, "bob")).String()}, said.People)
	nested := answer(direct)
	said = next()
	require.Equal(t, []int{1, 2}, []int{said.Replies, said.Descendants})
	bob.Accept(nostrtest.Kind(nostr.KindDeletion), to(nested), to(direct))
	said = next()
	require.Equal(t, []int{0, 0}, []int{said.Replies, said.Descendants})
	require.Nil(t, said.Last)
	require.Empty(t, alice.Query(summaries))
}
