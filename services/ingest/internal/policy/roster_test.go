package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// What is said of the profile is set, and what is not said stays.
func TestProfileCommands(t *testing.T) {
	tag := nostrtest.Tag
	const icon, replies = "icon", "thread_replies_in_channel"
	for _, c := range []struct {
		name string
		opts []nostrtest.Option
		asks *policy.SetProfile
		msg  string
	}{
		{"an icon", []nostrtest.Option{tag(icon, "https://a.example/i.png")}, &policy.SetProfile{Icon: new("https://a.example/i.png")}, ""},
		{"no icon", []nostrtest.Option{tag(icon, "")}, &policy.SetProfile{Icon: new("")}, ""},
		{"nothing at all, as older clients clear the icon", nil, &policy.SetProfile{Icon: new("")}, ""},
		{"nothing known", []nostrtest.Option{tag("alt", "x")}, nil, "missing icon or thread_replies_in_channel tag"},
		{"threads apart", []nostrtest.Option{tag(replies, "false")}, &policy.SetProfile{Display: true}, ""},
		{"threads apart, in other words", []nostrtest.Option{tag(replies, "Off")}, &policy.SetProfile{Display: true}, ""},
		{"an icon and threads apart", []nostrtest.Option{tag(replies, "0"), tag(icon, "")}, &policy.SetProfile{Icon: new(""), Display: true}, ""},
		{"threads in channels", []nostrtest.Option{tag(replies, "yes")}, nil, policy.NoRepliesInChannel.Message},
		{"an icon and threads in channels", []nostrtest.Option{tag(icon, ""), tag(replies, "true")}, nil, policy.NoRepliesInChannel.Message},
		{"threads anyhow", []nostrtest.Option{tag(replies, "")}, nil, "thread_replies_in_channel must be true or false"},
		{"no icon that is one", []nostrtest.Option{tag(replies, "no"), tag(icon, "javascript:x")}, nil, "icon must be an http or https URL, or an image as a data URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev := nostrtest.Event(t, "alice", append([]nostrtest.Option{nostrtest.Kind(nostr.KindRelaySetProfile)}, c.opts...)...)
			got, v := policy.Check(policy.Submission{
				Community: 1, Raw: nostrtest.Raw(ev), Principal: []nostr.PubKey{ev.PubKey},
			}, ev, policy.Limits{}, time.Unix(nostrtest.Epoch, 0))
			require.Equal(t, c.msg, v.Message)
			if c.asks != nil {
				require.Equal(t, c.asks, got.Command.Asks)
			}
		})
	}
}
