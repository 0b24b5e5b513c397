package cluster_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// feeds are those of one key in two communities, in channels of the same name: each shows what is its own, and nothing of a channel that the
// key may not read.
func feeds(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const h = "feeds"
	toBob := pubkey(who(t, "bob"))
	now := time.Now().Unix()
	said := map[string][]*nostr.Event{}
	for i, host := range []string{"feeds-a.example", "feeds-b.example"} {
		c.CreateCommunity(t, host, who(t, "alice"))
		alice := cluster.DialHost(t, c.Gateway(i), host, who(t, "alice"))
		alice.Accept(nostrtest.Kind(nostr.KindRelayAddMember), toBob)
		for _, channel := range []string{h, h + "-private"} {
			opts := []nostrtest.Option{nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(channel)}
			if channel != h {
				opts = append(opts, nostrtest.Tag("private"))
			}
			alice.Accept(opts...)
		}
		say := func(channel string, kind nostr.Kind, ago int64, opts ...nostrtest.Option) *nostr.Event {
			return alice.Accept(append(opts, nostrtest.Kind(kind), nostrtest.Channel(channel), nostrtest.CreatedAt(now-ago), nostrtest.Content(host))...)
		}
		said[host] = []*nostr.Event{
			say(h, nostr.KindChat, 0, toBob), say(h, nostr.KindForumComment, 1, toBob), // mentions
			say(h, nostr.KindMessageReminder, 2, toBob),               // needs action
			say(h, nostr.KindChat, 3), say(h, nostr.KindForumPost, 4), // activity, as is the first
		}
		say(h+"-private", nostr.KindChat, 0, toBob)
		say(h+"-private", nostr.KindMessageReminder, 0, toBob)
		say(h, nostr.KindChat, 5, pubkey(who(t, "alice")))
	}
	for host, want := range said {
		feed := func(fields string) []*nostr.Event {
			t.Helper()
			return query(t, c.Gateway(1), host, who(t, "bob"), `[{`+fields+`}]`)
		}
		require.Equal(t, want[:2], feed(`"feed_types":["mentions"]`))
		require.Equal(t, want[2:3], feed(`"feed_types":["needs_action"]`))
		require.Equal(t, want, feed(`"feed_types":["mentions","needs_action","agent_activity"],"limit":5`))
		require.Equal(t, append(want[2:3:3], want[0]), feed(`"feed_types":["needs_action","activity"],"limit":2`))
		require.Equal(t, want[:1], feed(`"feed_types":["mentions"],"kinds":[9],"#h":["`+h+`"]`))
		require.Empty(t, feed(`"feed_types":["mentions","activity"],"#h":["`+h+`-private"]`))
		require.Empty(t, feed(`"feed_types":["mentions"],"since":`+strconv.FormatInt(now+1, 10)))
	}
}
