package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30m": 30 * time.Minute, "12h": 12 * time.Hour, "1d": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "106751d": 106751 * 24 * time.Hour,
	} {
		var s span
		require.NoError(t, s.UnmarshalText([]byte(text)), text)
		require.Equal(t, want, time.Duration(s), text)
	}
	for _, text := range []string{"", "d", "0", "0d", "0s", "1", "-1d", "-1h", "1d-1h", "1w", "1h1d", "+1d", "106752d", "106751d24h", "99999999999d"} {
		var s span
		require.ErrorIs(t, s.UnmarshalText([]byte(text)), errSpan, text)
	}
}
