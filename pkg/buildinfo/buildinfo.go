// Package buildinfo says which build is running, from what the Go toolchain stamped into it. It has no
// state besides one value set by the linker; all functions are safe for concurrent use.
package buildinfo

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// version is set at release: -ldflags "-X github.com/apiary-relay/apiary/pkg/buildinfo.version=v1.2.3".
var version string

// Info describes a build.
type Info struct {
	// Version is the release, else the module version, else "dev".
	Version string
	// Commit is the revision, empty when the build was made without version control.
	Commit string
	// Time is the commit's time, zero when unknown.
	Time time.Time
	// Dirty: the tree had changes that are not in Commit.
	Dirty bool
	// Go is the toolchain, such as go1.26.8.
	Go string
}

// Read returns the build of the running program.
func Read() Info { return read() }

var read = sync.OnceValue(func() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return from(version, build)
})

func from(version string, build *debug.BuildInfo) Info {
	info := Info{Version: version, Go: runtime.Version()}
	if info.Version == "" {
		info.Version = build.Main.Version
	}
	if info.Version == "" || info.Version == "(devel)" {
		info.Version = "dev"
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.modified":
			info.Dirty = s.Value == "true"
		case "vcs.time":
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				info.Time = t
			}
		}
	}
	return info
}

// String returns one line: version, short commit, a mark when dirty, toolchain.
func (i Info) String() string {
	s := i.Version
	if i.Commit != "" {
		s += " (" + i.Commit[:min(12, len(i.Commit))]
		if i.Dirty {
			s += ", modified"
		}
		s += ")"
	}
	return s + " " + i.Go
}
