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
