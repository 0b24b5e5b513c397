package client

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// about returns the presence of a user as a key says it.
func about(t *testing.T, signer, user, status string) *nostr.Event {
	t.Helper()
	event := &nostr.Event{
		Kind: nostr.KindPresence, CreatedAt: time.Now().Unix(), Content: status,
		Tags: nostr.Tags{{"p", nostrtest.PubKey(user).String()}},
	}
	require.NoError(t, event.Sign(nostrtest.Key(signer)))
	return event
}

func presenceOf(kind nostr.Kind, name string) nostr.Filter {
	return nostr.Filter{Kinds: []nostr.Kind{kind}, Authors: []nostr.PubKey{nostrtest.PubKey(name)}}
}

func TestPresenceIsShown(t *testing.T) {
	for _, kind := range []nostr.Kind{nostr.KindPresence, nostr.KindPresenceSnapshot} {
		event, other := about(t, "relay", "alice", "online"), about(t, "relay", "mallory", "online")
		want := string(event.AppendJSON(nil)) + "\n"
		filter := presenceOf(kind, "alice")

		var out bytes.Buffer
		var url string
		url = relay(t, func(r relaySide) {
			r.authenticate(url)
			r.stored(other, event, text(t, "unasked for", 1))
		})
		require.NoError(t, Query(t.Context(), QueryConfig{Config: Config{URL: url, Key: nostrtest.Key("alice")}, Filter: filter, JSON: true, Out: &out, Notes: io.Discard}))
		require.Equal(t, want, out.String())

		out.Reset()
		_, cfg := newHive(t, answer{200, "[" + string(other.AppendJSON(nil)) + "," + string(event.AppendJSON(nil)) + "]"})
		require.NoError(t, Query(t.Context(), QueryConfig{Config: cfg, Filter: filter, JSON: true, Out: &out, Notes: io.Discard}))
		require.Equal(t, want, out.String())
	}
}

func TestPresenceIsHeard(t *testing.T) {
	online, offline := about(t, "relay", "alice", "online"), about(t, "relay", "alice", "offline")
	other := about(t, "relay", "mallory", "offline")
	var url string
	url = relay(t, func(r relaySide) {
		r.authenticate(url)
		r.stored(online)
		for _, event := range []*nostr.Event{other, offline} {
			r.send(wire.AppendEvent(nil, subID, event.AppendJSON(nil)))
		}
		r.read()
	})
	out := newLines()
	listen(t, ListenConfig{
		Config: Config{URL: url, Key: nostrtest.Key("alice")}, Filter: presenceOf(nostr.KindPresence, "alice"), History: 1, JSON: true, Out: out, Notes: io.Discard,
	})
	require.Equal(t, string(online.AppendJSON(nil)), out.next(t))
	require.Equal(t, string(offline.AppendJSON(nil)), out.next(t))
}

func TestOnlyPresenceIsAboutAnAuthor(t *testing.T) {
	event := about(t, "relay", "alice", "online")
	filter := presenceOf(nostr.KindPresence, "alice")
	require.True(t, answers(&filter, event))
	earlier := event.CreatedAt - 1
	filter.Until = &earlier
	require.False(t, answers(&filter, event), "the other conditions hold")
	filter = presenceOf(nostr.KindText, "alice")
	require.False(t, answers(&filter, event), "another kind was asked for")
	mention := &nostr.Event{Kind: nostr.KindText, CreatedAt: 1, Tags: event.Tags}
	require.NoError(t, mention.Sign(nostrtest.Key("relay")))
	require.False(t, answers(&filter, mention), "no presence")
	filter = presenceOf(nostr.KindPresence, "alice")
	filter.MatchesNothing = true
	require.False(t, answers(&filter, event))
}
