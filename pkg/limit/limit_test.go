package limit_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/limit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Unix(1_700_000_000, 0)

func TestKeyedIsABucketPerKey(t *testing.T) {
	k := limit.NewKeyed[string](10, 5, 100)
	for range 5 {
		_, ok := k.Allow("a", 1, epoch)
		require.True(t, ok)
	}
	wait, ok := k.Allow("a", 1, epoch)
	require.False(t, ok)
	require.Equal(t, 100*time.Millisecond, wait)
	_, ok = k.Allow("b", 5, epoch)
	require.True(t, ok, "another key")
	_, ok = k.Allow("a", 1, epoch.Add(wait))
	require.True(t, ok, "after the wait")
	_, ok = k.Allow("a", 5, epoch.Add(time.Hour))
	require.True(t, ok, "full again, and no fuller")
	_, ok = k.Allow("a", 1, epoch.Add(time.Hour))
	require.False(t, ok)

	wait, ok = k.Allow("c", 6, epoch)
	require.False(t, ok, "more than burst")
	require.Equal(t, 500*time.Millisecond, wait)
	_, ok = k.Allow("c", 5, epoch)
	require.True(t, ok, "the refused took nothing")
	k.Forget("c")
	k.Forget("c")
	_, ok = k.Allow("c", 5, epoch)
	require.True(t, ok)
}

func TestSwitchedOff(t *testing.T) {
	k := limit.NewKeyed[int](0, 1, 1)
	b := limit.NewBucket(-1, 1)
	for range 100 {
		_, ok := k.Allow(1, 1_000, epoch)
		require.True(t, ok)
		_, ok = b.Allow(1_000, epoch)
		require.True(t, ok)
	}
	require.Zero(t, k.Len())
}

func TestKeyedMemoryIsBounded(t *testing.T) {
	k := limit.NewKeyed[string](1, 1, 160)
	for i := range 10_000 {
		k.Allow(strconv.Itoa(i), 1, epoch)
	}
	require.LessOrEqual(t, k.Len(), 160)
	require.Greater(t, k.Len(), 100)
}

func TestKeyedForgetsTheLeastRecentlyUsed(t *testing.T) {
	k := limit.NewKeyed[int](1, 1, 16*8) // eight a shard
	k.Allow(-1, 1, epoch)
	for i := range 16 * 64 {
		k.Allow(i, 1, epoch)
		_, ok := k.Allow(-1, 1, epoch)
		require.False(t, ok, "a key that is in use is never forgotten")
	}
}

// Whatever is asked and when: never more is granted in a stretch of time than burst and what was
// gained in it, the announced wait is enough, and waiting less is not.
func TestBucketProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.IntRange(1, 1000).Draw(t, "rate")
		burst := rapid.IntRange(1, 100).Draw(t, "burst")
		b, k := limit.NewBucket(float64(rate), burst), limit.NewKeyed[int](float64(rate), burst, 1)
		now, granted := epoch, 0
		for range rapid.IntRange(1, 50).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")) * time.Millisecond)
			n := rapid.IntRange(1, burst).Draw(t, "n")
			wait, ok := b.Allow(n, now)
			keyedWait, keyedOK := k.Allow(1, n, now)
			require.Equal(t, wait, keyedWait)
			require.Equal(t, ok, keyedOK)
			if !ok {
				require.Positive(t, wait)
				_, early := b.Allow(n, now.Add(wait-1))
				require.False(t, early)
				now = now.Add(wait)
				_, ok = b.Allow(n, now)
				require.True(t, ok)
				_, ok = k.Allow(1, n, now)
				require.True(t, ok)
			}
			granted += n
			require.LessOrEqual(t, float64(granted), float64(burst)+now.Sub(epoch).Seconds()*float64(rate)+1)
		}
	})
}

func TestKeyedConcurrently(t *testing.T) {
	k := limit.NewKeyed[int](1, 100, 1000)
	var running sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for range 8 {
		running.Go(func() {
			for range 100 {
				if _, ok := k.Allow(7, 1, epoch); ok {
					mu.Lock()
					granted++
					mu.Unlock()
				}
			}
		})
	}
	running.Wait()
	require.Equal(t, 100, granted)
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limit.NewBudget(10)
		require.True(t, b.TryAcquire(8))
		require.False(t, b.TryAcquire(3))
		require.ErrorIs(t, b.Acquire(t.Context(), 11), limit.ErrTooLarge)
		require.Equal(t, int64(8), b.Used())

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.Acquire(short, 3), context.DeadlineExceeded)

		large := make(chan error, 1)
		go func() { large <- b.Acquire(t.Context(), 9) }()
		synctest.Wait()
		require.False(t, b.TryAcquire(1), "a waiter goes first")
		b.Release(8)
		require.NoError(t, <-large)
		require.Equal(t, int64(9), b.Used())
		b.Release(9)
		require.Zero(t, b.Used())
	})
}

func TestBudgetWithoutLimit(t *testing.T) {
	b := limit.NewBudget(0)
	require.True(t, b.TryAcquire(1<<40))
	require.NoError(t, b.Acquire(t.Context(), 1<<40))
	b.Release(1 << 40)
	require.Equal(t, int64(1<<40), b.Used())
}

func BenchmarkKeyed(b *testing.B) {
	k := limit.NewKeyed[int](1e9, 1000, 10_000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		k.Allow(i%5000, 1, epoch.Add(time.Duration(i)))
	}
}

func TestSpendGoesIntoDebt(t *testing.T) {
	t.Parallel()
	b := limit.NewBucket(10, 5)
	k := limit.NewKeyed[string](10, 5, 100)
	spend := func(n int, now time.Time) time.Duration {
		debt := b.Spend(n, now)
		require.Equal(t, debt, k.Spend("a", n, now))
		return debt
	}
	require.Zero(t, spend(5, epoch), "what is there")
	require.Equal(t, 200*time.Millisecond, spend(2, epoch))
	wait, ok := b.Allow(1, epoch)
	require.False(t, ok)
	require.Equal(t, 300*time.Millisecond, wait, "the debt and a token")
	require.Equal(t, 500*time.Millisecond, spend(1_000_000, epoch), "never more than burst")
	_, ok = k.Allow("a", 5, epoch.Add(time.Second))
	require.True(t, ok, "full again")
	require.Zero(t, k.Spend("b", 5, epoch), "another key")
	require.Zero(t, limit.NewBucket(0, 1).Spend(100, epoch), "switched off")
	require.Zero(t, limit.NewKeyed[int](0, 1, 1).Spend(1, 100, epoch))
}

func TestSpendKeepsNoMoreKeysThanAllow(t *testing.T) {
	t.Parallel()
	k := limit.NewKeyed[int](1, 1, 32)
	for i := range 1000 {
		k.Spend(i, 1, epoch)
	}
	require.LessOrEqual(t, k.Len(), 32)
}
