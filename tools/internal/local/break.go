package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/apiary-relay/apiary/tools/internal/supervise"
	"github.com/apiary-relay/apiary/tools/internal/topology"
)

// Postgres is the name by which Kill knows the private Postgres.
const Postgres = "postgres"

// leaveTime is how long a process that is to leave may take, a little longer than its own drain.
const leaveTime = 5 * time.Second

// ErrNoPrivatePostgres says that the database is not the cluster's to kill.
var ErrNoPrivatePostgres = errors.New("this Postgres belongs to somebody else")

// Kill kills a process, or Postgres, with SIGKILL and returns when it is gone. With Config.Restart it comes
// back by itself.
func (c *Cluster) Kill(name string) error {
	if name != Postgres {
		return c.supervisor.Kill(name)
	}
	if c.postgres == nil {
		return ErrNoPrivatePostgres
	}
	return c.postgres.Kill()
}

// Pause freezes a process (SIGSTOP) until Resume.
func (c *Cluster) Pause(name string) error { return c.supervisor.Signal(name, syscall.SIGSTOP) }

// Resume lets a process go on that was paused; others do not notice.
func (c *Cluster) Resume(name string) error { return c.supervisor.Signal(name, syscall.SIGCONT) }

// Leave stops a process as an orchestrator does, with SIGTERM, and returns when it is gone. It stays away until
// Join.
func (c *Cluster) Leave(ctx context.Context, name string) error {
	process, err := c.process(name)
	if err != nil {
		return err
	}
	c.stopAll(ctx, leaveTime, []topology.Process{process})
	return nil
}

// Join starts a process that has left, or a spare one, and returns when it is ready.
func (c *Cluster) Join(ctx context.Context, name string) error {
	process, err := c.process(name)
	if err != nil {
		return err
	}
	return c.startAll(ctx, []topology.Process{process})
}

// Running returns the names of a service's processes that have been ready and have not left, in order. NATS
// is a service of one process.
func (c *Cluster) Running(service string) []string {
	statuses := c.supervisor.Statuses()
	var names []string
	for _, process := range c.Plan.All() {
		if process.Service != service {
			continue
		}
		if slices.ContainsFunc(statuses, func(s supervise.Status) bool {
			return s.Name == process.Spec.Name && s.Up()
		}) {
			names = append(names, process.Spec.Name)
		}
	}
	return names
}

// Ready reports whether everything that was started, and has not left, runs and has said that it is ready.
func (c *Cluster) Ready() bool {
	return !slices.ContainsFunc(c.supervisor.Statuses(), func(s supervise.Status) bool {
		return s.State == supervise.Starting || s.State == supervise.Waiting
	})
}

func (c *Cluster) process(name string) (topology.Process, error) {
	all := c.Plan.All()
	i := slices.IndexFunc(all, func(p topology.Process) bool { return p.Spec.Name == name })
	if i < 0 {
		return topology.Process{}, fmt.Errorf("there is no process %s", name)
	}
	return all[i], nil
}
