package main

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// built is the all-in-one with the race detector, which is built once.
var built struct {
	once   sync.Once
	path   string
	output []byte
	err    error
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bench-test-")
	if err != nil {
		panic(err)
	}
	built.path = filepath.Join(dir, "apiary")
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func allInOne(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		// The flags of `make test`, if it is what runs: then most is compiled already.
		args := append([]string{"build", "-o", built.path}, strings.Fields(cmp.Or(os.Getenv("RACE"), "-race"))...)
		build := exec.CommandContext(t.Context(), "go", append(args, "./services/apiary/cmd/apiary")...)
		build.Dir = filepath.Join("..", "..")
		built.output, built.err = build.CombinedOutput()
	})
	require.NoError(t, built.err, string(built.output))
	return built.path
}

// A relay that is attacked goes on, and who behaves well loses nothing. `make hostile` is the same with more of it.
func TestHostile(t *testing.T) {
	var out strings.Builder
	h := hostile{binary: allInOne(t), megabyte: 8, seed: 1, sockets: 24, lurkers: 4, rounds: 1, quiet: time.Second, rssLimit: 4096}
	require.NoError(t, runHostile(t.Context(), h, &out), out.String())
	t.Log(out.String())
	line := out.String()[strings.Index(out.String(), "RESULT ")+len("RESULT "):]
	var res verdict
	require.NoError(t, json.Unmarshal([]byte(line), &res))
	require.GreaterOrEqual(t, res.HostileMB, 8.0)
	require.Positive(t, res.P99Ratio)
}
