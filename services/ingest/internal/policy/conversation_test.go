package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

func TestConversationCommandsAreRead(t *testing.T) {
	p := func(name string) nostrtest.Option { return nostrtest.Tag("p", nostrtest.PubKey(name).String()) }
	many := func(n int) (opts []nostrtest.Option, keys []nostr.PubKey) {
		for i := range n {
			name := fmt.Sprint("friend ", i)
			opts, keys = append(opts, p(name)), append(keys, nostrtest.PubKey(name))
		}
		return opts, keys
	}
	eight, keys := many(8)
	nine, _ := many(9)
	few, most := "pubkeys must contain at least 1 other participant", "pubkeys must contain at most 8 other participants (9 total)"
	for _, c := range []struct {
		name string
		kind nostr.Kind
		opts []nostrtest.Option
		want any
		msg  string
	}{
		{"nobody", 41010, nil, nil, few},
		{"oneself", 41010, []nostrtest.Option{p("alice")}, nil, few},
		{"one twice, and oneself", 41010, []nostrtest.Option{p("bob"), p("alice"), p("bob")}, &policy.OpenConversation{Others: []nostr.PubKey{nostrtest.PubKey("bob")}}, ""},
		{"the most", 41010, append(eight, p("alice"), p("friend 0")), &policy.OpenConversation{Others: keys}, ""},
		{"too many", 41010, nine, nil, most},
		{"no key", 41010, []nostrtest.Option{nostrtest.Tag("p", "bob")}, nil, "missing or invalid p tag"},
		{"an empty p", 41010, []nostrtest.Option{p("bob"), nostrtest.Tag("p")}, nil, "missing or invalid p tag"},
		{"to nothing", 41011, []nostrtest.Option{p("bob")}, nil, "missing or invalid h tag"},
		{"to what is no channel", 41011, []nostrtest.Option{p("bob"), nostrtest.Channel(":dm")}, nil, "missing or invalid h tag"},
		{"nobody more", 41011, []nostrtest.Option{nostrtest.Channel("dm")}, nil, few},
		{"one more", 41011, []nostrtest.Option{nostrtest.Channel("dm"), p("bob")}, &policy.AddToConversation{H: "dm", More: []nostr.PubKey{nostrtest.PubKey("bob")}}, ""},
		{"hide nothing", 41012, nil, nil, "missing or invalid h tag"},
		{"hide", 41012, []nostrtest.Option{nostrtest.Channel("dm")}, &policy.HideConversation{H: "dm"}, ""},
	} {
		ev := nostrtest.Event(t, "alice", append(c.opts, nostrtest.Kind(c.kind))...)
		got, v := policy.Check(policy.Submission{
			Community: 1, Raw: nostrtest.Raw(ev), Principal: []nostr.PubKey{ev.PubKey},
		}, ev, policy.Limits{}, time.Unix(nostrtest.Epoch, 0))
		require.Equal(t, c.msg, v.Message, c.name)
		if c.msg != "" {
			continue
		}
		require.Equal(t, c.want, got.Command.Asks, c.name)
		require.Empty(t, got.Channel, c.name)
		require.False(t, got.Whole(), c.name)
		key, ok := got.Holds()
		require.True(t, ok, c.name)
		require.Equal(t, int64(1), key.Community)
		require.False(t, nostr.ValidChannelID(key.H), "no channel can be meant")
	}
}
