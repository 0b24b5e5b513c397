package havoc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/tools/chaos/internal/checker"
	"github.com/apiary-relay/apiary/tools/chaos/internal/scenario"
)

const (
	// readyTimeout bounds the wait until everything runs again after a run, readyInterval is the time between two looks.
	readyTimeout  = 2 * time.Minute
	readyInterval = 50 * time.Millisecond
)

// Cluster is what havoc needs of the cluster; local.Cluster is one.
type Cluster interface {
	Kill(name string) error
	Pause(name string) error
	Resume(name string) error
	Leave(ctx context.Context, name string) error
	Join(ctx context.Context, name string) error
	Running(service string) []string
	Ready() bool
}

// Havoc is what is done in one run.
type Havoc struct {
	cluster Cluster
	links   *Links
	log     *checker.Log
	note    *slog.Logger

	mu   sync.Mutex
	turn map[string]int // guarded by mu; by service
}

// New returns one that has done nothing yet. note receives a line for everything that is done.
func New(cluster Cluster, links *Links, log *checker.Log, note *slog.Logger) *Havoc {
	return &Havoc{cluster: cluster, links: links, log: log, note: note, turn: make(map[string]int)}
}

// Do does the steps that come within length, and returns at its end, or at that of ctx. What still goes on then is
// ended, so that everything can be reached and nothing is frozen. Errors are of what could not be done.
func (h *Havoc) Do(ctx context.Context, steps []scenario.Step, length time.Duration) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	done := 0
	doing, failed := errgroup.WithContext(ctx)
	for i := range steps {
		times := steps[i].Times(length)
		done += len(times)
		doing.Go(func() error {
			for _, at := range times {
				if !until(failed, began.Add(at)) {
					return nil
				}
				h.note.InfoContext(ctx, "now", slog.String("step", steps[i].String()))
				if err := h.step(failed, &steps[i]); err != nil {
					return fmt.Errorf("%s: %w", steps[i].String(), err)
				}
			}
			return nil
		})
	}
	doing.Go(func() error {
		<-failed.Done()
		return nil
	})
	err := doing.Wait()
	h.links.heal()
	if done == 0 && len(steps) > 0 {
		err = errors.Join(err, fmt.Errorf("nothing happens in %s: the run is too short for this scenario", length))
	}
	return err
}

// until waits for a moment, or reports false when ctx ends first.
func until(ctx context.Context, moment time.Time) bool {
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// step does something once and returns when it is over, or ended at the end of ctx.
func (h *Havoc) step(ctx context.Context, s *scenario.Step) error {
	switch s.Action() {
	case scenario.Cut, scenario.Hold:
		defer h.log.Breaking(checker.Other, s.Link().String())()
		proxies := h.links.between(h.processes(s.Link().From), h.processes(s.Link().To))
		for _, proxy := range proxies {
			if s.Action() == scenario.Cut {
				proxy.Cut()
			} else {
				proxy.Blackhole()
			}
		}
		until(ctx, time.Now().Add(s.For))
		for _, proxy := range proxies {
			proxy.Heal()
		}
		return nil
	case scenario.Add:
		return h.each(s.Target(), func(name string) error { return h.join(ctx, name) })
	case scenario.Remove:
		return h.each(s.Target(), func(name string) error { return h.leave(ctx, name) })
	case scenario.Roll:
		return h.each(s.Target(), func(name string) error { return errors.Join(h.leave(ctx, name), h.join(ctx, name)) })
	case scenario.Kill:
		return h.each(s.Target(), func(name string) error {
			defer h.log.Breaking(checker.Kill, name)()
			return h.cluster.Kill(name)
		})
	case scenario.Pause:
		return h.pause(ctx, h.processes(s.Target()), s.For)
	}
	return nil
}

// each does something to each process of a target, one after the other.
func (h *Havoc) each(t scenario.Target, do func(name string) error) error {
	for _, name := range h.processes(t) {
		if err := do(name); err != nil {
			return err
		}
	}
	return nil
}

// pause freezes processes together.
func (h *Havoc) pause(ctx context.Context, names []string, length time.Duration) error {
	var errs []error
	for _, name := range names {
		defer h.log.Breaking(checker.Other, name)()
		errs = append(errs, h.cluster.Pause(name))
	}
	until(ctx, time.Now().Add(length))
	for _, name := range names {
		errs = append(errs, h.cluster.Resume(name))
	}
	return errors.Join(errs...)
}

func (h *Havoc) leave(ctx context.Context, name string) error {
	defer h.log.Breaking(checker.Leave, name)()
	return h.cluster.Leave(ctx, name)
}

// join is not broken off by the end of the run: the process belongs there.
func (h *Havoc) join(ctx context.Context, name string) error {
	defer h.log.Breaking(checker.Other, name)()
	return h.cluster.Join(context.WithoutCancel(ctx), name)
}

// processes returns those that a target means at the moment. The next of a service is one that runs.
func (h *Havoc) processes(t scenario.Target) []string {
	if t.Process != "" {
		return []string{t.Process}
	}
	running := h.cluster.Running(t.Service)
	if !t.Next || len(running) == 0 {
		return running
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.turn[t.Service]
	h.turn[t.Service]++
	return running[n%len(running) : n%len(running)+1]
}

// Restore brings back the processes that ran at first, stops those that did not, and returns when all are ready.
func Restore(ctx context.Context, cluster Cluster, first map[string][]string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for service, names := range first {
		running := cluster.Running(service)
		for _, name := range names {
			if !slices.Contains(running, name) {
				if err := cluster.Join(ctx, name); err != nil {
					return err
				}
			}
		}
		for _, name := range running {
			if !slices.Contains(names, name) {
				if err := cluster.Leave(ctx, name); err != nil {
					return err
				}
			}
		}
	}
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for !cluster.Ready() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not everything runs again: %w", ctx.Err())
		}
	}
	return nil
}

// service returns the service of a process, by its name.
func service(process string) string {
	name, _, _ := strings.Cut(process, "-")
	return name
}
