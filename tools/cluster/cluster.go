package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/datadir"
	"github.com/apiary-relay/apiary/pkg/postgres/private"
	"github.com/apiary-relay/apiary/tools/cluster/internal/balance"
	"github.com/apiary-relay/apiary/tools/cluster/internal/supervise"
	"github.com/apiary-relay/apiary/tools/cluster/internal/topology"
)

const (
	// readyTimeout bounds the start of one process. It is long because a machine may be busy compiling.
	readyTimeout = time.Minute
	// The times to stop, together less than ten seconds.
	gatewayStop  = 4 * time.Second
	innerStop    = 3500 * time.Millisecond
	natsStop     = time.Second
	postgresStop = time.Second
	// postgresConns lets the pools of every replica connect.
	postgresConns = 500
)

// cluster is one run. Its run method owns it; only the supervisor's goroutines call record besides.
type cluster struct {
	opts   options
	stdout io.Writer
	log    *slog.Logger

	dir        *datadir.Dir
	plan       *topology.Plan
	supervisor *supervise.Supervisor
}

func newCluster(opts options, stdout io.Writer, log *slog.Logger) *cluster {
	return &cluster{opts: opts, stdout: stdout, log: log}
}

// run starts everything, waits until ctx ends or Postgres does, and stops everything.
func (c *cluster) run(ctx context.Context) (err error) {
	if c.dir, err = datadir.Open(c.opts.data); err != nil {
		return fmt.Errorf("%w: choose another directory (make cluster DATA=dir, bin/cluster --data dir)", err)
	}
	defer func() { err = errors.Join(err, c.dir.Close()) }()
	if err := c.freshLogs(); err != nil {
		return err
	}
	database, stopDatabase, lost, err := c.database(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, stopDatabase()) }()
	c.plan, err = topology.New(ctx, topology.Config{
		Bin: c.opts.bin, NATSServer: c.opts.natsServer, Data: c.dir.Path(),
		Gateways: c.opts.gateways, Ingests: c.opts.ingests, Fanouts: c.opts.fanouts, Searches: c.opts.searches,
		Port: c.opts.port, DatabaseURL: database, PrivateDatabase: c.opts.databaseURL == "", Environment: os.Environ(),
	})
	if err != nil {
		return err
	}
	c.supervisor = supervise.Open(supervise.Config{Restart: !c.opts.noRestart, Log: c.log, Changed: c.record})
	defer c.supervisor.Close() //nolint:contextcheck // nothing runs any more when it is called
	balancer, err := balance.New(balance.Config{Listen: c.plan.Balancer, Backends: c.plan.Backends, Log: c.log})
	if err != nil {
		return err
	}
	defer c.stop(ctx)
	if err := c.start(ctx); err != nil {
		return interrupted(ctx, err)
	}
	return c.serve(ctx, balancer, lost)
}

// interrupted makes a start that the user broke off a clean end.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the error is what breaking off looks like
	}
	return err
}

// freshLogs makes the directory of the logs and empties those of the run before.
func (c *cluster) freshLogs() error {
	logs := c.dir.Path("logs")
	if err := os.MkdirAll(logs, 0o700); err != nil { //nolint:gosec // the user's directory
		return fmt.Errorf("make log directory: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(logs, "*.log"))
	if err != nil {
		return fmt.Errorf("list old logs: %w", err)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil { //nolint:gosec // the user's directory
			return fmt.Errorf("remove old log: %w", err)
		}
	}
	return nil
}

// database returns the URL of the Postgres to use, how to stop it, and a channel that is closed when it
// has ended by itself.
func (c *cluster) database(ctx context.Context) (url string, stop func() error, lost <-chan struct{}, err error) {
	if c.opts.databaseURL != "" {
		return c.opts.databaseURL, func() error { return nil }, nil, nil
	}
	server, err := private.Start(ctx, private.Config{DataDir: c.dir.Path("postgres"), MaxConns: postgresConns, Restart: true, Log: c.log})
	if err != nil {
		return "", nil, nil, err
	}
	stop = func() error {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), postgresStop)
		defer cancel()
		return server.Stop(within)
	}
	return server.URL(), stop, server.Done(), nil
}

// start brings the processes up: NATS and the schema, then the inner services all at once, then the
// community that clients on this machine use, then the gateways.
func (c *cluster) start(ctx context.Context) error {
	if err := c.startAll(ctx, []topology.Process{c.plan.NATS}); err != nil {
		return err
	}
	if _, err := c.supervisor.Run(ctx, c.plan.Migrate); err != nil {
		return err
	}
	if err := c.startAll(ctx, c.plan.Inner); err != nil {
		return err
	}
	if _, err := c.supervisor.Run(ctx, c.plan.Community); err != nil {
		return err
	}
	return c.startAll(ctx, c.plan.Gateways)
}

func (c *cluster) startAll(ctx context.Context, processes []topology.Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	errs := make([]error, len(processes))
	var starting sync.WaitGroup
	for i, process := range processes {
		starting.Go(func() { errs[i] = c.supervisor.Start(ctx, process.Spec) })
	}
	starting.Wait()
	return errors.Join(errs...)
}

// serve carries clients until ctx ends.
func (c *cluster) serve(ctx context.Context, balancer *balance.Balancer, lost <-chan struct{}) error {
	// The balancer outlives ctx: gateways say goodbye to their clients through it.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- balancer.Run(own, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		return err
	}
	if err := c.announce(); err != nil {
		return err
	}
	var err error
	select {
	case <-ctx.Done():
	case <-lost:
		err = errors.New("postgres has ended, see its messages above")
	}
	err = errors.Join(err, balancer.Drain(ctx))
	c.stopAll(ctx, gatewayStop, c.plan.Gateways)
	cancel()
	return errors.Join(err, <-done)
}

// stop ends what runs: gateways, so that clients are told, then what they call, then NATS.
func (c *cluster) stop(ctx context.Context) {
	c.stopAll(ctx, gatewayStop, c.plan.Gateways)
	c.stopAll(ctx, innerStop, c.plan.Inner)
	c.stopAll(ctx, natsStop, []topology.Process{c.plan.NATS})
}

// stopAll stops processes at once and kills those that take longer than patience.
func (c *cluster) stopAll(ctx context.Context, patience time.Duration, processes []topology.Process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	names := make([]string, len(processes))
	for i, process := range processes {
		names[i] = process.Spec.Name
	}
	c.supervisor.Stop(ctx, names...)
}

// announce tells people and tools what runs where.
func (c *cluster) announce() error {
	state := c.plan.State(c.supervisor.Statuses())
	if err := state.Table(c.stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.stdout, "\nready   %s\nstate   %s\nlogs    %s\n\n", c.plan.URL, c.dir.Path("cluster.json"), c.dir.Path("logs"))
	if err != nil {
		return err
	}
	if err := state.Hints(c.stdout, filepath.Join(c.opts.bin, "apiary")); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.stdout, "\nkill -9 any PID but nats and see clients go on; Ctrl-C stops everything.")
	return err
}

// record writes cluster.json; the supervisor calls it after every change.
func (c *cluster) record() {
	if err := c.plan.State(c.supervisor.Statuses()).Write(c.dir.Path("cluster.json")); err != nil {
		c.log.Error("cluster state not written", slog.String("error", err.Error()))
	}
}
