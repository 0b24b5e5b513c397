package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config bounds the phases of a Group. A zero duration takes the default, except DrainDelay, where
// zero means no delay.
type Config struct {
	// StartTimeout bounds the time from a member's start to its ready call (default 60 s).
	StartTimeout time.Duration
	// DrainDelay is waited after OnDraining and before the first Drain, so that load balancers notice
	// (default 0). It is skipped when the group stops because a member failed.
	DrainDelay time.Duration
	// DrainTimeout bounds all Drain calls together (default 10 s). Each gets an equal share of what is
	// left, so time that one does not use goes to the next.
	DrainTimeout time.Duration
	// StopTimeout bounds the time from the cancellation of one member to its return (default 10 s).
	// A member that is late is reported and left behind.
	StopTimeout time.Duration
	// OnReady, if set, is called once every member is ready.
	OnReady func()
	// OnDraining, if set, is called when the group begins to stop, before anything else.
	OnDraining func()
	// OnFailure, if set, is called with the first failure of a member before anything is stopped, which may
	// take a while; Run returns it too. A group in a group leaves it unset: its failure is its parent's.
	OnFailure func(error)
	// Log may be nil.
	Log *slog.Logger
}

const (
	defaultStartTimeout = time.Minute
	defaultDrainTimeout = 10 * time.Second
	defaultStopTimeout  = 10 * time.Second
)

var (
	// ErrReturned is in the error of a member that returned nil without having been asked to stop.
	ErrReturned = errors.New("returned before it was asked to stop")
	// ErrNotReady is in the error of a member that was not ready in time.
	ErrNotReady = errors.New("not ready in time")
	// ErrNotStopped is in the error of a member that did not return in time.
	ErrNotStopped = errors.New("did not stop in time")
)

// Group runs services as one. Add them, then call Run once.
type Group struct {
	cfg     Config
	members []*member
	addErr  error
	drain   sync.Once
	leaving atomic.Bool  // set when draining begins
	failed  chan *member // buffered for every member
}

// member is one service of a group and what became of it. Its fields are set by the Group's Run
// goroutine, except err and unasked, which the member's goroutine sets before it closes done.
type member struct {
	name   string
	svc    Service
	cancel context.CancelFunc
	ready  chan struct{}
	done   chan struct{}
	err    error
	// unasked: Run returned before it was asked to; the member is then in the failed channel.
	unasked bool
}

// NewGroup returns an empty group.
func NewGroup(cfg Config) *Group {
	if cfg.StartTimeout <= 0 {
		cfg.StartTimeout = defaultStartTimeout
	}
	if cfg.DrainTimeout <= 0 {
		cfg.DrainTimeout = defaultDrainTimeout
	}
	if cfg.StopTimeout <= 0 {
		cfg.StopTimeout = defaultStopTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Group{cfg: cfg}
}

// Add appends a service. after names members that must have been added before; the order of addition
// is the order of start, so this documents and checks it. A mistake (a nil service, a name used twice,
// an unknown name in after) is returned by Run.
func (g *Group) Add(name string, svc Service, after ...string) {
	switch {
	case svc == nil:
		g.addErr = errors.Join(g.addErr, fmt.Errorf("add %s: nil service", name))
		return
	case g.has(name):
		g.addErr = errors.Join(g.addErr, fmt.Errorf("add %s: name is taken", name))
		return
	}
	for _, a := range after {
		if !g.has(a) {
			g.addErr = errors.Join(g.addErr, fmt.Errorf("add %s: %s was not added before it", name, a))
		}
	}
	g.members = append(g.members, &member{name: name, svc: svc})
}

func (g *Group) has(name string) bool {
	return slices.ContainsFunc(g.members, func(m *member) bool { return m.name == name })
}

// Run starts the members, calls ready (which may be nil), waits until ctx is done or a member fails,
// and stops them. It returns nil after a stop that ctx asked for in which nothing went wrong, else all
// errors joined, each with the member's name.
func (g *Group) Run(ctx context.Context, ready func()) error {
	if g.addErr != nil {
		return g.addErr
	}
	g.failed = make(chan *member, len(g.members))
	started, err := g.start(ctx)
	if err == nil && ctx.Err() == nil {
		if g.cfg.OnReady != nil {
			g.cfg.OnReady()
		}
		if ready != nil {
			ready()
		}
		select {
		case <-ctx.Done():
		case m := <-g.failed:
			err = m.failure()
		}
	}
	if err != nil && g.cfg.OnFailure != nil {
		g.cfg.OnFailure(err)
	}
	return errors.Join(err, g.stop(ctx, started, err == nil))
}

// start brings the members up one by one and returns those that were started, ready or not.
func (g *Group) start(ctx context.Context) ([]*member, error) {
	for i, m := range g.members {
		if ctx.Err() != nil {
			return g.members[:i], nil //nolint:nilerr // being asked to stop is no failure
		}
		begin := time.Now()
		g.launch(ctx, m)
		timeout := time.NewTimer(g.cfg.StartTimeout)
		var err error
		select {
		case <-m.ready:
			g.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "ready", slog.String("part", m.name), slog.Duration("took", time.Since(begin)))
		case failed := <-g.failed: // m, or one that started before it
			err = failed.failure()
		case <-ctx.Done():
		case <-timeout.C:
			err = fmt.Errorf("start %s: %w (%s)", m.name, ErrNotReady, g.cfg.StartTimeout)
		}
		timeout.Stop()
		if err != nil {
			return g.members[:i+1], err
		}
	}
	return g.members, nil
}

// launch runs m in its own goroutine under a context that only the group cancels.
func (g *Group) launch(ctx context.Context, m *member) {
	// Values (trace, logger) come from the parent, its cancellation does not: see the package comment.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel, m.ready, m.done = cancel, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(m.done)
		m.err = runRecovered(own, m.svc, sync.OnceFunc(func() { close(m.ready) }))
		if own.Err() != nil || (m.err == nil && g.leaving.Load()) {
			return // asked to stop, or done with what Drain asked for
		}
		if m.err == nil {
			m.err = ErrReturned
		}
		m.unasked = true
		g.failed <- m
	}()
}

func runRecovered(ctx context.Context, svc Service, ready func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("recover from panic: %v\n%s", r, debug.Stack())
		}
	}()
	return svc.Run(ctx, ready)
}

// failure is the error of a member from the failed channel. It waits for the last steps of m's goroutine, so
// that m is not taken for alive afterwards.
func (m *member) failure() error {
	<-m.done
	return m.phase("run", m.err)
}

// phase says which member failed in what. A member that is a group, with a part of the same name that failed
// in the same, has said so already.
func (m *member) phase(verb string, err error) error {
	prefix := verb + " " + m.name + ": "
	if strings.HasPrefix(err.Error(), prefix) {
		return err
	}
	return fmt.Errorf("%s%w", prefix, err)
}

// alive reports whether m's Run is still going on after it became ready.
func (m *member) alive() bool {
	select {
	case <-m.done:
		return false
	default:
	}
	select {
	case <-m.ready:
		return true
	default:
		return false
	}
}

// stop drains (unless a parent group already did) and cancels the started members, in reverse.
// orderly is false after a failure.
func (g *Group) stop(ctx context.Context, started []*member, orderly bool) error {
	ctx = context.WithoutCancel(ctx) // it is done already; draining has its own bounds
	var errs []error
	g.drain.Do(func() {
		g.leave()
		if orderly && g.cfg.DrainDelay > 0 {
			delay := time.NewTimer(g.cfg.DrainDelay)
			defer delay.Stop()
			select {
			case <-delay.C:
			case m := <-g.failed:
				errs = append(errs, m.failure())
			}
		}
		within, cancel := context.WithTimeout(ctx, g.cfg.DrainTimeout)
		defer cancel()
		errs = append(errs, g.drainMembers(within, started))
	})
	for _, m := range slices.Backward(started) {
		errs = append(errs, g.cancel(m))
	}
	// Members that failed while the group was stopping; the first failure was taken by Run.
	for {
		select {
		case m := <-g.failed:
			errs = append(errs, m.failure())
		default:
			return errors.Join(errs...)
		}
	}
}

// leave announces that the group begins to stop.
func (g *Group) leave() {
	g.leaving.Store(true)
	if g.cfg.OnDraining != nil {
		g.cfg.OnDraining()
	}
}

// Drain makes a Group a Drainer for the group it is nested in. It drains the members in reverse order
// by ctx's deadline (Config.DrainTimeout if ctx has none).
func (g *Group) Drain(ctx context.Context) error {
	var err error
	g.drain.Do(func() {
		g.leave()
		within, cancel := ctx, context.CancelFunc(func() {})
		if _, ok := ctx.Deadline(); !ok {
			within, cancel = context.WithTimeout(ctx, g.cfg.DrainTimeout)
		}
		defer cancel()
		err = g.drainMembers(within, g.members)
	})
	return err
}

// drainMembers calls Drain on the members that are alive, last added first, each under an equal share
// of the time that is left before ctx's deadline.
func (g *Group) drainMembers(ctx context.Context, members []*member) error {
	deadline, _ := ctx.Deadline()
	var drainers []*member
	for _, m := range slices.Backward(members) {
		if _, ok := m.svc.(Drainer); ok && m.alive() {
			drainers = append(drainers, m)
		}
	}
	var errs []error
	for i, m := range drainers {
		share := time.Until(deadline) / time.Duration(len(drainers)-i)
		one, cancel := context.WithTimeout(ctx, share)
		begin := time.Now()
		err := drainRecovered(one, m.svc.(Drainer)) //nolint:forcetypeassert // checked above
		cancel()
		if err != nil {
			errs = append(errs, m.phase("drain", err))
		}
		g.cfg.Log.LogAttrs(ctx, slog.LevelInfo, "drained", slog.String("part", m.name), slog.Duration("took", time.Since(begin)))
	}
	return errors.Join(errs...)
}

// drainRecovered calls Drain and returns at the latest when ctx ends, even if Drain does not.
func drainRecovered(ctx context.Context, d Drainer) error {
	result := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				result <- fmt.Errorf("recover from panic: %v\n%s", r, debug.Stack())
			}
		}()
		result <- d.Drain(ctx)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	// A Drain that obeys ctx returns now; one that does not is left to the cancellation of Run.
	grace := time.NewTimer(time.Second)
	defer grace.Stop()
	select {
	case err := <-result:
		return err
	case <-grace.C:
		return ctx.Err()
	}
}

// cancel asks m to stop and waits for it.
func (g *Group) cancel(m *member) error {
	m.cancel()
	late := time.NewTimer(g.cfg.StopTimeout)
	defer late.Stop()
	select {
	case <-m.done:
	case <-late.C:
		return fmt.Errorf("stop %s: %w (%s)", m.name, ErrNotStopped, g.cfg.StopTimeout)
	}
	if m.unasked || m.err == nil || errors.Is(m.err, context.Canceled) {
		return nil // unasked: reported from the failed channel
	}
	return m.phase("stop", m.err)
}
