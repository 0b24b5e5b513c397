package nostr_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

func TestSignedEventsVerify(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := nostrtest.SignedEvent().Draw(t, "event")
		require.NoError(t, e.Verify())
		e.Sig[rapid.IntRange(0, 63).Draw(t, "byte")] ^= 1
		require.ErrorIs(t, e.Verify(), nostr.ErrBadSignature)
	})
}

func TestSignatureOfAnotherAuthor(t *testing.T) {
	t.Parallel()
	e := nostrtest.Event(t, "alice")
	e.PubKey = nostrtest.PubKey("bob")
	e.ID = e.ComputeID()
	require.ErrorIs(t, e.Verify(), nostr.ErrBadSignature)
	e.PubKey = nostr.PubKey{}
	e.ID = e.ComputeID()
	require.ErrorIs(t, e.Verify(), nostr.ErrBadSignature, "an author that is no point of the curve")
}

func TestSignWithoutKey(t *testing.T) {
	t.Parallel()
	var e nostr.Event
	require.ErrorIs(t, e.Sign(nil), nostr.ErrBadSecret)
	require.ErrorIs(t, e.Sign(&nostr.SecretKey{}), nostr.ErrBadSecret)
}

func TestParseSecretKey(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"empty":       "",
		"zero":        strings.Repeat("0", 64),
		"group order": "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141",
		"too large":   strings.Repeat("f", 64),
		"upper case":  strings.Repeat("A", 64),
		"short":       strings.Repeat("1", 63),
		"long":        strings.Repeat("1", 65),
		"not hex":     strings.Repeat("g", 64),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := nostr.ParseSecretKey(s)
			require.ErrorIs(t, err, nostr.ErrBadSecret)
		})
	}
	one := strings.Repeat("0", 63) + "1"
	k, err := nostr.ParseSecretKey(one)
	require.NoError(t, err)
	require.Equal(t, one, k.Hex())
	require.Equal(t, "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798", k.PubKey().String())
}

func TestGenerateSecretKey(t *testing.T) {
	t.Parallel()
	a, err := nostr.GenerateSecretKey()
	require.NoError(t, err)
	b, err := nostr.GenerateSecretKey()
	require.NoError(t, err)
	require.NotEqual(t, a.Hex(), b.Hex())
	again, err := nostr.ParseSecretKey(a.Hex())
	require.NoError(t, err)
	require.Equal(t, a.PubKey(), again.PubKey())
}

// TestSecretKeyIsNeverPrinted looks for the key in whatever a careless print could make of it.
func TestSecretKeyIsNeverPrinted(t *testing.T) {
	t.Parallel()
	k := nostrtest.Key("alice")
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o"} {
		fmt.Fprintf(&out, verb+verb, k, *k)
	}
	fmt.Fprintf(&out, "%v %+v %x", struct{ K *nostr.SecretKey }{k}, []nostr.SecretKey{*k}, map[string]*nostr.SecretKey{"": k})
	slog.New(slog.NewJSONHandler(&out, nil)).Info("key", slog.Any("k", k), slog.Any("v", *k))
	j, err := json.Marshal([]any{k, *k})
	require.NoError(t, err)
	out.Write(j)
	out.WriteString(k.String())
	require.NotContains(t, strings.ToLower(out.String()), k.Hex()[:8])
	require.Contains(t, out.String(), "redacted")
}

func BenchmarkVerify(b *testing.B) {
	e := nostrtest.Event(b, "alice", nostrtest.Channel("lobby"), nostrtest.Content("hello"))
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Verify(); err != nil {
			b.Fatal(err)
		}
	}
}
