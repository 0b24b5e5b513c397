package nip19_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
)

// TestBech32 are vectors of BIP-173 that are whole bytes.
func TestBech32(t *testing.T) {
	t.Parallel()
	for text, prefix := range map[string]string{
		"A12UEL5L": "a",
		"a12uel5l": "a",
		"an83characterlonghumanreadablepartthatcontainsthenumber1andtheexcludedcharactersbio1tt5tgs": "an83characterlonghumanreadablepartthatcontainsthenumber1andtheexcludedcharactersbio",
		"abcdef1qpzry9x8gf2tvdw0s3jn54khce6mua7lmqqqxw":                                              "abcdef",
		"?1ezyfcl": "?",
	} {
		got, data, ok := nip19.DecodeBech32(text)
		require.True(t, ok, text)
		require.Equal(t, prefix, got)
		require.Equal(t, strings.ToLower(text), nip19.EncodeBech32(got, data))
	}
	for _, text := range []string{
		"\x201nwldj5", "\x7f1axkwrx", "\x801eym55h", "pzry9x0s0muk", "1pzry9x0s0muk", "x1b4n0q5v", "li1dgmt3", "de1lg7wt\xff", "A1G7SGD8",
		"10a06t8", "1qzzfhee", "a12UEL5L",
	} {
		_, _, ok := nip19.DecodeBech32(text)
		require.False(t, ok, text)
	}
}
