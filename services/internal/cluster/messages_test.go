package cluster_test

import (
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
	absent := map[string]nostrtest.Option{
		"missing":              nostrtest.Tag("e", strings.Repeat("cd", 32)),
		"deleted":              to(deleted),
		"hidden":               to(say(private, "hidden")),
		"in another channel":   to(say(other, "elsewhere")),
		"in another community": to(abroad.Accept(nostrtest.Content("abroad"))),
	}
	for _, command := range []struct {
		name    string
		opts    []nostrtest.Option
		refusal string
	}{
		{"a reaction", []nostrtest.Option{nostrtest.Kind(nostr.KindReaction), nostrtest.Content("+")}, "invalid: reaction target event not found"},
	} {
		about := func(target nostrtest.Option, opts ...nostrtest.Option) *nostr.Event {
			return bob.Event(append(append(command.opts, nostrtest.Channel(open), target), opts...)...)
		}
		require.Equal(t, cluster.Verdict{OK: true}, bob.Publish(about(to(present))), command.name)
		for name, target := range absent {
			require.Equal(t, cluster.Verdict{Message: command.refusal}, bob.Publish(about(target)), "%s to what is %s", command.name, name)
		}
	}
	// Without a channel a reaction is no reference that the relay vouches for: it is taken, twice if need be.
	for name, target := range absent {
		if name == "in another channel" {
			continue // which bob may read
		}
		for _, x := range []string{"1", "2"} {
			verdict := bob.Publish(bob.Event(nostrtest.Kind(nostr.KindReaction), nostrtest.Content("+"), target, nostrtest.Tag("x", x)))
			require.Equal(t, cluster.Verdict{OK: true}, verdict, name)
		}
	}
}
