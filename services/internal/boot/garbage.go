package boot

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much garbage may pile up before it is collected, in percent of what is in use. Go's own 100 is a compromise: a calm
// gateway holds as much memory for garbage that nobody makes as for its connections, and a small heap under load is
// collected many times a second.
const (
	calmPercent     = 20
	busyPercent     = 100 // at least
	mostBusyPercent = 400
	// busyRoom is for how many bytes there is room while a process is busy, within the percents.
	busyRoom = 128 << 20
	// busyCycles is after how many collections between two looks a process is busy, as soon as that is noticed: load that comes at
	// once would be collected over and over until the second look. calmLooks is after how many looks without any it is calm.
	busyCycles = 2
	calmLooks  = 3
	// freeLooks is after how many looks the system is given again what is not in use, at the earliest.
	freeLooks = 15
	lookEvery = time.Second
)

// garbage trades memory for processor time while there is much to do, and gives it back afterwards. GOMEMLIMIT holds
// nevertheless.
type garbage struct {
	look func() heap
	set  func(percent int)
	// collected returns a channel that is closed some time after the next collection; while there is much to do, perhaps only after
	// a few.
	collected func() <-chan struct{}
	// free gives the system what is not in use. By itself the runtime does that little by little, after the percents.
	free func()

	percent int
	cycles  uint64
	quiet   int  // looks without a collection
	used    bool // more may be held than is in use: there was load since free
	kept    int  // looks since free
}

// heap is the collector's state: collections so far that nobody has asked for, and bytes that the last one found in use.
type heap struct{ cycles, live uint64 }

func newGarbage() *garbage {
	samples := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	return &garbage{
		look: func() heap {
			metrics.Read(samples)
			return heap{samples[0].Value.Uint64(), samples[1].Value.Uint64()}
		},
		set:       func(percent int) { debug.SetGCPercent(percent) },
		collected: collected,
		free:      debug.FreeOSMemory,
	}
}

// collected returns a channel that is closed when what it leaves behind has been collected.
func collected() <-chan struct{} {
	done := make(chan struct{})
	runtime.AddCleanup(new([32]byte), func(done chan struct{}) { close(done) }, done)
	return done
}

// Run adapts until ctx is done. It implements lifecycle.Service. Whoever sets GOGC decides instead.
func (g *garbage) Run(ctx context.Context, ready func()) error {
	ready()
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	g.cycles = g.look().cycles
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	collected := g.collected()
	for {
		select {
		case <-tick.C:
			g.adapt(g.look())
		case <-collected:
			if g.percent < busyPercent { // else there is room until the next look
				g.hurry(g.look())
			}
			collected = g.collected()
		case <-ctx.Done():
			return nil
		}
	}
}

// adapt is a look.
func (g *garbage) adapt(h heap) {
	g.hurry(h)
	g.quiet++
	g.kept++
	if h.cycles != g.cycles {
		g.quiet = 0
	}
	g.cycles = h.cycles
	if g.quiet >= calmLooks {
		g.change(calmPercent)
	}
	if g.used && g.percent == calmPercent && g.quiet >= calmLooks && g.kept >= freeLooks {
		g.used, g.kept = false, 0
		g.free()
	}
}

// hurry makes room if the process has become busy since the last look.
func (g *garbage) hurry(h heap) {
	if h.cycles-g.cycles >= busyCycles {
		g.change(min(max(busyRoom*100/int(max(h.live, 1)), busyPercent), mostBusyPercent))
	}
}

// change sets the percent if it changes by more than a tenth, since each change stops the world for a moment.
func (g *garbage) change(percent int) {
	if 10*max(percent-g.percent, g.percent-percent) > g.percent {
		g.percent = percent
		g.set(percent)
		g.used = true
	}
}
