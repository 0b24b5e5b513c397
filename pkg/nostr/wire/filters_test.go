package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

func TestDecodeFilters(t *testing.T) {
	t.Parallel()
	got, err := wire.DecodeFilters([]byte(` [{"kinds":[1]}, {"search":"bees"}] `), wire.DefaultLimits())
	require.NoError(t, err)
	require.Equal(t, []nostr.Filter{{Kinds: []nostr.Kind{1}}, {Search: "bees"}}, got)
	for s, msg := range map[string]string{
		``:                                      "must be a JSON array",
		`{}`:                                    "must be a JSON array",
		`[]`:                                    "there must be a filter",
		`[1]`:                                   "must be a JSON object",
		`[{}`:                                   "",
		`[{}] x`:                                "unexpected data",
		`[{"kinds":[1.5]}]`:                     "integer",
		`[{"bogus":1},{}`:                       "",
		`[{"bogus":1,"ids":1}]`:                 "must be an array",
		`[` + strings.Repeat("{},", 10) + `{}]`: "more than 10 filters",
	} {
		_, err := wire.DecodeFilters([]byte(s), wire.DefaultLimits())
		var de *wire.DecodeError
		require.ErrorAs(t, err, &de, s)
		require.Contains(t, de.Msg, msg, s)
		require.False(t, de.Unsupported, s)
	}
	_, err = wire.DecodeFilters([]byte(`[{},{"bogus":1}]`), wire.DefaultLimits())
	var de *wire.DecodeError
	require.ErrorAs(t, err, &de)
	require.True(t, de.Unsupported)
	_, err = wire.DecodeFilters([]byte(`[{}]`), wire.Limits{Frame: 3})
	require.ErrorContains(t, err, "larger than 3 bytes")
}
