package private

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// orphanWait is how long a server that was left behind may take to shut down fast, before it is told to do so
	// immediately; for that it has as long as the start has.
	orphanWait = 30 * time.Second
	// immediateWait is how long an immediate shutdown may take.
	immediateWait = 10 * time.Second
	pollEvery     = 20 * time.Millisecond
)

// pidFile is what Postgres writes to postmaster.pid: its process id first, its state on line 8.
type pidFile struct {
	pid   int
	state string
}

func readPIDFile(pgdata string) (pidFile, error) {
	content, err := os.ReadFile(filepath.Join(pgdata, "postmaster.pid")) //nolint:gosec // in our own directory
	if err != nil {
		return pidFile{}, err
	}
	lines := strings.Split(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 1 {
		return pidFile{}, fmt.Errorf("read postmaster.pid: no process id in %q", lines[0])
	}
	f := pidFile{pid: pid}
	if len(lines) > 7 {
		f.state = strings.TrimSpace(lines[7])
	}
	return f, nil
}

// clearOrphan makes sure that no server runs on pgdata. The caller holds the directory's lock, so a server
// that runs there has lost its process to a crash, and a postmaster.pid without one is stale. (Postgres
// itself would refuse to start when another process of the same user has got the number meanwhile.)
func clearOrphan(ctx context.Context, pgdata string, log *slog.Logger) error {
	f, err := readPIDFile(pgdata)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && isServer(ctx, f.pid, pgdata) {
		log.LogAttrs(ctx, slog.LevelInfo, "stopping the postgres that an earlier run left behind", slog.Int("pid", f.pid))
		if err := stopOrphan(ctx, f.pid, pgdata); err != nil {
			return err
		}
	}
	// A server that was killed leaves the file behind, and the next one would take it for alive for as long as nobody
	// has reaped its process.
	if err := os.Remove(filepath.Join(pgdata, "postmaster.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale postmaster.pid: %w", err)
	}
	return nil
}

func stopOrphan(ctx context.Context, pid int, pgdata string) error {
	impatient := time.NewTimer(orphanWait)
	defer impatient.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	signal := func(s syscall.Signal) error {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the postgres left behind, process %d: %w", pid, err)
		}
		return nil
	}
	err := signal(syscall.SIGINT)
	for err == nil && isServer(ctx, pid, pgdata) {
		select {
		case <-tick.C:
		case <-impatient.C:
			err = signal(syscall.SIGQUIT)
		case <-ctx.Done():
			return fmt.Errorf("stop the postgres left behind: process %d has not ended yet: %w", pid, context.Cause(ctx))
		}
	}
	return err
}

// isServer reports whether the process is a Postgres server that runs on pgdata: its working directory is
// pgdata. Without /proc the command line has to do, which has it after -D.
func isServer(ctx context.Context, pid int, pgdata string) bool {
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	if _, err := os.Stat("/proc/self/cwd"); err == nil {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err != nil {
			return false // it has ended; one that is not ours to look at is not ours
		}
		resolved, err := filepath.EvalSymlinks(pgdata)
		return err == nil && cwd == resolved
	}
	out, err := exec.CommandContext(ctx, "ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output() //nolint:gosec // a number
	return err == nil && strings.Contains(string(out), "postgres") && strings.Contains(string(out), "-D "+pgdata)
}
