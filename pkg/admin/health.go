package admin

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const (
	checkInterval = 5 * time.Second
	checkTimeout  = 3 * time.Second
)

// Check asks a dependency whether it can be used now. It must obey ctx.
type Check func(ctx context.Context) error

// Dependency is what the last check of a dependency found.
type Dependency struct {
	Name string `json:"name"`
	// Up is false until the first check succeeded.
	Up bool `json:"up"`
	// Since is when Up last changed; zero before the first check.
	Since time.Time `json:"since,omitzero"`
	// Error is the text of the last failure, empty when up. It is for operators only.
	Error string `json:"error,omitempty"`
}

// Health is the state of a process as probes and operators see it:
//
//	[starting] ── SetReady ──▶ [ready] ── SetDraining ──▶ [draining]
//	     └───────────────────── SetDraining ─────────────────▲
//
// Readiness is this state and nothing else. Dependencies are checked in the background by Run and are
// reported, but a replica whose database is away stays ready: every replica would leave the balancer
// at once, and the sockets that are open would be lost for nothing.
//
// All methods are safe for concurrent use.
type Health struct {
	log      *slog.Logger
	draining chan struct{}

	mu     sync.Mutex
	ready  bool                  // guarded by mu
	leave  bool                  // guarded by mu; draining is closed when set
	checks map[string]Check      // guarded by mu
	states map[string]Dependency // guarded by mu
}

// NewHealth returns a process that is starting. The meter gets apiary_dependency_up with the attribute
// dependency; both arguments must not be nil.
func NewHealth(log *slog.Logger, meter metric.Meter) (*Health, error) {
	h := &Health{log: log, draining: make(chan struct{}), checks: map[string]Check{}, states: map[string]Dependency{}}
	_, err := meter.Int64ObservableGauge("apiary_dependency_up",
		metric.WithDescription("1 when the last background check of the dependency succeeded."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for _, d := range h.Dependencies() {
				up := int64(0)
				if d.Up {
					up = 1
				}
				o.Observe(up, metric.WithAttributes(attribute.String("dependency", d.Name)))
			}
			return nil
		}))
	if err != nil {
		return nil, err
	}
	return h, nil
}

// SetReady says that every part of the process has started.
func (h *Health) SetReady() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = true
}

// SetDraining says that the process is about to end. It cannot be taken back.
func (h *Health) SetDraining() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.leave {
		h.leave = true
		close(h.draining)
	}
}

// Draining is closed when SetDraining was called. gRPC servers take it for their own health, and
// handlers of long streams end them.
func (h *Health) Draining() <-chan struct{} { return h.draining }

// Ready reports whether the process takes new work: started and not draining.
func (h *Health) Ready() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready && !h.leave
}

// State returns "starting", "ready" or "draining".
func (h *Health) State() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.leave:
		return "draining"
	case h.ready:
		return "ready"
	default:
		return "starting"
	}
}

// AddCheck makes Run check a dependency every few seconds. name is from a closed set ("postgres",
// "nats"); a second check of the same name replaces the first.
func (h *Health) AddCheck(name string, check Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[name] = check
	h.states[name] = Dependency{Name: name}
}

// Dependencies returns the state of all dependencies, sorted by name.
func (h *Health) Dependencies() []Dependency {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.states), func(a, b Dependency) int { return strings.Compare(a.Name, b.Name) })
}

// Run checks the dependencies until ctx is done. It is ready at once.
func (h *Health) Run(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		h.checkAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// checkAll runs every check at the same time and waits for all.
func (h *Health) checkAll(ctx context.Context) {
	h.mu.Lock()
	checks := maps.Clone(h.checks)
	h.mu.Unlock()
	var running sync.WaitGroup
	for name, check := range checks {
		running.Go(func() {
			one, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			err := check(one)
			if ctx.Err() == nil { // else it failed because the process ends
				h.note(ctx, name, err)
			}
		})
	}
	running.Wait()
}

// note records the outcome of a check and logs a change.
func (h *Health) note(ctx context.Context, name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.states[name]
	now := Dependency{Name: name, Up: err == nil, Since: was.Since}
	if err != nil {
		now.Error = err.Error()
	}
	changed := was.Since.IsZero() || was.Up != now.Up
	if changed {
		now.Since = time.Now()
	}
	h.states[name] = now
	level := slog.LevelWarn
	if h.leave {
		level = slog.LevelInfo // it is we who close our end
	}
	switch {
	case !changed:
	case err != nil:
		h.log.LogAttrs(ctx, level, "dependency is down", slog.String("dependency", name), slog.Any("error", err))
	default:
		h.log.LogAttrs(ctx, slog.LevelInfo, "dependency is up", slog.String("dependency", name))
	}
}
