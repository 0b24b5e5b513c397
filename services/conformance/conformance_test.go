package conformance_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/services/conformance"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

var update = flag.Bool("update", false, "write golden files")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestAllInOne(t *testing.T) {
	t.Parallel()
	conforms(t, cluster.AllInOne(t).Gateway(0))
}

func TestSplit(t *testing.T) {
	t.Parallel()
	c := cluster.New(t, cluster.Gateways(2), cluster.Ingests(2), cluster.Fanouts(2), cluster.Searches(2))
	conforms(t, c.Gateway(0), c.Gateway(1))
}

// conforms runs every case. None may fail, and only those may be not claimed that are known to be: otherwise
// what is optional for relays would be optional for this one.
func conforms(t *testing.T, urls ...string) {
	t.Helper()
	cfg := conformance.DefaultConfig()
	cfg.Step = 20 * time.Second // two busy cores are slow; nothing should take that long
	var out bytes.Buffer
	report, err := conformance.Run(t.Context(), urls, cfg, &out)
	require.NoError(t, err, out.String())
	require.Regexp(t, `RESULT \{"passed":\d+,"failed":0,"not_claimed":\d+\}\n$`, out.String())

	var not strings.Builder
	for i := range report {
		if report[i].Outcome == conformance.NotClaimed {
			not.WriteString(report[i].Case.Name() + "\n")
		}
	}
	golden := filepath.Join("testdata", "not_claimed.golden")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(not.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), not.String(), out.String())
}

func TestWhatIsNoRelay(t *testing.T) {
	var out bytes.Buffer
	for _, urls := range [][]string{nil, {"http://localhost"}, {"ws://"}, {"localhost:3000"}, {"ws://localhost", "x"}} {
		_, err := conformance.Run(t.Context(), urls, conformance.DefaultConfig(), &out)
		require.Error(t, err, urls)
	}
	require.Empty(t, out.String())
}
