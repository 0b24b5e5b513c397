package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// lastResort is the id of nobody on machines that have no list of users, such as minimal containers.
const lastResort = 65534

// account is whom Postgres runs as.
type account struct {
	name     string
	uid, gid uint32
	// drop is true when that is somebody else than this process, which is root then.
	drop bool
}

// chooseAccount returns this process's own user, or for root an unprivileged one: the owner of the data
// if there is some already, otherwise postgres, otherwise nobody.
func chooseAccount(pgdata string) (account, error) {
	euid, egid := os.Geteuid(), os.Getegid()
	owner, haveData, err := ownerOf(pgdata)
	if err != nil {
		return account{}, err
	}
	if euid != 0 {
		if haveData && owner.uid != uint32(euid) {
			return account{}, fmt.Errorf("%s belongs to %s: run as that user or choose another data directory", pgdata, owner.name)
		}
		return account{name: userName(uint32(euid)), uid: uint32(euid), gid: uint32(egid)}, nil
	}
	if haveData {
		if owner.uid == 0 {
			return account{}, fmt.Errorf("%s belongs to root, as whom Postgres refuses to run: chown it to an ordinary user", pgdata)
		}
		return owner, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil || uid == 0 {
			continue
		}
		return account{name: name, uid: uint32(uid), gid: uint32(gid), drop: true}, nil
	}
	return account{name: userName(lastResort), uid: lastResort, gid: lastResort, drop: true}, nil
}

func ownerOf(path string) (owner account, exists bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return account{}, false, nil
	}
	if err != nil {
		return account{}, false, fmt.Errorf("look at data directory: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return account{}, false, fmt.Errorf("look at data directory %s: no owner on this system", path)
	}
	return account{name: userName(stat.Uid), uid: stat.Uid, gid: stat.Gid, drop: true}, true, nil
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return "user " + u.Username
	}
	return "user id " + id
}

// own gives a path to the account.
func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	if err := os.Chown(path, int(a.uid), int(a.gid)); err != nil {
		return fmt.Errorf("give %s to %s: %w", path, a.name, err)
	}
	return nil
}

// credential makes a child run as the account, without root's groups.
func (a account) credential() *syscall.Credential {
	if !a.drop {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: []uint32{a.gid}}
}

// checkEnter returns an error that names the first directory on the way to path that the account may not
// enter; Postgres would only say that a file cannot be opened.
func (a account) checkEnter(path string) error {
	if !a.drop {
		return nil
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("look at data directory: %w", err)
	}
	for dir := resolved; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("look at data directory: %w", err)
		}
		if !a.mayEnter(info) {
			return fmt.Errorf("%s, as whom Postgres is to run because it refuses root, may not enter %s: choose a data directory elsewhere, or run: chmod o+x %s", a.name, dir, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (a account) mayEnter(info fs.FileInfo) bool {
	mode := info.Mode().Perm()
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && stat.Uid == a.uid:
		return mode&0o100 != 0
	case ok && stat.Gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}
