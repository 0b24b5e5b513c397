package submit

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

func waiting(affinity, ref uint64) *job {
	return &job{Submission: Submission{Affinity: affinity, Event: &ingestv1.Submission{Ref: ref}}}
}

// What one connection has waiting stays here, where the others overtake it, and not with ingest.
func TestAStreamHasAWindow(t *testing.T) {
	st := &stream{pending: make(map[uint64]*job), wake: make(chan struct{}, 1)}
	cfg := Config{BatchEvents: 3, BatchBytes: 1 << 20, Window: 4}
	for range 10 {
		st.enqueue(waiting(1, 0))
	}
	st.enqueue(waiting(2, 0))
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

// What was on a stream that broke goes on before what came later, whether that waits for a stream or finds another one.
func TestABrokenStreamKeepsTheOrder(t *testing.T) {
	m, err := metrics.New(noop.NewMeterProvider().Meter(""))
	require.NoError(t, err)
	s := New(Config{Deadline: time.Hour, Patience: time.Hour}, nil, slog.New(slog.DiscardHandler), m)
	cfg := Config{BatchEvents: 10, BatchBytes: 1 << 20, Window: 10}
	submit := func(id byte) {
		s.Submit(Submission{Affinity: 1, Event: &ingestv1.Submission{Raw: []byte{id}}, Done: func(Verdict) {}})
	}
	ids := func(st *stream) string {
		var got []byte
		for _, sub := range st.take(cfg).GetSubmissions() {
			got = append(got, sub.GetRaw()...)
		}
		return string(got)
	}
	open := func(name string) *stream {
		st := &stream{name: name, pending: make(map[uint64]*job), wake: make(chan struct{}, 1)}
		s.add(st)
		return st
	}
	one := open("one")
	submit('a')
	require.Equal(t, "a", ids(one))
	submit('b')
	s.remove(one) // its replica leaves, and owes a verdict
	submit('c')
	s.forget(t.Context(), one)
	submit('d')
	two := open("two")
	submit('e')
	require.Equal(t, "abcde", ids(two))
	three := open("three")
	s.forget(t.Context(), two)
	submit('f')
	require.Equal(t, "bcdef", ids(three), "a has been sent twice and is not sent again")
	require.True(t, two.idle())
}
