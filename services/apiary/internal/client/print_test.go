package client

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

func TestPrintable(t *testing.T) {
	require.Equal(t, "a b \uFFFD[31mc\uFFFDd", Printable("a\tb\n\x1b[31mc\u202ed"))
}

// Whoever sees an event knows what it is, also one that no person has written.
func TestLinesSayWhatEventsAre(t *testing.T) {
	alice, id := strings.Repeat("3b", 32), strings.Repeat("4c", 32)
	key, err := nostr.ParsePubKey(alice)
	require.NoError(t, err)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for want, event := range map[string]nostr.Event{
		"03:04:05  3b3b3b3b  hello\n           world":           {Kind: 1, Content: "hello\nworld"},
		"03:04:05  3b3b3b3b  #den  hello":                       {Kind: 9, Tags: nostr.Tags{{"h", "den"}}, Content: "hello"},
		"03:04:05  3b3b3b3b  #den  (answers 4c4c4c4c)  hello":   {Kind: 9, Tags: nostr.Tags{{"h", "den"}, {"e", id, "", "reply"}}, Content: "hello"},
		"03:04:05  3b3b3b3b  [kind 7: reaction]  e=4c4c4c4c  +": {Kind: 7, Tags: nostr.Tags{{"e", id}}, Content: "+"},
		"03:04:05  3b3b3b3b  #den  [kind 39000: channel metadata, signed by the relay]  name=Den, private": {
			Kind: 39000, Tags: nostr.Tags{{"d", "den"}, {"name", "Den"}, {"private"}},
		},
		"03:04:05  3b3b3b3b  [kind 13534: list of members, signed by the relay]  -, member=3b3b3b3b owner": {
			Kind: 13534, Tags: nostr.Tags{{"-"}, {"member", alice, "owner"}},
		},
		"03:04:05  3b3b3b3b  [kind 30000: follow set]  d=a, p, p, p, p, p, 2 more": {
			Kind: 30000, Tags: nostr.Tags{{"d", "a"}, {"p"}, {"p"}, {"p"}, {"p"}, {"p"}, {"p"}, {"p"}},
		},
		"03:04:05  3b3b3b3b  [kind 1234]  t=" + strings.Repeat("\uFFFD", 48) + "…": {Kind: 1234, Tags: nostr.Tags{{"t", strings.Repeat("\a", 49)}}},
	} {
		event.PubKey, event.CreatedAt = key, at.Unix()
		var out strings.Builder
		p := printer{out: &out, now: func() time.Time { return at }}
		require.NoError(t, p.event(&event, nil))
		require.Equal(t, want+"\n", out.String())
		out.Reset()
		p.ids = true
		require.NoError(t, p.event(&event, nil))
		require.Equal(t, event.ID.String()+"  "+want+"\n", out.String())
	}
}
