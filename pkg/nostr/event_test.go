package nostr_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

func TestKindClasses(t *testing.T) {
	t.Parallel()
	for kind, class := range map[nostr.Kind]string{
		0: "replaceable", 1: "regular", 2: "regular", 3: "replaceable", 4: "regular", 41: "regular",
		999: "regular", 9999: "regular", 10000: "replaceable", 19999: "replaceable", 20000: "ephemeral",
		22242: "ephemeral", 29999: "ephemeral", 30000: "addressable", 39000: "addressable",
		39999: "addressable", 40000: "regular", 65535: "regular",
	} {
		got := map[string]bool{
			"replaceable": kind.IsReplaceable(), "ephemeral": kind.IsEphemeral(),
			"addressable": kind.IsAddressable(), "regular": kind.IsRegular(),
		}
		for name, is := range got {
			require.Equal(t, name == class, is, "kind %d is %s", kind, name)
		}
	}
}

func TestEveryKindHasOneClass(t *testing.T) {
	t.Parallel()
	for k := range 1 << 16 {
		n := 0
		for _, is := range []bool{nostr.Kind(k).IsReplaceable(), nostr.Kind(k).IsEphemeral(), nostr.Kind(k).IsAddressable(), nostr.Kind(k).IsRegular()} {
			if is {
				n++
			}
		}
		require.Equal(t, 1, n, "kind %d", k)
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	tags := nostr.Tags{{}, {"d"}, {"d", "second"}, {"e", "x", "y"}, {"e"}, {"E", "z"}}
	v, ok := tags.First("d")
	require.True(t, ok, "a tag without value is there")
	require.Empty(t, v)
	v, ok = tags.First("e")
	require.True(t, ok)
	require.Equal(t, "x", v)
	_, ok = tags.First("")
	require.False(t, ok, "an empty tag has no name")
	require.Equal(t, 2, tags.Count("e"))
	require.Equal(t, 1, tags.Count("E"))
	require.Zero(t, tags.Count("p"))
	for tag := range tags.All("e") {
		require.Equal(t, "x", tag.Value(), "stops when told to")
		break
	}
	require.Empty(t, nostr.Tag{}.Key())
	require.Empty(t, nostr.Tag{}.Value())
	require.Equal(t, "e", tags[3].Key())
	require.True(t, nostr.IsIndexed("z"))
	require.True(t, nostr.IsIndexed("A"))
	for _, name := range []string{"", "-", "1", "ee", "é", "@", "[", "`", "{"} {
		require.False(t, nostr.IsIndexed(name), name)
	}
}

func TestEventAccessors(t *testing.T) {
	t.Parallel()
	e := nostrtest.Event(t, "alice", nostrtest.Tag("d", "x"), nostrtest.Tag("d", "y"), nostrtest.Channel("lobby"))
	require.Equal(t, "x", e.DTag())
	h, ok := e.Channel()
	require.True(t, ok)
	require.Equal(t, "lobby", h)

	e = nostrtest.Event(t, "alice", nostrtest.Tag("h"))
	require.Empty(t, e.DTag())
	h, ok = e.Channel()
	require.True(t, ok, "a malformed h tag is not a missing one")
	require.Empty(t, h)

	_, ok = nostrtest.Event(t, "alice").Channel()
	require.False(t, ok)
}

func TestExpiration(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int64{"1600000000": 1600000000, "0": 0, "-5": -5, "9223372036854775807": 9223372036854775807} {
		at, ok := nostrtest.Event(t, "alice", nostrtest.Tag("expiration", value)).Expiration()
		require.True(t, ok, value)
		require.Equal(t, want, at)
	}
	for _, value := range []string{"", "+5", "1e9", "1600000000.0", " 5", "0x10", "1_000", "9223372036854775808", "soon"} {
		_, ok := nostrtest.Event(t, "alice", nostrtest.Tag("expiration", value)).Expiration()
		require.False(t, ok, value)
	}
	_, ok := nostrtest.Event(t, "alice").Expiration()
	require.False(t, ok)
}

func TestEventLogValue(t *testing.T) {
	t.Parallel()
	e := nostrtest.Event(t, "alice", nostrtest.Content("a secret"), nostrtest.Tag("h", "hideout"))
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("event", slog.Any("event", e), slog.Any("none", (*nostr.Event)(nil)))
	require.Contains(t, out.String(), "event.id="+e.ID.String()[:8]+" event.kind=1 event.pubkey="+e.PubKey.String()[:8]+" none=none")
	require.NotContains(t, out.String(), "secret")
	require.NotContains(t, out.String(), "hideout")
}

func TestParseHex(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("0123456789abcdef", 4)
	id, err := nostr.ParseID(good)
	require.NoError(t, err)
	require.Equal(t, good, id.String())
	p, err := nostr.ParsePubKey(good)
	require.NoError(t, err)
	require.Equal(t, good, p.String())
	sig, err := nostr.ParseSig(good + good)
	require.NoError(t, err)
	require.Equal(t, good+good, sig.String())
	require.False(t, id.IsZero())
	require.True(t, nostr.PubKey{}.IsZero())

	var back nostr.ID
	text, err := id.MarshalText()
	require.NoError(t, err)
	require.NoError(t, back.UnmarshalText(text))
	require.Equal(t, id, back)

	for name, bad := range map[string]string{
		"empty": "", "short": good[:63], "even shorter": good[:62], "long": good + "0", "longer": good + "00",
		"upper case": strings.ToUpper(good), "one upper": "A" + good[1:], "not hex": good[:63] + "g",
		"blank": " " + good[1:], "NUL": good[:63] + "\x00", "prefix": "0x" + good[2:], "high bytes": good[:62] + "é",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id, err := nostr.ParseID(bad)
			require.ErrorIs(t, err, nostr.ErrBadHex)
			require.True(t, id.IsZero())
		})
	}
}
