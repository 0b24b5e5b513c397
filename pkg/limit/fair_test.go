package limit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/limit"
)

// hold holds a place for a while.
func hold(t *testing.T, f *limit.Fair[string], key string, d time.Duration) {
	t.Helper()
	release, err := f.Acquire(t.Context(), key)
	if err != nil {
		t.Error(err)
		return
	}
	work := time.NewTimer(d)
	<-work.C
	release()
}

func TestWhoHoldsPlacesLongGoesAfterTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limit.NewFair[string](4, 1, 100*time.Millisecond, time.Second, 100)
		hold(t, f, "hog", 5*time.Second) // its share for fifty seconds
		var order []string
		var mu sync.Mutex
		var wg sync.WaitGroup
		ask := func(key string, d time.Duration) {
			wg.Go(func() {
				hold(t, f, key, d)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, key)
			})
			synctest.Wait()
		}
		for range 8 {
			ask("hog", 300*time.Millisecond)
		}
		began := time.Now()
		hold(t, f, "modest", 10*time.Millisecond)
		require.Equal(t, 10*time.Millisecond, time.Since(began), "there are places that a hog does not get")
		for range 3 {
			ask("modest", 350*time.Millisecond)
		}
		ask("late", 10*time.Millisecond)
		wg.Wait()
		require.Equal(t, []string{"hog", "late", "modest", "modest", "modest"}, order[:5],
			"the first hog was there before; then the latecomer had its place before the next hog, and the hogs had one at a time")
		require.Equal(t, 2400*time.Millisecond, time.Since(began).Round(50*time.Millisecond))
	})
}

func TestTheLeastGreedyIsFirstOfThose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limit.NewFair[string](1, 1, 100*time.Millisecond, time.Second, 100)
		hold(t, f, "a", 1900*time.Millisecond)
		hold(t, f, "b", 1300*time.Millisecond)
		occupied, err := f.Acquire(t.Context(), "c")
		require.NoError(t, err)
		first := make(chan string, 2)
		for _, key := range []string{"a", "b"} {
			go func() {
				hold(t, f, key, time.Millisecond)
				first <- key
			}()
			synctest.Wait()
		}
		occupied()
		require.Equal(t, "b", <-first)
		require.Equal(t, "a", <-first)
	})
}

// Who has used less is served sooner, though not before who has waited for as long as that makes a difference.
func TestWhoAskedLittleIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limit.NewFair[string](1, 1, 500*time.Millisecond, 10*time.Second, 100)
		hold(t, f, "busy", time.Second) // two seconds' share, of which one is made good for
		occupied, err := f.Acquire(t.Context(), "c")
		require.NoError(t, err)
		order := make(chan string, 4)
		ask := func(key string) {
			go func() {
				hold(t, f, key, time.Millisecond)
				order <- key
			}()
			synctest.Wait()
		}
		ask("busy")
		ask("calm")
		later := time.NewTimer(3 * time.Second)
		<-later.C
		ask("new")
		occupied()
		require.Equal(t, []string{"calm", "busy", "new"}, []string{<-order, <-order, <-order})
	})
}

func TestWhoGivesUpLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limit.NewFair[string](1, 1, 0, 0, 1)
		release, err := f.Acquire(t.Context(), "a")
		require.NoError(t, err)
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			none, err := f.Acquire(ctx, "b")
			require.ErrorIs(t, err, enough)
			require.Nil(t, none)
		})
		synctest.Wait()
		cancel(enough)
		wg.Wait()
		release()
		hold(t, f, "c", time.Millisecond)
	})
}

func TestPlacesAreNeitherLostNorMultiplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 5
		f := limit.NewFair[int](places, 2, 50*time.Millisecond, 100*time.Millisecond, 8)
		var held atomic.Int64
		var wg sync.WaitGroup
		for who := range 40 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(who)))
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(30))*time.Millisecond)
					if release, err := f.Acquire(ctx, who%10); err == nil {
						require.LessOrEqual(t, held.Add(1), int64(places))
						work := time.NewTimer(time.Duration(r.IntN(10)) * time.Millisecond)
						<-work.C
						held.Add(-1)
						release()
					}
					cancel()
				}
			})
		}
		wg.Wait()
		var all []func()
		for range places {
			release, err := f.Acquire(t.Context(), 100+len(all))
			require.NoError(t, err)
			all = append(all, release)
		}
		for _, release := range all {
			release()
		}
	})
}
