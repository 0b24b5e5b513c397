package position

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	ordered := []Position{
		{},
		{Epoch: 1, Sequence: 5, Index: 0},
		{Epoch: 1, Sequence: 5, Index: 3},
		After(1, 5),
		{Epoch: 1, Sequence: 6, Index: 0},
		{Epoch: 2, Sequence: 1, Index: 0},
	}
	for i, p := range ordered {
		for j, q := range ordered {
			require.Equal(t, i > j, p.IsAfter(q), "%v after %v", p, q)
		}
		require.Equal(t, p, FromProto(p.Proto()))
	}
}

func TestNextReadsTheRestOfAMessage(t *testing.T) {
	t.Parallel()
	require.Equal(t, uint64(5), Position{Epoch: 1, Sequence: 5, Index: 3}.Next())
	require.Equal(t, uint64(6), After(1, 5).Next())
}

func TestCursorOnTheWire(t *testing.T) {
	t.Parallel()
	c := Cursor{Events: After(1, 7), Ephemeral: {Epoch: 2, Sequence: 3, Index: 4}}
	require.Equal(t, c, CursorFromProto(c.Proto(), Cursor{}))
	missing := Cursor{Events: After(9, 9), Ephemeral: After(8, 8)}
	require.Equal(t, missing, CursorFromProto(nil, missing))
	half := &commonv1.Cursor{Events: c[Events].Proto()}
	require.Equal(t, Cursor{Events: c[Events], Ephemeral: missing[Ephemeral]}, CursorFromProto(half, missing))
}

func TestStreams(t *testing.T) {
	t.Parallel()
	require.Equal(t, "EVENTS", Events.Name())
	require.Equal(t, "EPHEMERAL", Ephemeral.Name())
	require.Equal(t, "apiary.v1.ev.3", Events.Subject(3))
	require.Equal(t, "apiary.v1.eph.3", Ephemeral.Subject(3))
	require.Equal(t, commonv1.Stream_STREAM_EVENTS, Events.Proto())
	require.Equal(t, commonv1.Stream_STREAM_EPHEMERAL, Ephemeral.Proto())
}

// TestRecentIsAWindow compares Recent with a list of the last arrivals.
func TestRecentIsAWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		r := NewRecent(limit)
		var window []Key
		for i, b := range rapid.SliceOf(rapid.ByteRange(0, 9)).Draw(t, "ids") {
			id := Key{Community: int64(b % 2), ID: nostr.ID{b / 2}}
			known := false
			for _, w := range window {
				known = known || w == id
			}
			require.Equal(t, !known, r.Add(id, After(1, uint64(i+1))))
			if !known {
				window = append(window, id)
				window = window[max(0, len(window)-limit):]
			}
			_, ok := r.First(id)
			require.True(t, ok)
			require.Len(t, r.first, len(window))
		}
	})
}
