package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A relay that is attacked goes on, and who behaves well loses nothing. `make hostile` is the same with more of it.
func TestHostile(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "apiary")
	build := exec.CommandContext(t.Context(), "go", "build", "-race", "-o", binary, "./services/apiary/cmd/apiary")
	build.Dir = filepath.Join("..", "..")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))

	var out strings.Builder
	h := hostile{binary: binary, megabyte: 8, seed: 1, sockets: 24, lurkers: 4, rounds: 1, quiet: time.Second, rssLimit: 4096}
	require.NoError(t, runHostile(t.Context(), h, &out), out.String())
	t.Log(out.String())
	line := out.String()[strings.Index(out.String(), "RESULT ")+len("RESULT "):]
	var res verdict
	require.NoError(t, json.Unmarshal([]byte(line), &res))
	require.GreaterOrEqual(t, res.HostileMB, 8.0)
	require.Positive(t, res.P99Ratio)
}
