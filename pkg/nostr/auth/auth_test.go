package auth_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

const (
	window    = 60 * time.Second
	challenge = "3a7f"
	relayURL  = "wss://team.example.com/"
)

var (
	now   = time.Unix(nostrtest.Epoch, 999_999_999)
	hosts = []string{"team.example.com", "team.example.com:8443", "localhost:3000"}
)

func check(ev *nostr.Event) error { return auth.CheckAuthEvent(ev, challenge, hosts, now, window) }

func TestCheckAuthEvent(t *testing.T) {
	t.Parallel()
	good := func() []nostrtest.Option {
		return []nostrtest.Option{nostrtest.Kind(nostr.KindAuth), nostrtest.Tag("relay", relayURL), nostrtest.Tag("challenge", challenge)}
	}
	without := func(tags ...nostrtest.Option) []nostrtest.Option {
		return append([]nostrtest.Option{nostrtest.Kind(nostr.KindAuth)}, tags...)
	}
	relay, chal := nostrtest.Tag("relay", relayURL), nostrtest.Tag("challenge", challenge)
	for name, c := range map[string]struct {
		opts []nostrtest.Option
		want error
	}{
		"good":                   {good(), nil},
		"other tags are allowed": {append(good(), nostrtest.Tag("auth", "x", "", "y"), nostrtest.Content("hi")), nil},
		"oldest":                 {append(good(), nostrtest.CreatedAt(nostrtest.Epoch-60)), nil},
		"newest":                 {append(good(), nostrtest.CreatedAt(nostrtest.Epoch+60)), nil},
		"too old":                {append(good(), nostrtest.CreatedAt(nostrtest.Epoch-61)), auth.ErrTime},
		"too new":                {append(good(), nostrtest.CreatedAt(nostrtest.Epoch+61)), auth.ErrTime},
		"end of time":            {append(good(), nostrtest.CreatedAt(math.MaxInt64)), auth.ErrTime},
		"beginning of time":      {append(good(), nostrtest.CreatedAt(math.MinInt64)), auth.ErrTime},
		"wrong kind":             {append(good(), nostrtest.Kind(nostr.KindText)), auth.ErrKind},
		"NIP-98 kind":            {append(good(), nostrtest.Kind(nostr.KindHTTPAuth)), auth.ErrKind},
		"no challenge":           {without(relay), auth.ErrChallenge},
		"challenge of another":   {without(relay, nostrtest.Tag("challenge", "3a7e")), auth.ErrChallenge},
		"challenge in capitals":  {without(relay, nostrtest.Tag("challenge", "3A7F")), auth.ErrChallenge},
		"challenge without text": {without(relay, nostrtest.Tag("challenge")), auth.ErrChallenge},
		"two challenges":         {append(good(), chal), auth.ErrChallenge},
		"challenge and a guess":  {append(good(), nostrtest.Tag("challenge", "x")), auth.ErrChallenge},
		"no relay":               {without(chal), auth.ErrRelay},
		"two relays":             {append(good(), relay), auth.ErrRelay},
		"relay without URL":      {without(chal, nostrtest.Tag("relay")), auth.ErrRelay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := check(nostrtest.Event(t, "alice", c.opts...))
			require.ErrorIs(t, err, c.want)
			if c.want != nil {
				require.NotContains(t, err.Error(), challenge, "a refusal tells nothing")
			}
		})
	}
}

func TestCheckAuthEventRelay(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"wss://team.example.com":                  true,
		"ws://team.example.com":                   true,
		"WSS://Team.Example.COM./":                true,
		"wss://team.example.com:443/":             true,
		"ws://team.example.com:80":                true,
		"wss://team.example.com:8443":             true,
		"ws://127.0.0.1:3000":                     true,
		"ws://[::1]:3000/":                        true,
		"wss://team.example.com:8444":             false,
		"wss://other.example.com":                 false,
		"wss://team.example.com.evil.org":         false,
		"wss://example.com":                       false,
		"wss://team.example.com@evil.org":         false,
		"wss://alice@team.example.com":            false,
		"wss://team.example.com/path":             false,
		"wss://team.example.com//":                false,
		"wss://team.example.com/?x":               false,
		"wss://team.example.com?":                 false,
		"wss://team.example.com/#x":               false,
		"https://team.example.com":                false,
		"team.example.com":                        false,
		"//team.example.com":                      false,
		"wss:team.example.com":                    false,
		"wss:///":                                 false,
		"wss://":                                  false,
		"":                                        false,
		"wss://team.example.com\x00":              false,
		"wss://team.example.com:99999":            false,
		"\twss://team.example.com":                false,
		"wss://team.example.com%00":               false,
		"wss://" + strings.Repeat("a.", 200) + "": false,
	} {
		ev := nostrtest.Auth(t, "alice", challenge, url, nostrtest.Epoch)
		if ok {
			require.NoError(t, check(ev), url)
		} else {
			require.ErrorIs(t, check(ev), auth.ErrRelay, url)
		}
	}
	ev := nostrtest.Auth(t, "alice", challenge, relayURL, nostrtest.Epoch)
	require.ErrorIs(t, auth.CheckAuthEvent(ev, challenge, nil, now, window), auth.ErrRelay, "no host, no relay")
	require.ErrorIs(t, auth.CheckAuthEvent(ev, challenge, []string{"", "/"}, now, window), auth.ErrRelay)
	require.NoError(t, auth.CheckAuthEvent(ev, challenge, []string{"", "TEAM.example.com:443"}, now, window))
}

func TestCheckAuthEventVerifies(t *testing.T) {
	t.Parallel()
	ev := nostrtest.Auth(t, "alice", challenge, relayURL, nostrtest.Epoch)
	ev.PubKey = nostrtest.PubKey("bob")
	require.ErrorIs(t, check(ev), nostr.ErrBadID)
	ev.ID = ev.ComputeID()
	require.ErrorIs(t, check(ev), nostr.ErrBadSignature)
}

func TestEmptyChallengeIsNeverMet(t *testing.T) {
	t.Parallel()
	for _, tag := range []nostrtest.Option{nostrtest.Tag("challenge", ""), nostrtest.Tag("challenge")} {
		ev := nostrtest.Event(t, "alice", nostrtest.Kind(nostr.KindAuth), nostrtest.Tag("relay", relayURL), tag)
		require.ErrorIs(t, auth.CheckAuthEvent(ev, "", hosts, now, window), auth.ErrChallenge)
	}
}

func TestRelayHost(t *testing.T) {
	for relay, want := range map[string]string{
		"wss://Team.Example/":      "team.example",
		"ws://team.example:443":    "team.example",
		"ws://127.0.0.1:3000":      "localhost:3000",
		"https://team.example":     "",
		"wss://team.example/inbox": "",
		"wss://team.example/?":     "",
		"wss://me@team.example":    "",
		"team.example":             "",
		"":                         "",
	} {
		got, ok := auth.RelayHost(relay)
		require.Equal(t, want, got, relay)
		require.Equal(t, want != "", ok, relay)
	}
}
