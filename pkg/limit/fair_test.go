package limit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/limit"
)

// newFair returns places of which the crowds may have any share.
func newFair(places, greedy int, share, burst time.Duration) *limit.Fair[string, string] {
	return limit.NewFair[string, string](limit.FairConfig{Places: places, Greedy: greedy, Share: share, Burst: burst, Keys: 100})
}

func by(key string) limit.Asker[string, string] { return limit.Asker[string, string]{Key: key} }

// hold holds a place for a while.
func hold(t *testing.T, f *limit.Fair[string, string], key string, d time.Duration) {
	t.Helper()
	holdAs(t, f, by(key), d)
}

func holdAs(t *testing.T, f *limit.Fair[string, string], who limit.Asker[string, string], d time.Duration) {
	t.Helper()
	release, err := f.Acquire(t.Context(), who)
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
		f := newFair(4, 1, 100*time.Millisecond, time.Second)
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
		// Each of the eight takes 300 ms, and the place rests three times as long before the next one.
		require.Equal(t, 8700*time.Millisecond, time.Since(began).Round(50*time.Millisecond))
	})
}

func TestTheLeastGreedyIsFirstOfThose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFair(1, 1, 100*time.Millisecond, time.Second)
		hold(t, f, "a", 1900*time.Millisecond)
		hold(t, f, "b", 1300*time.Millisecond)
		occupied, err := f.Acquire(t.Context(), by("c"))
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
		f := newFair(1, 1, 500*time.Millisecond, 10*time.Second)
		hold(t, f, "busy", time.Second) // two seconds' share, of which one is made good for
		occupied, err := f.Acquire(t.Context(), by("c"))
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

// A place that the greedy have had rests; for those who are not it is free at once.
func TestAPlaceOfTheGreedyRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFair(1, 1, 100*time.Millisecond, 100*time.Millisecond)
		hold(t, f, "hog", 3*time.Second)
		began := time.Now()
		for _, work := range []time.Duration{200 * time.Millisecond, 5 * time.Second, 0} {
			hold(t, f, "hog", work)
			hold(t, f, "modest", 0)
		}
		require.Equal(t, 200*time.Millisecond+600*time.Millisecond+5*time.Second+2*time.Second, time.Since(began), "the rest has its end")
	})
}

// A crowd that uses much has to itself what the greedy have, but only those of it who hurry.
func TestWhoHurriesInACrowdGoesAfterTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limit.NewFair[string, string](limit.FairConfig{
			Places: 2, Greedy: 1, Share: time.Second, Burst: time.Hour,
			CrowdShare: 100 * time.Millisecond, CrowdBurst: time.Second, Keys: 100,
		})
		take := func(key, crowd string, hurries bool) (release func(), at time.Duration) {
			began := time.Now()
			release, err := f.Acquire(t.Context(), limit.Asker[string, string]{Key: key, Crowd: crowd, Hurries: hurries})
			require.NoError(t, err)
			return release, time.Since(began)
		}
		work := func(d time.Duration) { <-time.NewTimer(d).C }

		first, _ := take("a", "x", true)
		second, _ := take("b", "x", true)
		work(1500 * time.Millisecond) // the share of the crowd, and some more
		first()
		second()

		first, waited := take("c", "x", true) // keys are new all the time
		require.Zero(t, waited)
		work(400 * time.Millisecond)
		first()
		_, waited = take("d", "x", false)
		require.Zero(t, waited, "who asks one thing at a time does not wait for the others of its address")
		last, waited := take("e", "x", true)
		require.Equal(t, 1200*time.Millisecond, waited)
		last()
		_, waited = take("f", "y", true)
		require.Zero(t, waited, "another crowd has its own share")
	})
}

// However slow the answers are: what a key may use is gained while it uses it.
func TestOneThingAfterTheOtherIsWithinAShareOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFair(8, 1, time.Second, 250*time.Millisecond)
		var wg sync.WaitGroup
		defer wg.Wait()
		for range 4 { // whoever has four places at a time is beyond it, and then has one that rests
			wg.Go(func() {
				for range 10 {
					hold(t, f, "hog", time.Second)
				}
			})
		}
		<-time.After(5 * time.Second)
		began := time.Now()
		for n := range 5 {
			hold(t, f, "steady", 900*time.Millisecond)
			require.Equal(t, time.Duration(n)*901*time.Millisecond+900*time.Millisecond, time.Since(began))
			<-time.After(time.Millisecond)
		}
		wg.Wait()
		require.Greater(t, time.Since(began), 20*time.Second, "the hogs were held back meanwhile")
	})
}

func TestWorkMayTakeSeveralPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFair(4, 1, time.Second, time.Second)
		began := time.Now()
		var wg sync.WaitGroup
		ask := func(places int, want time.Duration) {
			wg.Go(func() {
				who := by("a")
				who.Places = places
				release, err := f.Acquire(t.Context(), who)
				if err != nil {
					t.Error(err)
					return
				}
				if at := time.Since(began); at != want {
					t.Errorf("the one of %d places began after %s instead of %s", places, at, want)
				}
				<-time.After(100 * time.Millisecond)
				release()
			})
			synctest.Wait()
		}
		ask(3, 0)
		ask(9, 0) // more than there are, but one is free
		ask(0, 100*time.Millisecond)
		ask(3, 100*time.Millisecond)
		ask(1, 200*time.Millisecond)
		wg.Wait()
	})
}

// Many that come at once, each with a burst that it has not used, hold a part of the places, and nobody waits for them who was
// there before; nor do they wait for ever for those.
func TestNewcomersLetOthersGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace, work = time.Second, 100 * time.Millisecond
		f := limit.NewFair[string, string](limit.FairConfig{Places: 4, Newcomers: 2, Grace: grace, Keys: 100})
		came := time.Now()
		var mu sync.Mutex
		done := map[string][]time.Duration{} // since came
		var wg sync.WaitGroup
		ask := func(key string, came time.Time, began time.Time) {
			wg.Go(func() {
				who := by(key)
				who.Came = came
				holdAs(t, f, who, work)
				mu.Lock()
				defer mu.Unlock()
				done[key] = append(done[key], time.Since(began))
			})
		}
		for range 30 {
			ask("new", came, came)
		}
		synctest.Wait()
		ask("old", time.Time{}, came)
		wg.Wait()
		require.Equal(t, []time.Duration{work}, done["old"], "a place is left")
		// Ten times two at a time; then they are newcomers no more.
		require.Equal(t, grace+3*work, done["new"][29])
		require.Equal(t, 10*work, done["new"][19])

		// More that were there ask than there are places, all the time. Who came a second ago is before those who ask later.
		clear(done)
		came = time.Now()
		for range 8 {
			wg.Go(func() {
				for time.Since(came) < 2*grace {
					hold(t, f, "old", work)
				}
			})
		}
		synctest.Wait()
		ask("new", came, came)
		wg.Wait()
		require.Len(t, done["new"], 1)
		require.Greater(t, done["new"][0], grace)
		require.Less(t, done["new"][0], grace+4*work)

		// Who is no newcomer any more may have all places.
		clear(done)
		now := time.Now()
		for range 4 {
			ask("new", now.Add(-grace), now)
		}
		wg.Wait()
		require.Equal(t, []time.Duration{work, work, work, work}, done["new"])
	})
}

func TestWhoGivesUpLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFair(1, 1, 0, 0)
		release, err := f.Acquire(t.Context(), by("a"))
		require.NoError(t, err)
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			none, err := f.Acquire(ctx, by("b"))
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

// newcomersWait returns so many places of which one is for newcomers and one for the greedy, as "hog" is: a newcomer holds its place
// until release, and another one waits until leave. Both may be called at any time, and wait for nothing but that.
func newcomersWait(t *testing.T, places int, grace time.Duration) (f *limit.Fair[string, string], leave, release func()) {
	t.Helper()
	f = limit.NewFair[string, string](limit.FairConfig{
		Places: places, Greedy: 1, Newcomers: 1, Grace: grace, Share: 100 * time.Millisecond, Burst: time.Second, Keys: 100,
	})
	hold(t, f, "hog", 5*time.Second)
	fresh := by("new")
	fresh.Came = time.Now()
	release, err := f.Acquire(t.Context(), fresh)
	require.NoError(t, err)
	leaving, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := f.Acquire(leaving, fresh)
		require.ErrorIs(t, err, context.Canceled)
	})
	synctest.Wait()
	return f, func() { cancel(); wg.Wait() }, release
}

// The last newcomer that waited leaves, and with it what the greedy waited for although a place was free.
func TestTheGreedyGoOnWhenANewcomerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = time.Second
		f, leave, release := newcomersWait(t, 2, grace)
		defer release()
		began := time.Now()
		var waited time.Duration
		var wg sync.WaitGroup
		wg.Go(func() {
			hold(t, f, "hog", 0)
			waited = time.Since(began)
		})
		synctest.Wait()
		gone := time.NewTimer(grace / 2)
		<-gone.C
		leave()
		wg.Wait()
		require.Equal(t, grace/2, waited)
	})
}

// However many newcomers come, the greedy have what those may not have, but for one place.
func TestNewcomersAtTheirMostDoNotStarveTheGreedy(t *testing.T) {
	for places, goesOn := range map[int]bool{2: false, 3: true} {
		t.Run(strconv.Itoa(places), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const grace = time.Second
				f, leave, release := newcomersWait(t, places, grace)
				defer release()
				defer leave()
				soon, stop := context.WithTimeout(t.Context(), grace/2)
				defer stop()
				got, err := f.Acquire(soon, by("hog"))
				require.Equal(t, goesOn, err == nil)
				if err == nil {
					got()
				}
			})
		})
	}
}

func TestPlacesAreNeitherLostNorMultiplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const places = 5
		f := limit.NewFair[int, int](limit.FairConfig{
			Places: places, Greedy: 2, Share: 50 * time.Millisecond, Burst: 100 * time.Millisecond,
			CrowdShare: 50 * time.Millisecond, CrowdBurst: 100 * time.Millisecond, Keys: 8,
			Grace: 200 * time.Millisecond, Newcomers: 2,
		})
		began := time.Now()
		var held atomic.Int64
		var wg sync.WaitGroup
		for who := range 40 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(who)))
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(30))*time.Millisecond)
					if release, err := f.Acquire(ctx, limit.Asker[int, int]{
						Key: who % 10, Crowd: who % 3, Hurries: r.IntN(2) == 0, Came: began.Add(time.Duration(who%4) * 100 * time.Millisecond),
					}); err == nil {
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
			release, err := f.Acquire(t.Context(), limit.Asker[int, int]{Key: 100 + len(all), Crowd: 100})
			require.NoError(t, err)
			all = append(all, release)
		}
		for _, release := range all {
			release()
		}
	})
}
