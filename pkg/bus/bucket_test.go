package bus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
)

const bucket = "things"

func ensureBucket(t *testing.T, b *bus.Bus, ttl time.Duration) {
	t.Helper()
	connected(t, b)
	require.NoError(t, b.EnsureBucket(t.Context(), bus.BucketOptions{Name: bucket, TTL: ttl, MaxBytes: 1 << 20, Replicas: 1}))
}

// put writes an entry, or deletes a key with a nil value, and returns the revision.
func put(t *testing.T, b *bus.Bus, key string, value []byte) uint64 {
	t.Helper()
	var f *bus.Future
	var err error
	if value == nil {
		f, err = b.DeleteKey(t.Context(), bucket, key)
	} else {
		f, err = b.PutKey(t.Context(), bucket, key, value)
	}
	require.NoError(t, err)
	ack, err := f.Wait(t.Context())
	require.NoError(t, err)
	return ack.Sequence
}

// followBucket follows the bucket until the test ends.
func followBucket(t *testing.T, b *bus.Bus) (begun <-chan uint64, entries <-chan bus.Entry) {
	t.Helper()
	epochs, all := make(chan uint64, 100), make(chan bus.Entry, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- b.Follow(ctx, bucket, bus.Follower{
			Begin: func(epoch uint64) { epochs <- epoch },
			Each:  func(e bus.Entry) { all <- e },
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
	return epochs, all
}

func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(soon):
		require.FailNow(t, "nothing came")
	}
	return v
}

func TestAKeyIsWrittenByWhoKnowsItsLastEntry(t *testing.T) {
	t.Parallel()
	b := bustest.New(t).Connect(t)
	ensureBucket(t, b, time.Minute)
	after := func(revision uint64) (uint64, error) {
		f, err := b.PutKeyAfter(t.Context(), bucket, "a", []byte("x"), revision)
		require.NoError(t, err)
		ack, err := f.Wait(t.Context())
		return ack.Sequence, err
	}
	refused := func(revision uint64) {
		t.Helper()
		_, err := after(revision)
		require.ErrorIs(t, err, bus.ErrRevision)
	}
	other := put(t, b, "b", []byte("1"))
	refused(other)
	first, err := after(0)
	require.NoError(t, err)
	refused(0)
	second, err := after(first)
	require.NoError(t, err)
	refused(first)
	refused(second + 1)
	mark := put(t, b, "a", nil)
	refused(second)
	refused(0)
	_, err = after(mark)
	require.NoError(t, err)
}

func TestFollowTellsTheLastEntriesAndEveryChange(t *testing.T) {
	t.Parallel()
	b := bustest.New(t).Connect(t)
	begun, entries := followBucket(t, b) // before there is a bucket
	ensureBucket(t, b, time.Hour)
	require.NotZero(t, next(t, begun))
	var last uint64
	for _, key := range []string{"a.b", "c", "a.b"} {
		last = put(t, b, key, []byte(key))
		require.Equal(t, bus.Entry{Key: key, Value: []byte(key), Revision: last}, next(t, entries))
	}
	last = put(t, b, "c", nil)
	require.Equal(t, bus.Entry{Key: "c", Value: []byte{}, Deleted: true, Revision: last}, next(t, entries))

	_, again := followBucket(t, b)
	require.Equal(t, bus.Entry{Key: "a.b", Value: []byte("a.b"), Revision: last - 1}, next(t, again))
	require.True(t, next(t, again).Deleted)
	state, err := b.BucketState(t.Context(), bucket, time.Now())
	require.NoError(t, err)
	require.Equal(t, last, state.LastSeq)
}

func TestFollowBeginsAnewWithABucketThatWasLost(t *testing.T) {
	t.Parallel()
	s := bustest.New(t)
	b := s.Connect(t)
	ensureBucket(t, b, time.Hour)
	begun, entries := followBucket(t, b)
	first := next(t, begun)
	for range 5 {
		put(t, b, "a", []byte("old"))
		require.Equal(t, "old", string(next(t, entries).Value))
	}
	s.Stop(t)
	disconnected(t, b)
	_, err := b.PutKey(t.Context(), bucket, "a", nil)
	require.ErrorIs(t, err, bus.ErrDisconnected)
	s.Restart(t)
	ensureBucket(t, b, time.Hour)
	put(t, b, "a", []byte("new"))
	require.NotEqual(t, first, next(t, begun))
	require.Equal(t, bus.Entry{Key: "a", Value: []byte("new"), Revision: 1}, next(t, entries))
}

func TestBucketsForgetAndAreBounded(t *testing.T) {
	t.Parallel()
	b := bustest.New(t).Connect(t)
	ensureBucket(t, b, time.Second)
	put(t, b, "a", []byte("1"))
	require.Eventually(t, func() bool { // the server's clock decides, and nothing tells
		state, err := b.BucketState(t.Context(), bucket, time.Now())
		return err == nil && state.Messages == 0
	}, soon, 50*time.Millisecond)

	ensureBucket(t, b, time.Hour) // which changes it
	var err error
	for i := 0; err == nil && i < 100; i++ {
		var f *bus.Future
		f, err = b.PutKey(t.Context(), bucket, strings.Repeat("k", i+1), make([]byte, 64<<10))
		require.NoError(t, err)
		_, err = f.Wait(t.Context())
	}
	require.Error(t, err, "a bucket that is full refuses")
	require.False(t, errors.Is(err, bus.ErrDisconnected) || errors.Is(err, bus.ErrUnacknowledged), "%v", err)
}
