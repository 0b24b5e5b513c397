package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxSocketPath is below what a socket's address holds on every system (104 bytes on macOS).
const maxSocketPath = 99

// The services of the all-in-one that the operator's commands talk to.
const (
	Ingest = "ingest"
	Search = "search"
)

// ControlSocket returns the path of the socket that the operator's commands use for a service (Ingest or Search) of
// the all-in-one on this data directory. A path that is too long for a socket is replaced by one under /tmp that
// both sides derive from it.
func ControlSocket(data, service string) (string, error) {
	data, err := filepath.Abs(data)
	if err != nil {
		return "", fmt.Errorf("find control socket: %w", err)
	}
	path := filepath.Join(data, "control", service+".sock")
	if len(path) <= maxSocketPath {
		return path, nil
	}
	sum := sha256.Sum256([]byte(data))
	return filepath.Join("/tmp", "apiary-control-"+hex.EncodeToString(sum[:8]), service+".sock"), nil
}

// makeControlDir makes the socket's directory, which only this user may enter: that, and not the mode of
// the socket, keeps others away from the moment it is there. Under /tmp anybody may have made the
// directory first, so one that is not ours is refused. made is false when it was there already.
func makeControlDir(socket string) (made bool, err error) {
	dir := filepath.Dir(socket)
	if err = os.Mkdir(dir, 0o700); err == nil {
		return true, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("make control directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return false, fmt.Errorf("make control directory: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return false, fmt.Errorf("make control directory: %s is there and is no directory", dir)
	case int(stat.Uid) != os.Geteuid():
		return false, fmt.Errorf("make control directory: %s belongs to another user (id %d): run as that one, or choose another data directory", dir, stat.Uid)
	case info.Mode().Perm() != 0o700:
		return false, fmt.Errorf("make control directory: others may enter %s (mode %04o): chmod 700 it", dir, info.Mode().Perm())
	}
	return false, nil
}

// removeControlDir removes the socket's directory when it is not in the data directory, where it may stay.
func removeControlDir(data, socket string) error {
	dir := filepath.Dir(socket)
	if filepath.Dir(dir) == data {
		return nil
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove control directory: %w", err)
	}
	return nil
}
