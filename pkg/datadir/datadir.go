package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockName is the file that carries the lock and the holder's process id.
const lockName = "lock"

// HeldError says that another process holds the directory.
type HeldError struct {
	// Path is the directory.
	Path string
	// PID is the holder's process id, 0 when it could not be read.
	PID int
}

// Error names the directory and, if known, the process that holds it.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data directory %s is in use by another process", e.Path)
	}
	return fmt.Sprintf("data directory %s is in use by process %d", e.Path, e.PID)
}

// Default returns where app keeps its data: /var/lib/<app> for root, otherwise $XDG_DATA_HOME/<app> or
// ~/.local/share/<app>. It makes nothing. dataHome is the value of XDG_DATA_HOME.
func Default(app, dataHome string) (string, error) {
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib", app), nil
	}
	// The XDG rules: a relative path there is to be ignored.
	if filepath.IsAbs(dataHome) {
		return filepath.Join(dataHome, app), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a place for data: %w", err)
	}
	return filepath.Join(home, ".local", "share", app), nil
}

// Dir is a directory that this process holds.
type Dir struct {
	path string
	lock *os.File
}

// Open makes the directory if it is not there and takes hold of it; a *HeldError says who has it
// already. A directory that root makes may be entered, but not listed, by others, because Postgres runs
// in it as an unprivileged user.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := os.MkdirAll(path, mode); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator's directory
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = &HeldError{Path: path, PID: readPID(lock)}
		} else {
			err = fmt.Errorf("lock data directory %s: %w", path, err)
		}
		return nil, errors.Join(err, lock.Close())
	}
	if err := writePID(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("lock data directory %s: %w", path, err), lock.Close())
	}
	return &Dir{path: path, lock: lock}, nil
}

// readPID returns the process id in the lock file, 0 when there is none (its holder may be writing it).
func readPID(lock io.Reader) int {
	text, err := io.ReadAll(io.LimitReader(lock, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

func writePID(lock *os.File) error {
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// Path joins names to the directory's absolute path.
func (d *Dir) Path(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// Close lets the directory go.
func (d *Dir) Close() error {
	return d.lock.Close()
}
