package submit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

func waiting(affinity, ref uint64) *job {
	return &job{Submission: Submission{Affinity: affinity, Event: &ingestv1.Submission{Ref: ref}}}
}

func TestConnectionsTakeTurns(t *testing.T) {
	var q turns
	for ref := range uint64(5) {
		q.add(waiting(1, ref))
	}
	q.add(waiting(2, 0))
	q.add(waiting(3, 0))
	q.add(waiting(2, 1))
	var got [][2]uint64
	for !q.empty() {
		next := q.next()
		require.Same(t, next, q.take())
		got = append(got, [2]uint64{next.Affinity, next.Event.GetRef()})
	}
	require.Equal(t, [][2]uint64{{1, 0}, {2, 0}, {3, 0}, {1, 1}, {2, 1}, {1, 2}, {1, 3}, {1, 4}}, got)
	require.Empty(t, q.lines)
	q.add(waiting(2, 7))
	require.Equal(t, uint64(7), q.take().Event.GetRef())
}

func TestWhatIsUnwantedIsTakenOut(t *testing.T) {
	var q turns
	for ref := range uint64(4) {
		q.add(waiting(1, ref))
		q.add(waiting(2, 2*ref))
	}
	removed := q.remove(func(j *job) bool { return j.Event.GetRef()%2 == 0 })
	require.Len(t, removed, 6)
	require.Equal(t, uint64(1), q.take().Event.GetRef())
	require.Equal(t, uint64(3), q.take().Event.GetRef())
	require.True(t, q.empty())
	require.Empty(t, q.lines)
}

// What one connection has waiting stays here, where the others overtake it, and not with ingest.
func TestAStreamHasAWindow(t *testing.T) {
	st := &stream{pending: make(map[uint64]*job), wake: make(chan struct{}, 1)}
	cfg := Config{BatchEvents: 3, BatchBytes: 1 << 20, Window: 4}
	for range 10 {
		require.True(t, st.enqueue(waiting(1, 0)))
	}
	require.True(t, st.enqueue(waiting(2, 0)))
	require.Len(t, st.take(cfg).GetSubmissions(), 3)
	require.Len(t, st.take(cfg).GetSubmissions(), 1)
	require.Nil(t, st.take(cfg))
	require.Equal(t, uint64(2), st.pending[2].Affinity, "the second in turn")
	<-st.wake
	_, ok := st.settle(1)
	require.True(t, ok)
	st.refill()
	<-st.wake
	require.Len(t, st.take(cfg).GetSubmissions(), 1)
	require.False(t, st.idle())
	require.Len(t, st.expired(time.Now()), 10, "all that is left is past its deadline, which is zero")
	require.True(t, st.idle())
}
