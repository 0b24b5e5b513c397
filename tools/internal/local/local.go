package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/datadir"
	"github.com/apiary-relay/apiary/pkg/postgres/private"
	"github.com/apiary-relay/apiary/tools/internal/supervise"
	"github.com/apiary-relay/apiary/tools/internal/topology"
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

// Config says what to run.
type Config struct {
	// Bin holds the services' programs, NATSServer is nats-server's.
	Bin, NATSServer string
	// Data is the directory for data, logs and cluster.json. One cluster runs in it at a time.
	Data string
	// Gateways, Ingests, Fanouts and Searches are how many of each, 1 to 64; SpareFanouts are not started.
	Gateways, Ingests, Fanouts, Searches, SpareFanouts int
	// Port is where clients are to connect; nobody listens there until the caller does.
	Port int
	// DatabaseURL is the Postgres to use; when it is empty, a private one runs in Data.
	DatabaseURL string
	// Environment is that of every process besides the caller's own.
	Environment []string
	// Restart starts what died again.
	Restart bool
	// Via, when set, is topology.Config.Via.
	Via func(from, to, address string) (string, error)
	// Log receives a line for each death and each return; required. PostgresLog is for what the private Postgres says, if
	// that is to be elsewhere.
	Log, PostgresLog *slog.Logger
}

// Cluster is a running one.
type Cluster struct {
	// Plan says which processes there are and where; not to be changed.
	Plan *topology.Plan

	cfg        Config
	dir        *datadir.Dir
	postgres   *private.Cluster // nil when it is somebody else's
	supervisor *supervise.Supervisor
}

// Start starts everything and returns when it is ready: NATS and the schema, then the inner services all at
// once, then the community that clients on this machine use, then the gateways. What was started before an
// error is stopped.
func Start(ctx context.Context, cfg Config) (_ *Cluster, err error) {
	c := &Cluster{cfg: cfg}
	if c.dir, err = datadir.Open(cfg.Data); err != nil {
		return nil, fmt.Errorf("%w: choose another directory (make cluster DATA=dir, bin/cluster --data dir)", err)
	}
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	c.supervisor = supervise.Open(supervise.Config{Restart: cfg.Restart, Log: cfg.Log, Changed: c.record})
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

// prepare does what comes before the first process: fresh logs, a database, the plan.
func (c *Cluster) prepare(ctx context.Context) error {
	if err := c.freshLogs(); err != nil {
		return err
	}
	database := c.cfg.DatabaseURL
	if database == "" {
		log := c.cfg.PostgresLog
		if log == nil {
			log = c.cfg.Log
		}
		server, err := private.Start(ctx, private.Config{DataDir: c.dir.Path("postgres"), MaxConns: postgresConns, Restart: true, Log: log})
		if err != nil {
			return err
		}
		c.postgres, database = server, server.URL()
	}
	plan, err := topology.New(ctx, topology.Config{
		Bin: c.cfg.Bin, NATSServer: c.cfg.NATSServer, Data: c.dir.Path(),
		Gateways: c.cfg.Gateways, Ingests: c.cfg.Ingests, Fanouts: c.cfg.Fanouts, Searches: c.cfg.Searches,
		SpareFanouts: c.cfg.SpareFanouts, Port: c.cfg.Port, DatabaseURL: database, PrivateDatabase: c.postgres != nil,
		Environment: append(os.Environ(), c.cfg.Environment...), Via: c.cfg.Via,
	})
	c.Plan = plan
	return err
}

// freshLogs makes the directory of the logs and empties those of the run before.
func (c *Cluster) freshLogs() error {
	logs := c.dir.Path("logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(logs, "*.log"))
	if err != nil {
		return fmt.Errorf("list old logs: %w", err)
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove old log: %w", err)
		}
	}
	return nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.startAll(ctx, []topology.Process{c.Plan.NATS}); err != nil {
		return err
	}
	if _, err := c.supervisor.Run(ctx, c.Plan.Migrate); err != nil {
		return err
	}
	if err := c.startAll(ctx, c.Plan.Inner); err != nil {
		return err
	}
	if _, err := c.supervisor.Run(ctx, c.Plan.Community); err != nil {
		return err
	}
	return c.startAll(ctx, c.Plan.Gateways)
}

func (c *Cluster) startAll(ctx context.Context, processes []topology.Process) error {
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

// Lost is closed when the private Postgres has ended by itself and cannot be started again; nil without one.
func (c *Cluster) Lost() <-chan struct{} {
	if c.postgres == nil {
		return nil
	}
	return c.postgres.Done()
}

// StopGateways stops the gateways, which tell their clients. Close does it too; who has to outlive them, such
// as a balancer, asks for it first.
func (c *Cluster) StopGateways(ctx context.Context) { c.stopAll(ctx, gatewayStop, c.Plan.Gateways) }

// Close stops everything, within ten seconds even if ctx has ended: gateways, so that clients are told, then
// what they call, then NATS, then Postgres. It is to be called once.
func (c *Cluster) Close(ctx context.Context) error {
	if c.supervisor != nil {
		c.StopGateways(ctx)
		c.stopAll(ctx, innerStop, slices.Concat(c.Plan.Inner, c.Plan.Spares))
		c.stopAll(ctx, natsStop, []topology.Process{c.Plan.NATS})
		c.supervisor.Close() //nolint:contextcheck // nothing runs any more
	}
	var err error
	if c.postgres != nil {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), postgresStop)
		defer cancel()
		err = c.postgres.Stop(within)
	}
	return errors.Join(err, c.dir.Close())
}

// stopAll stops processes at once and kills those that take longer than patience.
func (c *Cluster) stopAll(ctx context.Context, patience time.Duration, processes []topology.Process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	names := make([]string, len(processes))
	for i, process := range processes {
		names[i] = process.Spec.Name
	}
	c.supervisor.Stop(ctx, names...)
}

// State is what runs where, now.
func (c *Cluster) State() topology.State { return c.Plan.State(c.supervisor.Statuses()) }

// Announce tells people and tools what runs where.
func (c *Cluster) Announce(w io.Writer) error {
	state := c.State()
	if err := state.Table(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nready   %s\nstate   %s\nlogs    %s\n\n", c.Plan.URL, c.dir.Path("cluster.json"), c.dir.Path("logs"))
	if err != nil {
		return err
	}
	if err := state.Hints(w, filepath.Join(c.cfg.Bin, "apiary")); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, "\nkill -9 any PID but nats and see clients go on; Ctrl-C stops everything.")
	return err
}

// record writes cluster.json; the supervisor calls it after every change.
func (c *Cluster) record() {
	if err := c.State().Write(c.dir.Path("cluster.json")); err != nil {
		c.cfg.Log.Error("cluster state not written", slog.String("error", err.Error()))
	}
}
