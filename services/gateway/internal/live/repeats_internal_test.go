package live

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

func header(community int64, n int) *commonv1.Header {
	id := make([]byte, 32)
	id[0], id[1] = byte(n>>8), byte(n)
	return &commonv1.Header{Community: community, Id: id}
}

func TestRepeatsAreLaterCopies(t *testing.T) {
	r := newRepeats(2)
	at := func(sequence uint64, index uint32) position {
		return position{epoch: 1, sequence: sequence, index: index}
	}
	require.False(t, r.isRepeat(0, header(1, 1), at(5, 3)))
	require.False(t, r.isRepeat(0, header(1, 1), at(5, 3)), "for other handles")
	require.True(t, r.isRepeat(0, header(1, 1), at(5, 4)))
	require.False(t, r.isRepeat(0, header(1, 1), at(4, 9)), "there was one before")
	require.True(t, r.isRepeat(0, header(1, 1), at(5, 3)))
	require.True(t, r.isRepeat(0, header(1, 1), position{epoch: 2, sequence: 1}), "in the stream that was made anew")

	due := header(1, 1)
	due.DueAt = 7
	require.False(t, r.isRepeat(0, due, at(6, 0)), "a reminder whose time has come")
	require.True(t, r.isRepeat(0, due, at(6, 1)))
	require.False(t, r.isRepeat(0, header(2, 1), at(6, 0)), "another community's")
	require.False(t, r.isRepeat(1, header(1, 1), at(6, 0)), "on another topic")
	require.False(t, r.isRepeat(2, header(1, 1), at(6, 0)), "no such partition")
	require.False(t, r.isRepeat(0, &commonv1.Header{}, at(6, 0)))
	require.False(t, r.isRepeat(0, &commonv1.Header{}, at(7, 0)), "without an id nothing is known")
}

func TestRepeatsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRepeats(1)
		n := rapid.IntRange(0, 3*rememberedEvents).Draw(t, "events")
		for i := range n {
			require.False(t, r.isRepeat(0, header(1, i), position{epoch: 1, sequence: uint64(i)}))
		}
		require.Len(t, r[0].first, min(n, rememberedEvents))
		require.Len(t, r[0].ring, min(n, rememberedEvents))
		for i := max(0, n-rememberedEvents); i < n; i++ {
			require.True(t, r.isRepeat(0, header(1, i), position{epoch: 1, sequence: uint64(n)}))
		}
	})
}
