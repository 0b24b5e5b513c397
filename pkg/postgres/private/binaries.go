package private

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MinMajor is the oldest major version of Postgres that the schema works on.
const MinMajor = 15

// ErrNoBinaries says that the machine has no usable Postgres, and how to get one.
var ErrNoBinaries = errors.New(`no PostgreSQL 15 or newer was found: looked for postgres and initdb on the PATH, where pg_config points, and in the usual places
On Debian and Ubuntu, run: apt-get install postgresql
On Fedora and RHEL, run: dnf install postgresql-server
On Alpine, run: apk add postgresql
On Arch, run: pacman -S postgresql
On macOS, run: brew install postgresql@17`)

// usualPlaces are where packages put the binaries outside the PATH.
var usualPlaces = []string{
	"/usr/lib/postgresql/*/bin",                               // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                        // Fedora, RHEL (PGDG)
	"/usr/libexec/postgresql*",                                // Alpine
	"/opt/homebrew/opt/postgresql@*/bin",                      // macOS, Apple silicon
	"/usr/local/opt/postgresql@*/bin",                         // macOS, Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",         // Linux with Homebrew
	"/Applications/Postgres.app/Contents/Versions/[0-9]*/bin", // macOS, Postgres.app
	"/usr/local/pgsql/bin",                                    // built from source
}

// Binaries is one installation of Postgres.
type Binaries struct {
	// Dir holds postgres and initdb.
	Dir string
	// Major is the major version, such as 15.
	Major int
}

// Command returns the path of one of its programs, such as pg_dump.
func (b Binaries) Command(name string) string { return filepath.Join(b.Dir, name) }

// Find returns the installations that can be used, the preferred one first: what the PATH leads to, then
// what pg_config names, then the usual places, newest first. It returns ErrNoBinaries if there is none.
func Find(ctx context.Context) ([]Binaries, error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	if path, err := exec.LookPath("pg_config"); err == nil {
		if out, err := exec.CommandContext(ctx, path, "--bindir").Output(); err == nil { //nolint:gosec // found on the PATH by its name
			dirs = append(dirs, strings.TrimSpace(string(out)))
		}
	}
	return find(ctx, dirs, usualPlaces)
}

// find looks in dirs in their order, then in what the patterns match, newest version first.
func find(ctx context.Context, dirs, patterns []string) ([]Binaries, error) {
	found := usable(ctx, dirs, nil)
	var usual []string
	for _, pattern := range patterns {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("look for postgres in %s: %w", pattern, err)
		}
		usual = append(usual, matches...)
	}
	more := usable(ctx, usual, found)
	slices.SortStableFunc(more, func(a, b Binaries) int { return b.Major - a.Major })
	found = append(found, more...)
	if len(found) == 0 {
		return nil, ErrNoBinaries
	}
	return found, nil
}

// usable returns the installations in dirs that are new enough and not in known.
func usable(ctx context.Context, dirs []string, known []Binaries) []Binaries {
	var list []Binaries
	for _, dir := range dirs {
		// A link on the PATH leads to the directory that has the other programs too.
		path, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
		if err != nil {
			continue
		}
		dir = filepath.Dir(path)
		same := func(b Binaries) bool { return b.Dir == dir }
		if slices.ContainsFunc(known, same) || slices.ContainsFunc(list, same) {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, "initdb")); err != nil || info.Mode()&0o111 == 0 {
			continue
		}
		if major := majorVersion(ctx, path); major >= MinMajor {
			list = append(list, Binaries{Dir: dir, Major: major})
		}
	}
	return list
}

// majorVersion asks a postgres binary, 0 if it does not say.
func majorVersion(ctx context.Context, path string) int {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0
	}
	// postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1), or 17beta1
	_, version, ok := strings.Cut(string(out), "(PostgreSQL) ")
	if !ok {
		return 0
	}
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(version)
	}
	major, err := strconv.Atoi(version[:end])
	if err != nil {
		return 0
	}
	return major
}

// choose returns the installation to use for a data directory of the given major version, or the
// preferred one when there is no data yet (0).
func choose(installed []Binaries, dataMajor int, dataDir string) (Binaries, error) {
	if dataMajor == 0 {
		return installed[0], nil
	}
	for _, b := range installed {
		if b.Major == dataMajor {
			return b, nil
		}
	}
	var have []string
	for _, b := range installed {
		have = append(have, strconv.Itoa(b.Major))
	}
	return Binaries{}, fmt.Errorf("%s holds data of PostgreSQL %d, and this machine has %s: install PostgreSQL %d, or convert the data with pg_upgrade",
		dataDir, dataMajor, strings.Join(have, ", "), dataMajor)
}
