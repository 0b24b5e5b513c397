package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// firstPause is the wait before the first restart; it doubles up to lastPause.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// settled is how long a child must have lived for its next death to count as a first one.
	settled = 10 * time.Second
)

// State is what a child is doing.
type State string

// The states: a child is Starting until it is ready, Running until it dies or is told to stop, Waiting
// for its next start after a death, Stopped for good after Stop, Dead for good when it died and is not
// to be restarted.
const (
	Starting State = "starting"
	Running  State = "running"
	Waiting  State = "waiting"
	Stopped  State = "stopped"
	Dead     State = "dead"
)

// Spec describes a child.
type Spec struct {
	// Name is unique, like gateway-1.
	Name string
	// Path is the program, Args its arguments without the program's name.
	Path string
	Args []string
	// Env is its whole environment.
	Env []string
	// Log is the file that its output is appended to.
	Log string
	// ReadyURL answers 200 once the child is ready; when it is empty, a started child is ready.
	ReadyURL string
}

// Status is a child at one moment.
type Status struct {
	Name string
	// PID is its process id, 0 when it does not run.
	PID   int
	State State
	// Restarts is how often it was started again.
	Restarts int
}

// Up reports whether the child has been ready and is to be again by itself if it dies: not while it starts for the first time,
// when to kill it would be to refuse its start.
func (s Status) Up() bool {
	return s.State == Running || s.State == Waiting || s.State == Starting && s.Restarts > 0
}

// Config says what to do about deaths.
type Config struct {
	// Restart starts dead children again.
	Restart bool
	// Log receives a line for each death and each return.
	Log *slog.Logger
	// Changed, when set, is called after every change of a status, one call at a time, from any
	// goroutine of the supervisor; it must not call back into it except for Statuses.
	Changed func()
}

// Supervisor starts and keeps children.
type Supervisor struct {
	cfg   Config
	forks chan func()
	done  chan struct{} // closed when the forking goroutine has ended

	mu       sync.Mutex
	children []*child // guarded by mu, in order of start

	changes sync.Mutex // serialises Changed; never taken with mu held
}

// Open starts the forking goroutine, which Close ends.
func Open(cfg Config) *Supervisor {
	s := &Supervisor{cfg: cfg, forks: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		// Never unlocked before the end: when this thread dies, so do the children it forked.
		runtime.LockOSThread()
		for fork := range s.forks {
			fork()
		}
		runtime.UnlockOSThread()
	}()
	return s
}

// Close stops what still runs, without patience, and ends the supervisor's goroutines.
func (s *Supervisor) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Stop(ctx)
	close(s.forks)
	<-s.done
}

// Start starts a child and waits until it is ready. When it cannot be started, dies or is not ready by
// the end of ctx, it is stopped and the error holds the last lines of its output. A child that has ended for
// good makes room for one of its name.
func (s *Supervisor) Start(ctx context.Context, spec Spec) error {
	c := &child{spec: spec, supervisor: s, stop: make(chan struct{}), ended: make(chan struct{})}
	s.mu.Lock()
	switch i := slices.IndexFunc(s.children, func(other *child) bool { return other.spec.Name == spec.Name }); {
	case i < 0:
		s.children = append(s.children, c)
	case s.children[i].over():
		s.children[i] = c
	default:
		s.mu.Unlock()
		return fmt.Errorf("start %s: a child of this name runs", spec.Name)
	}
	s.mu.Unlock()

	exited, err := c.fork()
	if err == nil {
		err = awaitReady(ctx, spec.ReadyURL, exited)
	}
	if err != nil {
		if exited != nil {
			c.signal(syscall.SIGKILL)
			<-exited
		}
		c.end(Dead)
		return fmt.Errorf("start %s: %w%s", spec.Name, err, tail(spec.Log))
	}
	c.set(Running)
	go c.keep(exited) //nolint:contextcheck // ctx bounds the start, Stop the life
	return nil
}

// Run runs a program to its end and returns its output; the error of one that fails holds what it said.
func (s *Supervisor) Run(ctx context.Context, spec Spec) ([]byte, error) {
	cmd := exec.CommandContext(ctx, spec.Path, spec.Args...) //nolint:gosec // the caller's own programs
	cmd.Env = spec.Env
	cmd.SysProcAttr = attributes()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := s.fork(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return output.Bytes(), fmt.Errorf("run %s: %w\n%s", spec.Name, err, bytes.TrimSpace(output.Bytes()))
	}
	return output.Bytes(), nil
}

// Stop asks the named children, or all of them when none is named, to end, and kills those that have
// not by the end of ctx. It returns when they are gone.
func (s *Supervisor) Stop(ctx context.Context, names ...string) {
	s.mu.Lock()
	var stopping []*child
	for _, c := range s.children {
		if len(names) == 0 || slices.Contains(names, c.spec.Name) {
			stopping = append(stopping, c)
		}
	}
	s.mu.Unlock()
	for _, c := range stopping {
		c.stopOnce.Do(func() { close(c.stop) })
		c.signal(syscall.SIGTERM)
	}
	for _, c := range stopping {
		select {
		case <-c.ended:
		case <-ctx.Done():
			c.signal(syscall.SIGKILL)
			<-c.ended
		}
	}
}

// Signal sends a signal to a child, and nothing if it does not run at the moment. The error says that there is
// no child of this name.
func (s *Supervisor) Signal(name string, signal os.Signal) error {
	c, err := s.child(name)
	if err != nil {
		return err
	}
	c.signal(signal)
	return nil
}

// Kill kills a child with SIGKILL, as kill -9 does, and returns when its process is gone; the supervisor starts
// it again if that is what it does. A child that does not run at the moment stays as it is. The error says that
// there is no child of this name.
func (s *Supervisor) Kill(name string) error {
	c, err := s.child(name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	process, exited := c.process, c.exited
	s.mu.Unlock()
	if process == nil {
		return nil // not started yet
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", name, err)
	}
	<-exited
	return nil
}

func (s *Supervisor) child(name string) (*child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.children, func(c *child) bool { return c.spec.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no child %s", name)
	}
	return s.children[i], nil
}

// Statuses returns all children in the order they were started.
func (s *Supervisor) Statuses() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	statuses := make([]Status, len(s.children))
	for i, c := range s.children {
		statuses[i] = c.status
		statuses[i].Name = c.spec.Name
	}
	return statuses
}

// fork runs f on the forking thread.
func (s *Supervisor) fork(f func() error) error {
	result := make(chan error, 1)
	select {
	case s.forks <- func() { result <- f() }:
		return <-result
	case <-s.done:
		return errors.New("the supervisor is closed")
	}
}

func (s *Supervisor) changed() {
	if s.cfg.Changed == nil {
		return
	}
	s.changes.Lock()
	defer s.changes.Unlock()
	s.cfg.Changed()
}
