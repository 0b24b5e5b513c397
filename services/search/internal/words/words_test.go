package words

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	require.Equal(t, []nostr.Kind{0, 9, 30023, 40002, 45001, 45003}, Kinds())
	for _, k := range []nostr.Kind{4, 1059, 21059, 1, 1984} {
		require.False(t, IsIndexed(k), k)
	}
	require.True(t, IsIndexed(9))
}

func TestOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b", Of(&nostr.Event{Kind: 9, Content: "a\x00b", Tags: nostr.Tags{{"title", "no"}}}))
	require.Equal(t, "Bees\nTheir dance\nhive", Of(&nostr.Event{
		Kind: 30023, Content: "hive", Tags: nostr.Tags{{"summary", "Their dance"}, {"title", "Bees"}, {"title", "not this"}},
	}))
	long := Of(&nostr.Event{Kind: 9, Content: "x" + strings.Repeat("é", MaxBytes)})
	require.Len(t, long, MaxBytes-1)
	require.True(t, utf8.ValidString(long))
}

func TestIn(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"best nostr apps":                  "best nostr apps",
		" orange   language:en  -apple\n":  "orange -apple",
		`"not a:pair" b:pair or c`:         `"not a:pair" or c`,
		"https://hive.example 10:30 bees:": "https://hive.example bees:",
		":x x: a/b:c":                      ":x x: a/b:c",
		"nsfw:false include:spam":          "",
		"":                                 "",
		" \x00\t":                          "",
	} {
		got, ok := In(query)
		require.Equal(t, want, got, query)
		require.Equal(t, want != "", ok, query)
	}
}
