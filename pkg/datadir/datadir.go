package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockName is the file that carries the lock and the holder's process id.
const lockName = "lock"

// openings is how often Open begins again when what it has found is discarded by the process before.
const openings = 10

// errDiscarded says that another process has removed what it had made while this one opened it.
var errDiscarded = errors.New("another process has just removed it")

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
	made made
}

// made is what Open has made.
type made struct {
	// dirs are the directories that were not there, the innermost first.
	dirs []string
	// lock is set when the lock file was not there.
	lock bool
}

// Open makes the directory if it is not there and takes hold of it; a *HeldError says who has it
// already. A directory that root makes may be entered, but not listed, by others, because Postgres runs
// in it as an unprivileged user.
func Open(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	for range openings {
		var d *Dir
		if d, err = open(path); err == nil || !errors.Is(err, errDiscarded) {
			return d, err
		}
	}
	return nil, err
}

// open is Open once.
func open(path string) (d *Dir, err error) {
	d = &Dir{path: path}
	defer func() {
		if err == nil {
			return
		}
		if d.lock != nil {
			err = errors.Join(err, d.lock.Close())
		}
		d.made.removeDirs()
		d = nil
	}()
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	d.made.dirs = missing(path)
	switch err := os.MkdirAll(path, mode); {
	case errors.Is(err, fs.ErrNotExist):
		return d, fmt.Errorf("make data directory %s: %w", path, errDiscarded)
	case err != nil:
		return d, fmt.Errorf("make data directory: %w", err)
	}
	if err := d.openLock(); err != nil {
		return d, err
	}
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return d, &HeldError{Path: path, PID: readPID(d.lock)}
		}
		return d, fmt.Errorf("lock data directory %s: %w", path, err)
	}
	// A lock on a file that is no longer there keeps nobody away.
	if err := d.checkLock(); err != nil {
		return d, err
	}
	if err := writePID(d.lock); err != nil {
		return d, fmt.Errorf("lock data directory %s: %w", path, err)
	}
	return d, nil
}

// missing returns the directories of a path that are not there, the innermost first.
func missing(path string) (dirs []string) {
	for dir := path; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			return dirs
		}
		dirs = append(dirs, dir)
	}
}

// openLock opens the lock file, and makes it if it is not there.
func (d *Dir) openLock() error {
	name := filepath.Join(d.path, lockName)
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator's directory
	d.made.lock = err == nil
	if errors.Is(err, fs.ErrExist) {
		lock, err = os.OpenFile(name, os.O_RDWR, 0) //nolint:gosec // likewise
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open data directory %s: %w", d.path, errDiscarded)
	}
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	d.lock = lock
	return nil
}

// checkLock reports whether the lock file is still the one that is locked.
func (d *Dir) checkLock() error {
	held, err := d.lock.Stat()
	if err != nil {
		return fmt.Errorf("lock data directory %s: %w", d.path, err)
	}
	there, err := os.Stat(filepath.Join(d.path, lockName))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(held, there) {
		return fmt.Errorf("lock data directory %s: %w", d.path, errDiscarded)
	}
	return err
}

// removeDirs removes the directories that were made, as far as they are empty: in the others there is somebody else's.
func (m *made) removeDirs() {
	for _, dir := range m.dirs {
		_ = os.Remove(dir) // it fails on what is not empty, or could not be made
	}
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

// Discard lets the directory go and removes what Open has made: the lock file, and of the directories those that are
// empty then. It is for who finds out that there is nothing to be done in it.
func (d *Dir) Discard() error {
	if !d.made.lock {
		return d.lock.Close()
	}
	// While it is held: nobody else can believe to have it who looks whether the file is still there.
	err := errors.Join(os.Remove(d.lock.Name()), d.lock.Close())
	d.made.removeDirs()
	return err
}
