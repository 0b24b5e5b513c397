package private

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/datadir"
)

const (
	superuser           = "postgres"
	port                = "5432"
	defaultDatabase     = "apiary"
	defaultMaxConns     = 100
	defaultStartTimeout = 2 * time.Minute
	// maxSocketPath is below what a socket's address holds on every system (104 bytes on macOS).
	maxSocketPath = 99
	socketPrefix  = "apiary-pg-"
)

// Config says where the cluster lives and how it is run.
type Config struct {
	// DataDir holds everything; made if it is not there. Nothing else may live in it.
	DataDir string
	// Database is made if it is not there; "apiary" if empty.
	Database string
	// MaxConns is Postgres's max_connections; 100 if 0.
	MaxConns int
	// Throwaway trades durability for speed: a crash of the machine loses the data.
	Throwaway bool
	// Restart starts Postgres again when it dies by itself, under the same URL. It is given up, and Done
	// closed, when a start fails, or when Postgres dies again and again within moments of a start. One that
	// somebody shut down cleanly stays down.
	Restart bool
	// StartTimeout bounds each start, recovery after a crash included; 2 minutes if 0.
	StartTimeout time.Duration
	// Log receives what Postgres says: Warn for FATAL and WARNING, Error for PANIC, Debug for the rest.
	Log *slog.Logger
}

// Cluster is a running Postgres.
type Cluster struct {
	url       string
	dir       *datadir.Dir
	removeRun func() error
	keeper    *keeper
}

// Start makes the cluster if it is not there yet, and starts it. It returns when the database takes
// connections. Errors say what to do: ErrNoBinaries when the machine has no Postgres, a
// *datadir.HeldError when another process runs on the directory.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Database == "" {
		cfg.Database = defaultDatabase
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = defaultMaxConns
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = defaultStartTimeout
	}
	starting, cancel := cfg.starting(ctx)
	defer cancel()
	installed, err := Find(starting)
	if err != nil {
		return nil, err
	}
	dir, err := datadir.Open(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	c, err := start(starting, cfg, dir, installed)
	if err != nil {
		return nil, errors.Join(err, dir.Discard())
	}
	return c, nil
}

// starting bounds one start.
func (c *Config) starting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.StartTimeout, fmt.Errorf("start postgres: not ready after %s", c.StartTimeout))
}

func start(ctx context.Context, cfg Config, dir *datadir.Dir, installed []Binaries) (*Cluster, error) {
	pgdata := dir.Path("data")
	dataMajor, err := readMajor(pgdata)
	if err != nil {
		return nil, err
	}
	bin, err := choose(installed, dataMajor, pgdata)
	if err != nil {
		return nil, err
	}
	acct, err := chooseAccount(pgdata)
	if err != nil {
		return nil, err
	}
	if err := acct.checkEnter(dir.Path()); err != nil {
		return nil, err
	}
	if dataMajor == 0 {
		if err := initialise(ctx, cfg, bin, acct, dir); err != nil {
			return nil, err
		}
	} else if err := clearOrphan(ctx, pgdata, cfg.Log); err != nil {
		return nil, err
	}
	run, removeRun, err := makeRun(dir, acct)
	if err != nil {
		return nil, err
	}
	server, err := launch(ctx, cfg, bin, acct, pgdata, run)
	if err != nil {
		return nil, errors.Join(err, removeRun())
	}
	if err := ensureDatabase(ctx, socketURL(run, "postgres"), cfg.Database); err != nil {
		server.stop(ctx)
		return nil, errors.Join(err, removeRun())
	}
	again := func(ctx context.Context) (*process, error) {
		ctx, cancel := cfg.starting(ctx)
		defer cancel()
		if err := clearOrphan(ctx, pgdata, cfg.Log); err != nil {
			return nil, err
		}
		return launch(ctx, cfg, bin, acct, pgdata, run)
	}
	if !cfg.Restart {
		again = nil
	}
	return &Cluster{
		url: socketURL(run, cfg.Database), dir: dir, removeRun: removeRun, keeper: keep(ctx, server, again, cfg.Log),
	}, nil
}

// readMajor returns the major version of the data, 0 if there is none yet.
func readMajor(pgdata string) (int, error) {
	content, err := os.ReadFile(filepath.Join(pgdata, "PG_VERSION")) //nolint:gosec // in our own directory
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read data version: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("read data version of %s: %w", pgdata, err)
	}
	return major, nil
}

// initialise runs initdb beside the final place and moves the result there, so that a crash in between
// leaves nothing that looks like data.
func initialise(ctx context.Context, cfg Config, bin Binaries, acct account, dir *datadir.Dir) error {
	fresh := dir.Path("data.new")
	var output string
	// Characters should fold to lower case as Unicode says, where the system has such a locale.
	for _, ctype := range []string{"C.UTF-8", "en_US.UTF-8", "C"} {
		if err := os.RemoveAll(fresh); err != nil { // what an interrupted initdb left
			return fmt.Errorf("make postgres data: %w", err)
		}
		if err := os.Mkdir(fresh, 0o700); err != nil {
			return fmt.Errorf("make postgres data: %w", err)
		}
		if err := acct.own(fresh); err != nil {
			return err
		}
		args := []string{
			"-D", fresh, "-U", superuser, "-E", "UTF8", "--locale=C", "--lc-ctype=" + ctype,
			"--auth-local=trust", "--auth-host=reject", "--no-instructions",
		}
		if cfg.Throwaway {
			args = append(args, "--no-sync")
		} else {
			args = append(args, "--data-checksums")
		}
		cmd := exec.CommandContext(ctx, bin.Command("initdb"), args...) //nolint:gosec // the arguments are this package's own
		cmd.Dir = fresh
		cmd.Env = bin.environment()
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: acct.credential(), Setpgid: true}
		out, err := cmd.CombinedOutput()
		if err == nil {
			if err := os.Rename(fresh, dir.Path("data")); err != nil {
				return fmt.Errorf("make postgres data: %w", err)
			}
			return nil
		}
		output = strings.TrimSpace(string(out))
		if !strings.Contains(output, "invalid locale") {
			return fmt.Errorf("make postgres data as %s: %w\n%s", acct.name, err, output)
		}
	}
	return fmt.Errorf("make postgres data: %s", output)
}

// makeRun makes the directory of the socket; remove undoes it.
func makeRun(dir *datadir.Dir, acct account) (path string, remove func() error, err error) {
	run := dir.Path("run")
	remove = func() error { return clearRun(run) }
	if err := clearRun(run); err != nil {
		return "", nil, err
	}
	if len(run)+len("/.s.PGSQL.")+len(port) <= maxSocketPath {
		if err := os.Mkdir(run, 0o700); err != nil {
			return "", nil, fmt.Errorf("make socket directory: %w", err)
		}
		return run, remove, acct.own(run)
	}
	short, err := os.MkdirTemp("/tmp", socketPrefix)
	if err != nil {
		return "", nil, fmt.Errorf("make socket directory: %w", err)
	}
	// The link is how the next start finds what a crash left under /tmp.
	if err := os.Symlink(short, run); err != nil {
		return "", nil, fmt.Errorf("make socket directory: %w", err)
	}
	return short, remove, acct.own(short)
}

// clearRun removes the socket directory, and what it links to.
func clearRun(run string) error {
	if target, err := os.Readlink(run); err == nil && strings.HasPrefix(target, filepath.Join("/tmp", socketPrefix)) {
		if err := os.RemoveAll(target); err != nil {
			return fmt.Errorf("remove socket directory: %w", err)
		}
	}
	if err := os.RemoveAll(run); err != nil {
		return fmt.Errorf("remove socket directory: %w", err)
	}
	return nil
}

// launch starts the server and waits until it says that it is ready.
func launch(ctx context.Context, cfg Config, bin Binaries, acct account, pgdata, run string) (*process, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		server, err := startProcess(ctx, bin, acct, pgdata, arguments(cfg, pgdata, run), cfg.Log)
		if err != nil {
			return nil, fmt.Errorf("start postgres as %s: %w", acct.name, err)
		}
		for running := true; running; {
			if f, err := readPIDFile(pgdata); err == nil && f.pid == server.process.Pid && f.state == "ready" {
				return server, nil
			}
			select {
			case <-tick.C:
			case <-server.done:
				running = false
			case <-ctx.Done():
				server.stop(ctx)
				return nil, fmt.Errorf("%w\n%s", context.Cause(ctx), server.said.tail())
			}
		}
		// A server that was killed leaves its children; they notice within moments and let the memory go.
		if !strings.Contains(server.said.tail(), "pre-existing shared memory block") {
			return nil, fmt.Errorf("start postgres: %w\n%s", server.err, server.said.tail())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w\n%s", context.Cause(ctx), server.said.tail())
		}
	}
}

func arguments(cfg Config, pgdata, run string) []string {
	settings := []string{
		"listen_addresses=", "port=" + port, "unix_socket_directories=" + run, "unix_socket_permissions=0700",
		"max_connections=" + strconv.Itoa(cfg.MaxConns),
		"log_destination=stderr", "logging_collector=off", "log_line_prefix=",
		// Statements hold what people wrote: they stay out of the log.
		"log_min_error_statement=panic",
	}
	if cfg.Throwaway {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off",
			"wal_level=minimal", "max_wal_senders=0", "max_wal_size=4GB", "checkpoint_timeout=1h")
	}
	args := []string{"-D", pgdata}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

func ensureDatabase(ctx context.Context, adminURL, name string) error {
	conn, err := pgx.Connect(ctx, adminURL)
	if err != nil {
		return fmt.Errorf("connect to the private postgres: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on a clean goodbye
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists); err != nil {
		return fmt.Errorf("look for database %s: %w", name, err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE template0"); err != nil {
		return fmt.Errorf("make database %s: %w", name, err)
	}
	return nil
}

func socketURL(run, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(superuser), Path: "/" + database,
		// Postgres knows no "+" for a blank.
		RawQuery: strings.ReplaceAll(url.Values{"host": {run}, "port": {port}}.Encode(), "+", "%20"),
	}
	return u.String()
}

// URL connects to the database as superuser. It works for this process's user and for root only.
func (c *Cluster) URL() string { return c.url }

// Done is closed when Postgres has ended, whoever ended it, and will not be started again.
func (c *Cluster) Done() <-chan struct{} { return c.keeper.done }

// Err says why Postgres ended by itself, with the last it said; nil while it runs.
func (c *Cluster) Err() error {
	select {
	case <-c.keeper.done:
		return c.keeper.err
	default:
		return nil
	}
}

// Kill kills the server with SIGKILL, as a crash would, and returns when it is gone. With Config.Restart it is
// started again and recovers. It is for those who want to see what happens then.
func (c *Cluster) Kill() error { return c.keeper.kill() }

// Stop shuts Postgres down: fast, which ends its sessions, and when ctx ends first immediately, which
// costs a recovery at the next start. It returns when Postgres has ended and lets the directory go. It is
// to be called once.
func (c *Cluster) Stop(ctx context.Context) error {
	c.keeper.stop(ctx)
	return errors.Join(c.removeRun(), c.dir.Close())
}
