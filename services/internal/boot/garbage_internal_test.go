package boot

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestGarbage(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	steps := []struct {
		what    string
		cycles  uint64 // since the look before
		live    uint64
		percent int // set now; 0: left alone
	}{
		{"nothing is known yet", 0, 10 * mb, 0},
		{"a collection is no load", 1, 10 * mb, 0},
		{"a small heap under load", 5, 64 * mb, 200},
		{"load goes on", 2, 65 * mb, 0},
		{"a tiny heap", 3, 1, mostBusyPercent},
		{"a large heap", 2, 1 << 40, busyPercent},
		{"less load", 1, 100 * mb, 0},
		{"quiet", 0, 100 * mb, 0},
		{"quiet", 0, 100 * mb, 0},
		{"quiet for long", 0, 100 * mb, calmPercent},
		{"quiet", 0, 100 * mb, 0},
		{"a collection now and then", 1, 100 * mb, 0},
		{"load again", 2, 128 * mb, 100},
		{"quiet, broken off", 0, 100 * mb, 0},
		{"quiet, broken off", 0, 100 * mb, 0},
		{"quiet, broken off", 1, 100 * mb, 0},
		{"quiet", 0, 100 * mb, 0},
	}
	set := 0
	g := &garbage{set: func(percent int) { set = percent }, free: func() {}}
	total := uint64(0)
	for _, s := range steps {
		set, total = 0, total+s.cycles
		g.adapt(heap{total, s.live})
		require.Equal(t, s.percent, set, s.what)
	}
}

// Memory is given back once after each load, when that has been over for a while, and not too often.
func TestMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	freed := 0
	g := &garbage{set: func(int) {}, free: func() { freed++ }}
	total := uint64(0)
	looks := func(n int, cycles uint64) {
		for range n {
			total += cycles
			g.adapt(heap{total, 1 << 20})
		}
	}
	looks(freeLooks-1, 0)
	require.Zero(t, freed)
	looks(freeLooks, 0)
	require.Equal(t, 1, freed, "a process that has begun")
	looks(10*freeLooks, 0)
	require.Equal(t, 1, freed, "there was no load")
	looks(1, busyCycles)
	looks(calmLooks-1, 0)
	require.Equal(t, 1, freed, "it may go on")
	looks(1, 0)
	require.Equal(t, 2, freed, "after a load")
	looks(1, busyCycles)
	looks(freeLooks-2, 0)
	require.Equal(t, 2, freed, "that is too often")
	looks(1, 0)
	require.Equal(t, 3, freed)
	looks(2*freeLooks, busyCycles)
	require.Equal(t, 3, freed, "there is load")
}

func TestGarbageIsAdapted(t *testing.T) {
	for _, gogc := range []string{"", "50"} {
		t.Setenv("GOGC", gogc)
		synctest.Test(t, func(t *testing.T) {
			g := newGarbage()
			ctx, cancel := context.WithTimeout(t.Context(), calmLooks*lookEvery+lookEvery/2)
			defer cancel()
			var set []int
			g.look = func() heap { return heap{} }
			g.set = func(percent int) { set = append(set, percent) }
			g.free = func() {}
			g.collected = func() <-chan struct{} { return nil }
			ready := false
			require.NoError(t, g.Run(ctx, func() { ready = true }))
			require.True(t, ready)
			if gogc == "" {
				require.Equal(t, []int{calmPercent}, set)
			} else {
				require.Empty(t, set, "the operator has decided")
			}
		})
	}
}

// Load that comes at once is not collected over and over until the next look.
func TestRoomIsMadeWithoutWaitingForALook(t *testing.T) {
	t.Setenv("GOGC", "")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lookEvery/2)
		defer cancel()
		var set []int
		cycles := uint64(100)
		var done chan struct{}
		g := &garbage{
			look: func() heap { return heap{cycles, (cycles - 100 - busyCycles + 1) * busyRoom / 2} },
			set:  func(percent int) { set = append(set, percent) },
			collected: func() <-chan struct{} {
				done = make(chan struct{})
				return done
			},
			free: func() {},
		}
		var running sync.WaitGroup
		running.Go(func() { _ = g.Run(ctx, func() {}) })
		for range busyCycles + 1 {
			synctest.Wait()
			cycles++
			close(done)
			synctest.Wait()
			if cycles < 100+busyCycles {
				require.Empty(t, set, "one is no load")
			} else {
				require.Equal(t, []int{200}, set, "once, whatever the heap does until the next look")
			}
		}
		running.Wait()
	})
}

func TestCollectionsAreTold(t *testing.T) {
	t.Parallel()
	done := collected()
	runtime.GC()
	<-done
}

func TestGarbageKnowsTheCollector(t *testing.T) {
	t.Parallel()
	before := newGarbage().look() // a metric that is not known panics
	require.GreaterOrEqual(t, newGarbage().look().cycles, before.cycles)
}
