package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/lifecycle"
)

var errBroken = errors.New("broken")

// journal notes what happened and when, relative to its creation.
type journal struct {
	mu    sync.Mutex
	begin time.Time
	lines []string
}

func newJournal() *journal { return &journal{begin: time.Now()} }

func (j *journal) note(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%s %s", time.Since(j.begin), what))
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// part is a service whose every phase takes a given time.
type part struct {
	name          string
	j             *journal
	start, settle time.Duration // until ready; from cancellation to return
	startErr      error
	runErr        error
	stopErr       error
	failAfter     time.Duration // fails by itself if runErr is set
}

func (p *part) Run(ctx context.Context, ready func()) error {
	p.j.note("start " + p.name)
	pause(ctx, p.start)
	if p.startErr != nil {
		return p.startErr
	}
	ready()
	ready() // more calls are harmless
	if p.runErr != nil {
		if pause(ctx, p.failAfter) {
			return p.runErr
		}
	}
	<-ctx.Done()
	pause(context.WithoutCancel(ctx), p.settle)
	p.j.note("stopped " + p.name)
	return p.stopErr
}

// pause waits d of the bubble's time; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// drainPart is a part that can leave gently.
type drainPart struct {
	part
	drain    time.Duration
	drainErr error
}

func (p *drainPart) Drain(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	p.j.note(fmt.Sprintf("drain %s within %s", p.name, time.Until(deadline)))
	if !pause(ctx, p.drain) {
		return ctx.Err()
	}
	return p.drainErr
}

// run runs the group in the bubble until its start settled, then cancels it after d, and returns what
// Run returned.
func run(t *testing.T, g *lifecycle.Group, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- g.Run(ctx, nil) }()
	pause(ctx, d)
	cancel()
	return <-result
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := lifecycle.NewGroup(lifecycle.Config{
			DrainDelay: 5 * time.Second, DrainTimeout: 9 * time.Second,
			OnReady:    func() { j.note("ready") },
			OnDraining: func() { j.note("draining") },
		})
		g.Add("pool", &part{name: "pool", j: j, start: time.Second})
		g.Add("server", &drainPart{part: part{name: "server", j: j, start: 2 * time.Second, settle: time.Second}, drain: 4 * time.Second}, "pool")
		g.Add("worker", &drainPart{part: part{name: "worker", j: j}, drain: time.Second}, "pool", "server")
		require.NoError(t, run(t, g, 10*time.Second))
		require.Equal(t, []string{
			"0s start pool",
			"1s start server",
			"3s start worker",
			"3s ready",
			"10s draining",
			"15s drain worker within 4.5s", // half of it
			"16s drain server within 8s",   // all that is left
			"20s stopped worker",
			"21s stopped server",
			"21s stopped pool",
		}, j.all())
	})
}

func TestFailureStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := lifecycle.NewGroup(lifecycle.Config{DrainDelay: time.Hour})
		g.Add("a", &drainPart{part: part{name: "a", j: j}})
		g.Add("b", &drainPart{part: part{name: "b", j: j, runErr: errBroken, failAfter: 3 * time.Second}})
		err := g.Run(t.Context(), nil)
		require.ErrorIs(t, err, errBroken)
		require.ErrorContains(t, err, "run b: ")
		require.Equal(t, []string{"0s start a", "0s start b", "3s drain a within 10s", "3s stopped a"}, j.all(),
			"no delay, and the one that failed is not drained")
	})
}

func TestStartError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := lifecycle.NewGroup(lifecycle.Config{OnReady: func() { t.Error("ready") }})
		g.Add("a", &part{name: "a", j: j})
		g.Add("b", &part{name: "b", j: j, startErr: errBroken})
		g.Add("c", &part{name: "c", j: j})
		require.ErrorIs(t, g.Run(t.Context(), func() { t.Error("ready") }), errBroken)
		require.Equal(t, []string{"0s start a", "0s start b", "0s stopped a"}, j.all())
	})
}

func TestStartLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := lifecycle.NewGroup(lifecycle.Config{StartTimeout: time.Second})
		g.Add("a", &part{name: "a", j: j, start: time.Hour})
		err := g.Run(t.Context(), nil)
		require.ErrorIs(t, err, lifecycle.ErrNotReady)
		require.ErrorContains(t, err, "start a: ")
	})
}

func TestFailureDuringStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := lifecycle.NewGroup(lifecycle.Config{})
		g.Add("a", &part{name: "a", j: j, runErr: errBroken, failAfter: time.Second})
		g.Add("b", &part{name: "b", j: j, start: time.Minute / 2})
		require.ErrorContains(t, g.Run(t.Context(), nil), "run a: broken")
		require.Equal(t, []string{"0s start a", "0s start b", "1s stopped b"}, j.all())
	})
}

func TestStopDuringStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := lifecycle.NewGroup(lifecycle.Config{})
		g.Add("a", &part{name: "a", j: j, start: time.Minute / 2})
		g.Add("b", &part{name: "b", j: j})
		require.NoError(t, run(t, g, time.Second))
		require.Equal(t, []string{"0s start a", "1s stopped a"}, j.all())
	})
}

func TestReturnWithoutReasonIsAFailure(t *testing.T) {
	g := lifecycle.NewGroup(lifecycle.Config{})
	g.Add("a", lifecycle.Func(func(_ context.Context, ready func()) error {
		ready()
		return nil
	}))
	require.ErrorIs(t, g.Run(t.Context(), nil), lifecycle.ErrReturned)
}

func TestPanics(t *testing.T) {
	g := lifecycle.NewGroup(lifecycle.Config{})
	g.Add("a", lifecycle.Func(func(context.Context, func()) error { panic("boom") }))
	err := g.Run(t.Context(), nil)
	require.ErrorContains(t, err, "run a: recover from panic: boom")
	require.ErrorContains(t, err, "group_test.go", "the stack")
}

type panicDrain struct{ lifecycle.Func }

func (panicDrain) Drain(context.Context) error { panic("boom") }

func TestDrainPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := lifecycle.NewGroup(lifecycle.Config{})
		g.Add("a", panicDrain{lifecycle.Task(func(context.Context) error { return nil }).(lifecycle.Func)})
		require.ErrorContains(t, run(t, g, time.Second), "drain a: recover from panic: boom")
	})
}

func TestSlowDrainDoesNotStarveTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := lifecycle.NewGroup(lifecycle.Config{DrainTimeout: 10 * time.Second})
		g.Add("a", &drainPart{part: part{name: "a", j: j}})
		g.Add("b", &drainPart{part: part{name: "b", j: j}, drain: time.Hour})
		err := run(t, g, time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "drain b: ")
		require.Equal(t, []string{
			"0s start a", "0s start b", "1s drain b within 5s", "6s drain a within 5s", "6s stopped b", "6s stopped a",
		}, j.all())
	})
}

func TestHungPartIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := lifecycle.NewGroup(lifecycle.Config{StopTimeout: 2 * time.Second})
		g.Add("a", &part{name: "a", j: j})
		g.Add("b", &part{name: "b", j: j, settle: time.Minute})
		err := run(t, g, time.Second)
		require.ErrorIs(t, err, lifecycle.ErrNotStopped)
		require.ErrorContains(t, err, "stop b: ")
		require.Equal(t, []string{"0s start a", "0s start b", "3s stopped a"}, j.all())
		pause(t.Context(), time.Minute) // a bubble must not leave goroutines behind
	})
}

func TestStopErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		g := lifecycle.NewGroup(lifecycle.Config{})
		g.Add("a", &part{name: "a", j: j, stopErr: errBroken})
		g.Add("b", &part{name: "b", j: j, stopErr: context.Canceled})
		g.Add("c", lifecycle.OnStop(func() error { return errBroken }))
		require.EqualError(t, run(t, g, time.Second), "stop c: broken\nstop a: broken")
	})
}

// drainer returns from Run as soon as it is drained, as an RPC server does.
type drainer struct{ drained chan struct{} }

func (d *drainer) Run(ctx context.Context, ready func()) error {
	ready()
	select {
	case <-d.drained:
	case <-ctx.Done():
	}
	return nil
}

func (d *drainer) Drain(context.Context) error {
	close(d.drained)
	return nil
}

func TestReturnAfterDrainIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := lifecycle.NewGroup(lifecycle.Config{})
		g.Add("a", &drainer{drained: make(chan struct{})})
		require.NoError(t, run(t, g, time.Second))
	})
}

func TestNestedGroupIsDrainedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		inner := lifecycle.NewGroup(lifecycle.Config{OnDraining: func() { j.note("inner draining") }})
		inner.Add("b", &drainPart{part: part{name: "b", j: j}, drain: time.Second})
		inner.Add("c", &drainPart{part: part{name: "c", j: j}})
		outer := lifecycle.NewGroup(lifecycle.Config{DrainTimeout: 8 * time.Second})
		outer.Add("a", &drainPart{part: part{name: "a", j: j}})
		outer.Add("inner", inner, "a")
		require.NoError(t, run(t, outer, time.Second))
		require.Equal(t, []string{
			"0s start a", "0s start b", "0s start c",
			"1s inner draining", "1s drain c within 2s", "1s drain b within 4s", "2s drain a within 7s",
			"2s stopped c", "2s stopped b", "2s stopped a",
		}, j.all())
	})
}

func TestNestedFailureNamesThePath(t *testing.T) {
	inner := lifecycle.NewGroup(lifecycle.Config{})
	inner.Add("b", lifecycle.Task(func(context.Context) error { return errBroken }))
	outer := lifecycle.NewGroup(lifecycle.Config{})
	outer.Add("inner", inner)
	require.EqualError(t, outer.Run(t.Context(), nil), "run inner: run b: broken")
}

func TestNestedNamesAreSaidOnce(t *testing.T) {
	inner := lifecycle.NewGroup(lifecycle.Config{})
	inner.Add("gateway", lifecycle.Func(func(context.Context, func()) error { return errors.New("no port") }))
	middle := lifecycle.NewGroup(lifecycle.Config{})
	middle.Add("gateway", inner)
	outer := lifecycle.NewGroup(lifecycle.Config{})
	outer.Add("cluster", middle)
	require.EqualError(t, outer.Run(t.Context(), nil), "run cluster: run gateway: no port")
}

func TestAddMistakes(t *testing.T) {
	g := lifecycle.NewGroup(lifecycle.Config{})
	g.Add("a", nil)
	g.Add("b", lifecycle.OnStop(func() error { return nil }), "c")
	g.Add("b", lifecycle.OnStop(func() error { return nil }))
	require.EqualError(t, g.Run(t.Context(), nil), "add a: nil service\nadd b: c was not added before it\nadd b: name is taken")
}
