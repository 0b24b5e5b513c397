package auth_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// The test vector of NIP-OA: the owner's secret key is 1, the agent's is 2.
const (
	vectorOwner      = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
	vectorAgent      = "c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5"
	vectorConditions = "kind=1&created_at<1713957000"
	vectorSig        = "8b7df2575caf0a108374f8471722b233c53f9ff827a8b0f91861966c3b9dd5cb2e189eae9f49d72187674c2f5bd244145e10ff86c9f257ffe65a1ee5f108b369"
)

func attest(tb testing.TB, owner, agent, conditions string) nostr.Tag {
	tb.Helper()
	tag, err := auth.Attest(nostrtest.Key(owner), nostrtest.PubKey(agent), conditions)
	require.NoError(tb, err)
	return tag
}

func TestAttestationVector(t *testing.T) {
	t.Parallel()
	agent, err := nostr.ParsePubKey(vectorAgent)
	require.NoError(t, err)
	tag := nostr.Tag{"auth", vectorOwner, vectorConditions, vectorSig}
	a, err := auth.ParseAttestation(tag, agent)
	require.NoError(t, err)
	require.Equal(t, vectorOwner, a.Owner.String())
	require.Equal(t, agent, a.Agent)
	require.True(t, a.Covers(1713956999))
	require.False(t, a.Covers(1713957000), "the bounds are strict")
	require.Equal(t, time.Unix(1713957000, 0), a.Until())

	text, err := json.Marshal(tag)
	require.NoError(t, err)
	decoded, err := auth.DecodeAttestation(string(text), agent)
	require.NoError(t, err)
	require.Equal(t, a, decoded)

	owner, err := nostr.ParseSecretKey(strings.Repeat("0", 63) + "1")
	require.NoError(t, err)
	made, err := auth.Attest(owner, agent, vectorConditions)
	require.NoError(t, err)
	_, err = auth.ParseAttestation(made, agent)
	require.NoError(t, err)
}

func TestAttestationIsForOneAgent(t *testing.T) {
	t.Parallel()
	good := attest(t, "alice", "bot", "")
	a, err := auth.ParseAttestation(good, nostrtest.PubKey("bot"))
	require.NoError(t, err)
	require.Equal(t, nostrtest.PubKey("alice"), a.Owner)
	require.True(t, a.Until().IsZero())
	require.True(t, a.Covers(0))

	change := func(i int, value string) nostr.Tag {
		tag := append(nostr.Tag(nil), good...)
		tag[i] = value
		return tag
	}
	for name, c := range map[string]struct {
		tag  nostr.Tag
		want error
	}{
		"another's owner":          {change(1, nostrtest.PubKey("bob").String()), auth.ErrOwner},
		"no point of the curve":    {change(1, strings.Repeat("f", 64)), auth.ErrOwner},
		"upper case":               {change(1, strings.ToUpper(good[1])), auth.ErrAttestation},
		"other conditions":         {change(2, "kind=9"), auth.ErrOwner},
		"a signature that is none": {change(3, "00"), auth.ErrAttestation},
		"another tag":              {change(0, "delegation"), auth.ErrAttestation},
		"three elements":           {good[:3], auth.ErrAttestation},
		"five elements":            {append(change(0, "auth"), ""), auth.ErrAttestation},
		"no element":               {nil, auth.ErrAttestation},
		"the agent's own word":     {change(1, nostrtest.PubKey("bot").String()), auth.ErrSelfAttested},
	} {
		_, err := auth.ParseAttestation(c.tag, nostrtest.PubKey("bot"))
		require.ErrorIs(t, err, c.want, name)
	}
	_, err = auth.ParseAttestation(good, nostrtest.PubKey("mallory"))
	require.ErrorIs(t, err, auth.ErrOwner, "what is said of one agent says nothing of another")
	_, err = auth.Attest(nostrtest.Key("alice"), nostrtest.PubKey("alice"), "")
	require.ErrorIs(t, err, auth.ErrSelfAttested)
}

func TestAttestSaysWhichConditionIsMalformed(t *testing.T) {
	t.Parallel()
	_, err := auth.Attest(nostrtest.Key("alice"), nostrtest.PubKey("bot"), "kind=1&foo=1&bar")
	require.EqualError(t, err, `the conditions of the auth tag are malformed: "foo=1" is none of kind=NUMBER, created_at<UNIXTIME and created_at>UNIXTIME`)
	_, err = auth.Attest(nostrtest.Key("alice"), nostrtest.PubKey("bot"), strings.Repeat("kind=1&", 200)+"kind=1")
	require.EqualError(t, err, "the conditions of the auth tag are malformed: longer than 1024 bytes")
}

func TestAttestationConditions(t *testing.T) {
	t.Parallel()
	for _, conditions := range []string{
		"kind=1&", "&kind=1", "kind=1&&kind=2", "&", "kind=01", "kind=-1", "kind=65536", "kind=", "kind", "Kind=1", "kind<1", "kind= 1",
		" kind=1", "created_at=5", "created_at<4294967296", "created_at<01", "created_at>+1", "created_at>1.0", "created_at>0x1",
		"expires<5", "=", strings.Repeat("kind=1&", 200) + "kind=1",
	} {
		_, err := auth.Attest(nostrtest.Key("alice"), nostrtest.PubKey("bot"), conditions)
		require.ErrorIs(t, err, auth.ErrConditions, conditions)
		tag := attest(t, "alice", "bot", "")
		tag[2] = conditions
		_, err = auth.ParseAttestation(tag, nostrtest.PubKey("bot"))
		require.ErrorIs(t, err, auth.ErrConditions, conditions)
	}
	for conditions, covered := range map[string][2]bool{ // at 100 and at 200
		"":                                {true, true},
		"kind=9":                          {true, true},
		"kind=0&kind=65535":               {true, true},
		"created_at<200":                  {true, false},
		"created_at>100":                  {false, true},
		"created_at<201&created_at<150":   {true, false},
		"created_at>100&created_at<200":   {false, false},
		"created_at>0&created_at>150":     {false, true},
		"created_at<4294967295&kind=9":    {true, true},
		"created_at<0":                    {false, false},
		"created_at>99&created_at<150":    {true, false},
		"created_at<150&created_at>99":    {true, false},
		"created_at>4294967295":           {false, false},
		"kind=1&created_at<300&kind=2":    {true, true},
		"created_at<101&created_at>99999": {false, false},
	} {
		a, err := auth.ParseAttestation(attest(t, "alice", "bot", conditions), nostrtest.PubKey("bot"))
		require.NoError(t, err, conditions)
		require.Equal(t, covered[0], a.Covers(100), conditions)
		require.Equal(t, covered[1], a.Covers(200), conditions)
	}
}

func TestAttested(t *testing.T) {
	t.Parallel()
	tag := nostrtest.Tag(attest(t, "alice", "bot", "")...)
	a, err := auth.Attested(nostrtest.Event(t, "bot", tag))
	require.NoError(t, err)
	require.Equal(t, nostrtest.PubKey("alice"), a.Owner)
	for name, opts := range map[string][]nostrtest.Option{
		"none":                {},
		"two":                 {tag, tag},
		"one and a malformed": {tag, nostrtest.Tag("auth")},
	} {
		_, err := auth.Attested(nostrtest.Event(t, "bot", opts...))
		require.ErrorIs(t, err, auth.ErrNoAttestation, name)
	}
	_, err = auth.Attested(nostrtest.Event(t, "mallory", tag))
	require.ErrorIs(t, err, auth.ErrOwner)
}

func TestDecodeAttestation(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "null", "[]", "{}", `"auth"`, `["auth"]`, `["auth",1,"",""]`, `[["auth","","",""]]`, "[" + strings.Repeat(`"x",`, 1<<16) + `""]`,
	} {
		_, err := auth.DecodeAttestation(text, nostrtest.PubKey("bot"))
		require.ErrorIs(t, err, auth.ErrAttestation, text[:min(len(text), 40)])
	}
}

// FuzzAttestation: whatever the conditions, what an owner attests is read back for its agent and for nobody else, and
// what was not signed attests nothing.
func FuzzAttestation(f *testing.F) {
	f.Add("", "", int64(0))
	f.Add(vectorConditions, "kind=1", int64(1713957000))
	f.Add("created_at>5&created_at<9", "created_at<9&created_at>5", int64(9))
	f.Add("kind=01", "kind=1&", int64(-1))
	f.Fuzz(func(t *testing.T, conditions, others string, at int64) {
		tag, err := auth.Attest(nostrtest.Key("alice"), nostrtest.PubKey("bot"), conditions)
		if err != nil {
			require.ErrorIs(t, err, auth.ErrConditions)
			_, err = auth.ParseAttestation(nostr.Tag{"auth", vectorOwner, conditions, vectorSig}, nostrtest.PubKey("bot"))
			require.ErrorIs(t, err, auth.ErrConditions)
			return
		}
		a, err := auth.ParseAttestation(tag, nostrtest.PubKey("bot"))
		require.NoError(t, err)
		require.Equal(t, nostrtest.PubKey("alice"), a.Owner)
		require.Equal(t, strings.ToLower(conditions), conditions)
		require.NotContains(t, conditions, " ")
		if !a.Until().IsZero() {
			require.Contains(t, conditions, "created_at<")
			require.False(t, a.Covers(a.Until().Unix()))
		}
		if !strings.Contains(conditions, "created_at") {
			require.True(t, a.Covers(at&(1<<40-1)))
		}
		_, err = auth.ParseAttestation(tag, nostrtest.PubKey("mallory"))
		require.ErrorIs(t, err, auth.ErrOwner)
		if others != conditions {
			tag[2] = others
			_, err = auth.ParseAttestation(tag, nostrtest.PubKey("bot"))
			require.Error(t, err)
		}
	})
}

// FuzzAttestationHeader: of whatever stands in the header, only what an owner has signed attests anything.
func FuzzAttestationHeader(f *testing.F) {
	good, err := json.Marshal(attest(f, "alice", "bot", "kind=9"))
	require.NoError(f, err)
	f.Add(string(good))
	f.Add(`["auth","` + vectorOwner + `","` + vectorConditions + `","` + vectorSig + `"]`)
	f.Add("[]")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := auth.DecodeAttestation(text, nostrtest.PubKey("bot"))
		if err != nil {
			require.Equal(t, auth.Attestation{}, a)
			return
		}
		require.Equal(t, nostrtest.PubKey("alice"), a.Owner)
	})
}
