// Package programs gives tests the programs that they run as processes: those that `make build` puts into bin/, brought up to
// date, so that nothing is built twice.
package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// names are the programs of a cluster, and the all-in-one.
var names = []string{"gateway", "ingest", "fanout", "search", "audit", "workflow", "media", "apiary"}

// Root returns the directory of the repository.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	require.NoError(tb, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		require.NotEqual(tb, dir, up, "no go.work above the test")
		dir = up
	}
}

// Bin brings the programs of all services in bin/ up to date and returns its path. Nobody may write there: tests of several
// packages run them at once. The go command replaces a program whole, and only if it has changed.
func Bin(tb testing.TB) string {
	tb.Helper()
	bin := filepath.Join(Root(tb), "bin")
	Build(tb, bin, names, "-trimpath") // as make build does
	return bin
}

// Build builds programs of services into a directory, with flags of go build.
func Build(tb testing.TB, dir string, programs []string, flags ...string) {
	tb.Helper()
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, flags...)
	for _, name := range programs {
		args = append(args, "./services/"+name+"/cmd/"+name)
	}
	cmd := exec.CommandContext(tb.Context(), "go", args...) //nolint:gosec // names and flags of tests
	cmd.Dir = Root(tb)
	output, err := cmd.CombinedOutput()
	require.NoError(tb, err, string(output))
}

// NATSServer returns the path of the NATS server that `make nats-server` builds, or of one on the PATH.
func NATSServer(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(Root(tb), ".bin", "nats-server")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err := exec.LookPath("nats-server")
	require.NoError(tb, err, "make nats-server builds it")
	return path
}
