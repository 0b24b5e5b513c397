package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSnapshot(t *testing.T) {
	for text, want := range map[string]Snapshot{
		"10:10:":                           {DatabaseID: 1, Xmin: 10, Xmax: 10},
		"10:20:10,14,15":                   {DatabaseID: 1, Xmin: 10, Xmax: 20, InProgress: []uint64{10, 14, 15}},
		"8589934592:8589934593:8589934592": {DatabaseID: 1, Xmin: 1 << 33, Xmax: 1<<33 + 1, InProgress: []uint64{1 << 33}},
	} {
		got, err := parseSnapshot(1, text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		require.Equal(t, want.InProgress, got.Proto().GetInProgress())
		require.Equal(t, want.Xmax, got.Proto().GetXmax())
	}
	for _, text := range []string{"", "1:2", "1:2:3:4", "a:2:", "1:b:", "1:2:c", "1:2:3,", "-1:2:"} {
		_, err := parseSnapshot(1, text)
		require.Error(t, err, text)
	}
}
