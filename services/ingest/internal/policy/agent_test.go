package policy_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// sealed looks like a NIP-44 payload of so many bytes.
func sealed(n int) nostrtest.Option {
	return nostrtest.Content(base64.StdEncoding.EncodeToString(append([]byte{2}, make([]byte, n-1)...)))
}

// of is a tag with the key of somebody.
func of(tag, name string) nostrtest.Option {
	return nostrtest.Tag(tag, nostrtest.PubKey(name).String())
}

// read is what bot is answered for an event, empty if it is accepted as far as one can tell without the state.
func read(t *testing.T, k nostr.Kind, opts ...nostrtest.Option) (*policy.Candidate, string) {
	t.Helper()
	c, v := policy.Check(submission("bot"), nostrtest.Event(t, "bot", append(opts, nostrtest.Kind(k))...), limits, now)
	return c, v.Message
}

// Forms are as the registry has them, whichever kind it is.
func TestForms(t *testing.T) {
	d, tag := func(s string) nostrtest.Option { return nostrtest.Tag("d", s) }, nostrtest.Tag
	hash := strings.Repeat("0a", 32)
	for _, c := range []struct {
		kind nostr.Kind
		opts []nostrtest.Option
		want string
	}{
		{nostr.KindPersona, []nostrtest.Option{d("cook-2_b")}, ""},
		{nostr.KindPersona, []nostrtest.Option{d("2")}, ""},
		{nostr.KindPersona, []nostrtest.Option{d(strings.Repeat("a", 64))}, ""},
		{nostr.KindPersona, []nostrtest.Option{d(strings.Repeat("a", 65))}, "d tag must be a slug: 1 to 64 of a-z, 0-9, and after the first also _ and -"},
		{nostr.KindPersona, []nostrtest.Option{d("-cook")}, "d tag must be a slug: 1 to 64 of a-z, 0-9, and after the first also _ and -"},
		{nostr.KindPersona, []nostrtest.Option{d("Cook")}, "d tag must be a slug: 1 to 64 of a-z, 0-9, and after the first also _ and -"},
		{nostr.KindPersona, []nostrtest.Option{d("a/b")}, "d tag must be a slug: 1 to 64 of a-z, 0-9, and after the first also _ and -"},
		{nostr.KindPersona, nil, "missing d tag"},
		{nostr.KindPersona, []nostrtest.Option{d("a"), d("a")}, "duplicate d tag"},
		{nostr.KindPersona, []nostrtest.Option{d("")}, "empty d tag"},
		{nostr.KindPersona, []nostrtest.Option{d("a"), tag("shared", "true")}, ""},
		{nostr.KindPersona, []nostrtest.Option{d("a"), tag("shared", "false")}, `a shared tag must be exactly ["shared","true"], and there only once`},
		{nostr.KindPersona, []nostrtest.Option{d("a"), tag("shared")}, `a shared tag must be exactly ["shared","true"], and there only once`},
		{nostr.KindPersona, []nostrtest.Option{d("a"), tag("shared", "true", "")}, `a shared tag must be exactly ["shared","true"], and there only once`},
		{nostr.KindPersona, []nostrtest.Option{d("a"), tag("shared", "true"), tag("shared", "true")}, `a shared tag must be exactly ["shared","true"], and there only once`},
		{nostr.KindTeamCatalog, []nostrtest.Option{d("Any Name")}, ""},
		{nostr.KindTeamCatalog, []nostrtest.Option{d("")}, "empty d tag"},
		{nostr.KindTeamCatalog, []nostrtest.Option{d("a"), tag("shared", "1")}, `a shared tag must be exactly ["shared","true"], and there only once`},
		{nostr.KindTeam, []nostrtest.Option{d("a"), tag("shared", "whatever")}, ""},
		{nostr.KindTeam, nil, "missing d tag"},
		{nostr.KindManagedAgent, nil, "missing d tag"},
		{nostr.KindPrivateManagedAgent, []nostrtest.Option{d("a"), sealed(99)}, ""},
		{nostr.KindPrivateManagedAgent, []nostrtest.Option{d("a")}, "kind:30179 content must be encrypted (NIP-44)"},
		{nostr.KindAgentMemory, []nostrtest.Option{d(hash), of("p", "alice"), sealed(99)}, ""},
		{nostr.KindAgentMemory, []nostrtest.Option{d(hash), of("p", "alice"), sealed(1 + 32 + 65_538 + 32)}, ""},
		{nostr.KindAgentMemory, []nostrtest.Option{d(hash), of("p", "alice"), sealed(98)}, "kind:30174 content must be encrypted (NIP-44)"},
		{nostr.KindAgentMemory, []nostrtest.Option{d(hash), of("p", "alice"), sealed(1 + 32 + 65_538 + 33)}, "kind:30174 content must be encrypted (NIP-44)"},
		{nostr.KindAgentMemory, []nostrtest.Option{d(hash), of("p", "alice"), nostrtest.Content(strings.Repeat("AQ", 100))}, "kind:30174 content must be encrypted (NIP-44)"},
		{nostr.KindAgentMemory, []nostrtest.Option{d(hash), of("p", "alice"), nostrtest.Content(strings.Repeat("{}", 100))}, "kind:30174 content must be encrypted (NIP-44)"},
		{nostr.KindAgentMemory, []nostrtest.Option{d(hash[1:]), of("p", "alice"), sealed(99)}, "d tag must be 64 lower-case hexadecimal digits"},
		{nostr.KindAgentMemory, []nostrtest.Option{d(strings.ToUpper(hash)), of("p", "alice"), sealed(99)}, "d tag must be 64 lower-case hexadecimal digits"},
		{nostr.KindAgentMemory, []nostrtest.Option{d(hash), sealed(99)}, "kind:30174 must have exactly one p tag, with a public key"},
		{nostr.KindAgentMemory, []nostrtest.Option{d(hash), of("p", "alice"), of("p", "bob"), sealed(99)}, "kind:30174 must have exactly one p tag, with a public key"},
		{nostr.KindAgentMemory, []nostrtest.Option{d(hash), tag("p", "alice"), sealed(99)}, "kind:30174 must have exactly one p tag, with a public key"},
	} {
		_, got := read(t, c.kind, c.opts...)
		require.Equal(t, c.want, got, "kind %d: %s", c.kind, fmt.Sprint(nostrtest.Event(t, "bot", c.opts...).Tags))
	}
	for _, k := range kind.List(func(r kind.Rules) bool {
		return r.Form != kind.Form{} && r.Sender != kind.Command && r.Sender != kind.Relay
	}) {
		_, got := read(t, k)
		require.NotEmpty(t, got, "kind %d", k)
	}
}

func TestFramesAndMetricsAreRead(t *testing.T) {
	bot, alice := nostrtest.PubKey("bot"), nostrtest.PubKey("alice")
	frame, p, agent := nostrtest.Tag("frame", "telemetry"), of("p", "alice"), of("agent", "bot")
	const wrong = "observer frame is not authorized for this agent owner"
	for name, c := range map[string]struct {
		opts []nostrtest.Option
		want *policy.Agency
		msg  string
	}{
		"telemetry":          {[]nostrtest.Option{p, agent, frame}, &policy.Agency{Agent: bot, Owner: alice, Frame: true}, ""},
		"control":            {[]nostrtest.Option{p, of("agent", "alice"), nostrtest.Tag("frame", "control")}, &policy.Agency{Agent: alice, Owner: bot, Frame: true}, ""},
		"of an unknown sort": {[]nostrtest.Option{p, agent, nostrtest.Tag("frame", "song")}, &policy.Agency{Agent: bot, Owner: alice, Frame: true, Drop: true}, ""},
		"unknown, to an agent": {
			[]nostrtest.Option{p, of("agent", "alice"), nostrtest.Tag("frame", "song")}, &policy.Agency{Agent: alice, Owner: bot, Frame: true, Drop: true}, "",
		},
		"telemetry by another": {[]nostrtest.Option{p, of("agent", "carol"), frame}, nil, wrong},
		"telemetry to itself":  {[]nostrtest.Option{of("p", "bot"), agent, frame}, nil, wrong},
		"control of another":   {[]nostrtest.Option{p, of("agent", "carol"), nostrtest.Tag("frame", "control")}, nil, wrong},
		"control of itself":    {[]nostrtest.Option{of("p", "bot"), agent, nostrtest.Tag("frame", "control")}, nil, wrong},
		"without an agent":     {[]nostrtest.Option{p, frame}, nil, "observer frame must have exactly one agent tag, with a public key"},
		"two agents":           {[]nostrtest.Option{p, agent, agent, frame}, nil, "observer frame must have exactly one agent tag, with a public key"},
		"without a sort":       {[]nostrtest.Option{p, agent}, nil, "observer frame must have exactly one frame tag"},
		"two sorts":            {[]nostrtest.Option{p, agent, frame, frame}, nil, "observer frame must have exactly one frame tag"},
		"to two":               {[]nostrtest.Option{p, of("p", "carol"), agent, frame}, nil, "kind:24200 must have exactly one p tag, with a public key"},
		"old":                  {[]nostrtest.Option{p, agent, frame, nostrtest.CreatedAt(nostrtest.Epoch - 301)}, nil, "observer frame timestamp outside ±5 minute freshness window"},
		"early":                {[]nostrtest.Option{p, agent, frame, nostrtest.CreatedAt(nostrtest.Epoch + 301)}, nil, "observer frame timestamp outside ±5 minute freshness window"},
	} {
		got, msg := read(t, nostr.KindAgentFrame, append(c.opts, sealed(200))...)
		require.Equal(t, c.msg, msg, name)
		if c.want != nil {
			require.Equal(t, c.want, got.Agency, name)
			require.Equal(t, c.want.Drop, got.IsDropped(), name)
		}
	}
	_, msg := read(t, nostr.KindAgentFrame, p, agent, frame)
	require.Equal(t, "kind:24200 content must be encrypted (NIP-44)", msg)

	got, msg := read(t, nostr.KindTurnMetric, p, agent, sealed(200))
	require.Empty(t, msg)
	require.Equal(t, &policy.Agency{Agent: bot, Owner: alice}, got.Agency)
	for want, opts := range map[string][]nostrtest.Option{
		"agent-turn-metric must have exactly one agent tag, with its author's key": {p, of("agent", "carol"), sealed(200)},
		"agent-turn-metric must not have an h tag":                                 {p, agent, nostrtest.Channel("c"), sealed(200)},
		"kind:44200 must have exactly one p tag, with a public key":                {agent, sealed(200)},
		"kind:44200 content must be encrypted (NIP-44)":                            {p, agent},
	} {
		_, msg := read(t, nostr.KindTurnMetric, opts...)
		require.Equal(t, want, msg)
	}
}

func TestJobsAreRead(t *testing.T) {
	c, msg := read(t, nostr.KindJobRequest, of("p", "alice"))
	require.Empty(t, msg)
	require.Nil(t, c.Reference)
	for _, opts := range [][]nostrtest.Option{nil, {of("p", "alice"), of("p", "carol")}, {nostrtest.Tag("p", "alice")}} {
		_, msg = read(t, nostr.KindJobRequest, opts...)
		require.Equal(t, "a job request must have exactly one p tag, with the key of an agent", msg)
	}
	_, msg = read(t, nostr.KindJobRequest, of("p", "bot"))
	require.Equal(t, "a job is asked of somebody else", msg)
	for k := nostr.KindJobAccepted; k <= nostr.KindJobError; k++ {
		_, msg = read(t, k)
		require.Equal(t, "an event of a job must reference its request via e tag", msg)
		c, msg = read(t, k, nostrtest.Tag("e", nostr.ID{1}.String()))
		require.Empty(t, msg)
		require.True(t, c.Stands())
	}
}
