package nostr_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

func TestValidChannelID(t *testing.T) {
	for _, h := range []string{"a", "Z", "0", "-", "_", "6d8f8f3a-2b1c-4d5e-9f00-112233445566", strings.Repeat("x", 64)} {
		require.True(t, nostr.ValidChannelID(h), h)
	}
	for _, h := range []string{"", strings.Repeat("x", 65), "a b", "a.b", "a\x00", "é", "@", "[", "`", "{", "/", ":", "*", ">"} {
		require.False(t, nostr.ValidChannelID(h), h)
	}
}
