package private

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/datadir"
)

// helperDir makes TestHelperProcess run a cluster, for tests that kill the process that does.
var helperDir = flag.String("helper-dir", "", "run a cluster in this directory until killed")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place makes a directory that Postgres's user can enter (that of t.TempDir is root's alone).
func place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "private-") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711))
	return dir
}

func startIn(t *testing.T, dir string) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), Config{DataDir: dir, Throwaway: true})
	require.NoError(t, err)
	return c
}

func stop(t *testing.T, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	require.NoError(t, c.Stop(ctx))
	<-c.Done()
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func TestStartStopStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(place(t), "made", "for it")
	c, err := Start(t.Context(), Config{DataDir: dir}) // as durable as the all-in-one has it
	require.NoError(t, err)
	require.NoError(t, c.Err())
	exec1(t, c.URL(), `CREATE TABLE kept (x int)`)
	exec1(t, c.URL(), `DO $$ BEGIN
		ASSERT current_database() = 'apiary'; ASSERT lower('ÄÖ') = 'äö'; ASSERT current_setting('listen_addresses') = '';
		ASSERT current_setting('server_encoding') = 'UTF8'; ASSERT current_setting('fsync') = 'on'; ASSERT current_setting('data_checksums') = 'on';
	END $$`)

	_, err = Start(t.Context(), Config{DataDir: dir})
	var held *datadir.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, os.Getpid(), held.PID)
	require.ErrorContains(t, err, "in use by process "+strconv.Itoa(os.Getpid()))

	server := c.keeper.current().process
	pgid, err := syscall.Getpgid(server.Pid)
	require.NoError(t, err)
	require.Equal(t, server.Pid, pgid, "Ctrl-C must not reach it")
	stop(t, c)
	require.NoDirExists(t, filepath.Join(dir, "run"))
	require.Error(t, server.Signal(syscall.Signal(0)))

	again := startIn(t, dir)
	exec1(t, again.URL(), `INSERT INTO kept VALUES (1)`)
	stop(t, again)
}

// TestAsOrdinaryUser repeats a few tests as nobody when they run as root.
func TestAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // all of them are run by an ordinary user
	}
	self, err := os.Executable()
	require.NoError(t, err)
	binary, err := os.ReadFile(self)
	require.NoError(t, err)
	dir := place(t)
	copied := filepath.Join(dir, "test")
	require.NoError(t, os.WriteFile(copied, binary, 0o755))
	temp := filepath.Join(dir, "tmp")
	require.NoError(t, os.Mkdir(temp, 0o700))
	require.NoError(t, os.Chown(temp, lastResort, lastResort))
	cmd := exec.CommandContext(t.Context(), copied, "-test.run", "^(TestStartStopStart|TestOrphanIsStopped|TestServerKilled|TestLongPath)$", "-test.v")
	cmd.Dir = temp
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "TMPDIR=" + temp}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: lastResort, Gid: lastResort}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, 4, strings.Count(string(out), "--- PASS"), string(out))
}

// TestOrphanIsStopped starts a server that nobody has told to stop when its parent dies.
func TestOrphanIsStopped(t *testing.T) {
	t.Parallel()
	dir := place(t)
	c := startIn(t, dir)
	exec1(t, c.URL(), `CREATE TABLE kept (x int)`)
	stop(t, c)

	installed, err := Find(t.Context())
	require.NoError(t, err)
	pgdata := filepath.Join(dir, "data")
	acct, err := chooseAccount(pgdata)
	require.NoError(t, err)
	run := filepath.Join(dir, "run")
	require.NoError(t, os.Mkdir(run, 0o700))
	require.NoError(t, acct.own(run))
	cmd := exec.CommandContext(t.Context(), installed[0].Command("postgres"), arguments(Config{MaxConns: 10}, pgdata, run)...)
	cmd.Dir = pgdata
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: acct.credential(), Setpgid: true}
	cmd.Stderr = io.Discard
	require.NoError(t, cmd.Start())
	orphaned := make(chan error, 1)
	go func() { orphaned <- cmd.Wait() }()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for f, err := readPIDFile(pgdata); err != nil || f.state != "ready"; f, err = readPIDFile(pgdata) {
		<-tick.C
	}

	again := startIn(t, dir)
	require.NoError(t, <-orphaned, "a fast shutdown ends with code 0")
	exec1(t, again.URL(), `INSERT INTO kept VALUES (1)`)
	stop(t, again)
}

func TestServerKilled(t *testing.T) {
	t.Parallel()
	dir := place(t)
	c, err := Start(t.Context(), Config{DataDir: dir})
	require.NoError(t, err)
	exec1(t, c.URL(), `CREATE TABLE kept (x int)`)
	require.NoError(t, c.keeper.current().process.Kill())
	<-c.Done()
	require.ErrorContains(t, c.Err(), "private postgres ended: signal: killed")
	stop(t, c)
	require.FileExists(t, filepath.Join(dir, "data", "postmaster.pid"))
	again := startIn(t, dir)
	exec1(t, again.URL(), `INSERT INTO kept VALUES (1)`)
	stop(t, again)
}

// current is the server of the moment.
func (k *keeper) current() *process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.server
}

func TestServerThatDiesIsStartedAgain(t *testing.T) {
	t.Parallel()
	c, err := Start(t.Context(), Config{DataDir: place(t), Restart: true})
	require.NoError(t, err)
	exec1(t, c.URL(), `CREATE TABLE kept (x int)`)
	for range 3 {
		dead := c.keeper.current()
		require.NoError(t, c.Kill())
		require.Eventually(t, func() bool { return c.keeper.current() != dead }, time.Minute, 5*time.Millisecond, "it starts by itself")
		exec1(t, c.URL(), `INSERT INTO kept VALUES (1)`) // under the same URL
		require.NoError(t, c.Err())
	}
	stop(t, c)
}

func TestServerThatDiesAgainAndAgainIsGivenUp(t *testing.T) {
	t.Parallel()
	c, err := Start(t.Context(), Config{DataDir: place(t), Restart: true, Throwaway: true})
	require.NoError(t, err)
	killed := 0
	for ended := false; !ended; {
		server := c.keeper.current()
		_ = server.process.Kill() // it may be dead already
		killed++
		for next := false; !next && !ended; {
			select {
			case <-c.Done():
				ended = true
			case <-time.After(5 * time.Millisecond):
				next = c.keeper.current() != server
			}
		}
	}
	require.Equal(t, maxDeaths+1, killed)
	require.ErrorContains(t, c.Err(), "signal: killed")
	stop(t, c)
}

// Stop finds a server that is just being started again.
func TestStopDuringARestart(t *testing.T) {
	t.Parallel()
	dir := place(t)
	for pause := range 4 {
		c, err := Start(t.Context(), Config{DataDir: dir, Restart: true, Throwaway: true})
		require.NoError(t, err)
		dead := c.keeper.current()
		require.NoError(t, dead.process.Kill())
		<-dead.done
		<-time.After(time.Duration(pause) * 30 * time.Millisecond)
		stop(t, c)
		_, err = pgx.Connect(t.Context(), c.URL())
		require.Error(t, err)
	}
}

func TestServerStoppedBySomebodyElse(t *testing.T) {
	t.Parallel()
	c, err := Start(t.Context(), Config{DataDir: place(t), Throwaway: true, Restart: true})
	require.NoError(t, err)
	require.NoError(t, c.keeper.current().process.Signal(syscall.SIGTERM))
	<-c.Done()
	require.ErrorContains(t, c.Err(), "shut down by somebody else")
	stop(t, c)
}

// TestStaleNumber has postmaster.pid name a process of the same user that is no server.
func TestStaleNumber(t *testing.T) {
	t.Parallel()
	dir := place(t)
	stop(t, startIn(t, dir))
	for _, content := range []string{strconv.Itoa(os.Getpid()) + "\n" + dir, "", "x", "0\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(content), 0o600))
		stop(t, startIn(t, dir))
	}
}

// TestHelperProcess is not a test: see helperDir.
func TestHelperProcess(t *testing.T) {
	if *helperDir == "" {
		return
	}
	c := startIn(t, *helperDir)
	_, err := os.Stdout.WriteString("URL " + c.URL() + "\n")
	require.NoError(t, err)
	<-c.Done()
}

func TestParentKilled(t *testing.T) {
	t.Parallel()
	dir := place(t)
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), self, "-test.run", "^TestHelperProcess$", "-helper-dir", dir)
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	var url string
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		url, _ = strings.CutPrefix(lines.Text(), "URL ")
	}
	require.Contains(t, url, "postgres://")
	exec1(t, url, `CREATE TABLE kept (x int)`)

	_, err = Start(t.Context(), Config{DataDir: dir, Throwaway: true})
	var held *datadir.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, parent.Process.Pid, held.PID)

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	c := startIn(t, dir)
	exec1(t, c.URL(), `INSERT INTO kept VALUES (1)`)
	stop(t, c)
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(place(t), strings.Repeat("long", 25))
	c := startIn(t, dir)
	run, err := os.Readlink(filepath.Join(dir, "run"))
	require.NoError(t, err)
	require.Less(t, len(run)+len("/.s.PGSQL.5432"), 100)
	exec1(t, c.URL(), `CREATE TABLE kept (x int)`)
	stop(t, c)
	require.NoDirExists(t, run)

	// After a crash the link is still there, and what it points to.
	require.NoError(t, os.Mkdir(run, 0o700))
	require.NoError(t, os.Symlink(run, filepath.Join(dir, "run")))
	c = startIn(t, dir)
	require.NoDirExists(t, run)
	stop(t, c)
}

func TestInterruptedInitdbIsRepeated(t *testing.T) {
	t.Parallel()
	dir := place(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data.new"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data.new", "PG_VERSION"), []byte("15\n"), 0o600))
	stop(t, startIn(t, dir))
}

func TestStartIsAborted(t *testing.T) {
	t.Parallel()
	dir := place(t)
	stop(t, startIn(t, dir))
	cause := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := Start(ctx, Config{DataDir: dir, Throwaway: true})
	require.Error(t, err)
	_, err = Start(t.Context(), Config{DataDir: dir, Throwaway: true, StartTimeout: time.Nanosecond})
	require.Error(t, err)
	stop(t, startIn(t, dir)) // nothing was left behind
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	t.Run("data of another version", func(t *testing.T) {
		t.Parallel()
		dir := place(t)
		require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o600))
		_, err := Start(t.Context(), Config{DataDir: dir})
		require.ErrorContains(t, err, "holds data of PostgreSQL 9, and this machine has")
		require.ErrorContains(t, err, "pg_upgrade")
	})
	t.Run("damaged data", func(t *testing.T) {
		t.Parallel()
		dir := place(t)
		c := startIn(t, dir)
		stop(t, c)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "postgresql.conf"), []byte("nonsense = 1\n"), 0o600))
		_, err := Start(t.Context(), Config{DataDir: dir})
		require.ErrorContains(t, err, `unrecognized configuration parameter "nonsense"`)
	})
	t.Run("directory of root alone", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			return // an ordinary user's Postgres runs as that user
		}
		closed := filepath.Join(place(t), "closed")
		require.NoError(t, os.Mkdir(closed, 0o700))
		_, err := Start(t.Context(), Config{DataDir: filepath.Join(closed, "data")})
		require.ErrorContains(t, err, "may not enter "+closed)
		require.ErrorContains(t, err, "chmod o+x "+closed)
	})
	t.Run("data of root", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			return
		}
		dir := place(t)
		require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
		_, err := Start(t.Context(), Config{DataDir: dir})
		require.ErrorContains(t, err, "belongs to root")
	})
}

func TestLogWriter(t *testing.T) {
	t.Parallel()
	var logged strings.Builder
	w := &logWriter{ctx: t.Context(), log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{
		Level:       slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { return map[bool]slog.Attr{false: a}[a.Key == slog.TimeKey] },
	}))}
	for _, part := range []string{"LOG:  all is w", "ell\nWARNING:  oh", " dear\nPANIC:  ", strings.Repeat("x", 2*maxLine), "\n\nFATAL:  last words"} {
		n, err := w.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	w.flush()
	lines := strings.Split(strings.TrimSpace(logged.String()), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, `level=WARN msg=postgres text="WARNING:  oh dear"`, lines[0])
	require.Less(t, len(lines[1]), maxLine+100)
	require.Contains(t, lines[1], "level=ERROR")
	require.Equal(t, `level=WARN msg=postgres text="FATAL:  last words"`, lines[2])
	require.True(t, strings.HasPrefix(w.tail(), "LOG:  all is well\n"))
	for range 2 * tailLines {
		_, err := w.Write([]byte("LOG:  more\n"))
		require.NoError(t, err)
	}
	require.Equal(t, tailLines, strings.Count(w.tail(), "more"))
	require.NotContains(t, w.tail(), "last words")
}
