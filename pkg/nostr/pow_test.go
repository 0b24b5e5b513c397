package nostr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

func TestLeadingZeroBits(t *testing.T) {
	for text, want := range map[string]int{
		"000000000e9d97a1ab09fc381030b346cdd7a142ad57e6df0b46dc9bef6c7e2d": 36, // NIP-13
		"000006d8c378af1779d2feebc7603a125d99eca0ccf1085959b307f64e5dd358": 21, // its mined note
		"002f000000000000000000000000000000000000000000000000000000000000": 10,
		"8000000000000000000000000000000000000000000000000000000000000000": 0,
		"7f00000000000000000000000000000000000000000000000000000000000000": 1,
		"0000000000000000000000000000000000000000000000000000000000000001": 255,
		"0000000000000000000000000000000000000000000000000000000000000000": 256,
	} {
		id, err := nostr.ParseID(text)
		require.NoError(t, err)
		require.Equal(t, want, id.LeadingZeroBits(), text)
	}
}

func TestCommittedDifficulty(t *testing.T) {
	for _, c := range []struct {
		name string
		tags nostr.Tags
		want int
		ok   bool
	}{
		{"none", nil, 0, false},
		{"of NIP-13", nostr.Tags{{"nonce", "776797", "20"}}, 20, true},
		{"the first counts", nostr.Tags{{"t", "x"}, {"nonce", "1", "5"}, {"nonce", "1", "30"}}, 5, true},
		{"without a target", nostr.Tags{{"nonce", "1"}}, 0, false},
		{"no number", nostr.Tags{{"nonce", "1", "many"}}, 0, false},
		{"negative", nostr.Tags{{"nonce", "1", "-1"}}, 0, false},
		{"all of it", nostr.Tags{{"nonce", "1", "256"}}, 256, true},
		{"more than there is", nostr.Tags{{"nonce", "1", "257"}}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := (&nostr.Event{Tags: c.tags}).CommittedDifficulty()
			require.Equal(t, c.want, got)
			require.Equal(t, c.ok, ok)
		})
	}
}
