package serve

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/apiary-relay/apiary/pkg/admin"
	"github.com/apiary-relay/apiary/pkg/buildinfo"
	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/embedded"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/datadir"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/postgres/private"
	"github.com/apiary-relay/apiary/services/apiary"
	"github.com/apiary-relay/apiary/services/ingest"
	"github.com/apiary-relay/apiary/services/internal/boot"
	"github.com/apiary-relay/apiary/services/search"
)

// The times to stop what is below the services; with draining they make less than ten seconds.
const (
	natsStop     = 1500 * time.Millisecond
	postgresStop = 2500 * time.Millisecond
)

// process is the all-in-one on its data directory: a lifecycle.Service and a lifecycle.Drainer.
type process struct {
	cfg     Config
	dir     *datadir.Dir
	env     *boot.Env
	program string
	out     io.Writer

	relay    identity // of its own making; none if it was given a key
	operator identity
	control  string // the socket at which search answers the operator's commands; that of ingest is beside it
	// made is set when the directory of control was not there.
	made bool
	// begun is set when nothing refuses the start any more: the database is this process's. Run sets it, and whoever has
	// waited for Run reads it.
	begun bool

	mu      sync.Mutex
	running *apiary.Service // guarded by mu; nil until the services are built
}

// newProcess makes the keys and checks what can be checked; nothing is started.
func newProcess(cfg Config, dir *datadir.Dir, env *boot.Env, program string, out io.Writer) (_ *process, err error) {
	p := &process{cfg: cfg, dir: dir, env: env, program: program, out: out}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.discard())
		}
	}()
	if p.operator, err = loadIdentity(dir, "operator"); err != nil {
		return nil, err
	}
	if p.cfg.Services.Gateway.Contact == "" {
		p.cfg.Services.Gateway.Contact = p.operator.key.PubKey().String()
	}
	if p.cfg.Services.Gateway.MaxNewQueries == 0 && !p.cfg.Postgres.URL.IsSet() {
		// All of a query is computed on the processors of this machine: more than one at a time for each end no sooner, and others wait.
		p.cfg.Services.Gateway.MaxNewQueries = int64(runtime.GOMAXPROCS(0))
	}
	if !p.cfg.Services.Ingest.RelayKey.IsSet() {
		if p.relay, err = loadIdentity(dir, "relay"); err != nil {
			return nil, err
		}
		p.cfg.Services.Ingest.RelayKey = config.NewSecret(p.relay.key.Hex())
	}
	if p.control, err = ControlSocket(dir.Path(), Search); err != nil {
		return nil, err
	}
	if p.made, err = makeControlDir(p.control); err != nil {
		return nil, err
	}
	if p.cfg.Services.Ingest.GRPC.Listen == "" {
		socket, err := ControlSocket(dir.Path(), Ingest)
		if err != nil {
			return nil, err
		}
		p.cfg.Services.Ingest.GRPC.Listen = "unix://" + socket
	}
	return p, nil
}

// discard removes what newProcess has made: a start that is refused leaves nothing behind. Nobody has seen the keys, and nothing
// was signed with them.
func (p *process) discard() error {
	var errs []error
	for _, id := range []identity{p.operator, p.relay} {
		if id.created {
			errs = append(errs, os.Remove(id.path))
		}
	}
	if p.made {
		if err := os.Remove(filepath.Dir(p.control)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Drain drains the services, if they have been started.
func (p *process) Drain(ctx context.Context) error {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if running == nil {
		return nil
	}
	return running.Drain(ctx)
}

// Run brings everything up, from the bottom, and takes it down again when ctx ends.
func (p *process) Run(ctx context.Context, ready func()) (err error) {
	removeAdmin, err := writeAdminAddress(p.dir, p.env.AdminAddr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeAdmin()) }()
	defer func() { err = errors.Join(err, removeControlDir(p.dir.Path(), p.control)) }()
	lost := make(chan error, 2) // room for all who send
	database, stopDatabase, err := p.database(ctx, lost)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopDatabase()) }()
	release, err := p.claim(ctx, database, lost)
	if err != nil {
		return err
	}
	p.begun = true
	defer func() { err = errors.Join(err, release()) }()
	if err := postgres.Migrate(ctx, database.Reveal()); err != nil {
		return err
	}
	nats, err := embedded.Start(ctx, embedded.Config{
		StoreDir: p.dir.Path("nats"), MaxStore: p.cfg.NATS.MaxStore, MaxMemory: p.cfg.NATS.MaxMemory, Log: logPart(p.env, "nats"),
	})
	if err != nil {
		return err
	}
	defer func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), natsStop)
		defer cancel()
		err = errors.Join(err, nats.Stop(within))
	}()
	return p.services(ctx, ready, database, nats, lost)
}

// database returns the database to use and what stops it. Should it end by itself, lost gets the reason.
func (p *process) database(ctx context.Context, lost chan<- error) (url config.Secret, stop func() error, err error) {
	if p.cfg.Postgres.URL.IsSet() {
		return p.cfg.Postgres.URL, func() error { return nil }, nil
	}
	cluster, err := private.Start(ctx, private.Config{DataDir: p.dir.Path("postgres"), Restart: true, Log: logPart(p.env, "postgres")})
	if err != nil {
		return url, nil, err
	}
	go func() {
		<-cluster.Done()
		lost <- cluster.Err()
	}()
	stop = func() error {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), postgresStop)
		defer cancel()
		return cluster.Stop(within)
	}
	return config.NewSecret(cluster.URL()), stop, nil
}

// claim keeps other all-in-ones off the database until it is released. Should one have it nevertheless, lost gets the
// reason.
func (p *process) claim(ctx context.Context, database config.Secret, lost chan<- error) (release func() error, err error) {
	claim, err := takeClaim(ctx, database, logPart(p.env, "postgres"))
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := claim.watch(watching); err != nil {
			lost <- err
		}
	})
	return func() error {
		stop()
		watch.Wait()
		return claim.close(ctx)
	}, nil
}

// services runs the services on a database and a bus that are there.
func (p *process) services(ctx context.Context, ready func(), database config.Secret, nats *embedded.Server, lost <-chan error) error {
	deps := apiary.Deps{
		SearchListen: "unix://" + p.control, Version: buildinfo.Read().Version, Log: p.env.Log,
		MeterProvider: p.env.Telemetry.MeterProvider, TracerProvider: p.env.Telemetry.TracerProvider,
	}
	var err error
	if deps.IngestDB, err = p.pool(ctx, database, ingest.Role, false); err != nil {
		return err
	}
	defer deps.IngestDB.Close()
	if deps.SearchDB, err = p.pool(ctx, database, search.Role, true); err != nil {
		return err
	}
	defer deps.SearchDB.Close()
	deps.Bus, err = bus.Connect(ctx, config.MustDefault(bus.Config{}), bus.Options{
		Name: "apiary", InProcess: nats, Log: p.env.Log, Meter: p.env.Meter,
	})
	if err != nil {
		return err
	}
	defer deps.Bus.Close()
	p.env.Health.AddCheck("postgres", deps.IngestDB.Ping)
	p.env.Health.AddCheck("nats", connected(deps.Bus))

	services, err := apiary.New(p.cfg.Services, deps)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.running = services
	p.mu.Unlock()
	return p.supervise(ctx, ready, services, lost)
}

// supervise runs the services, says when they are ready, and ends them when the database has ended or is another's.
func (p *process) supervise(ctx context.Context, ready func(), services *apiary.Service, lost <-chan error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- services.Run(ctx, sync.OnceFunc(func() { close(started) })) }()
	select {
	case <-started:
	case err := <-done:
		return err
	case err := <-lost:
		cancel(err)
		return errors.Join(err, <-done)
	}
	if err := p.welcome(ctx, services); err != nil {
		cancel(err)
		return errors.Join(err, <-done)
	}
	ready()
	select {
	case err := <-done:
		return err
	case err := <-lost:
		cancel(err)
		return errors.Join(err, <-done)
	}
}

func (p *process) pool(ctx context.Context, database config.Secret, role string, readOnly bool) (*pgxpool.Pool, error) {
	cfg := config.MustDefault(postgres.Config{URL: database, Role: role, MaxConns: p.cfg.Postgres.MaxConns, AppName: role})
	return postgres.NewPool(ctx, cfg, postgres.PoolOptions{
		ReadOnly: readOnly, TracerProvider: p.env.Telemetry.TracerProvider, MeterProvider: p.env.Telemetry.MeterProvider,
	})
}

func connected(b *bus.Bus) admin.Check {
	return func(context.Context) error {
		if !b.Connected() {
			return bus.ErrDisconnected
		}
		return nil
	}
}
