package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/broken"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	"github.com/apiary-relay/apiary/tools/chaos/internal/scenario"
	"github.com/apiary-relay/apiary/tools/internal/programs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// brokenPrograms are a cluster's, with the gateway and the fan-out node of package broken.
func brokenPrograms(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	sound := programs.Bin(t)
	all, err := os.ReadDir(sound)
	require.NoError(t, err)
	for _, program := range all {
		require.NoError(t, os.Symlink(filepath.Join(sound, program.Name()), filepath.Join(bin, program.Name())))
	}
	for _, program := range []string{"gateway", "fanout"} {
		require.NoError(t, os.Remove(filepath.Join(bin, program)))
	}
	programs.Build(t, bin, []string{"gateway", "fanout"}, "-trimpath", "-tags", "broken")
	return bin
}

// small is a run on a cluster of the test's own, of two of each.
func small(t *testing.T) options {
	t.Helper()
	return options{
		bin: programs.Bin(t), natsServer: programs.NATSServer(t), data: t.TempDir(), databaseURL: pgtest.URL(t),
		gateways: 2, ingests: 2, fanouts: 2, searches: 2, spares: 1, settling: settling,
		note: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func (o *options) add(t *testing.T, name, text string) {
	t.Helper()
	s, err := scenario.Parse(name, []byte(text))
	require.NoError(t, err)
	o.scenarios = append(o.scenarios, s)
}

// resultOf reads the last line.
func resultOf(t *testing.T, output string) (r result) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(output), "\n")
	line, ok := strings.CutPrefix(lines[len(lines)-1], "RESULT ")
	require.True(t, ok, output)
	require.NoError(t, json.Unmarshal([]byte(line), &r))
	return r
}

// A small run of what `make chaos` does at length.
func TestNothingIsMissedRepeatedOrLeaked(t *testing.T) {
	opts := small(t)
	opts.seconds = 6
	const load = "load: {subscribers: 24, rate: 20, public: 2, private: 2, churners: 2, churn: 200ms}\n"
	opts.add(t, "killed", load+`
about: All of a kind die, one after the other.
steps:
  - {at: 500ms, every: 2s, kill: next fanout}
  - {at: 1s, every: 2s, kill: next ingest}
  - {at: 3s, kill: next gateway}
  - {at: 4s, add: fanout-3}
`)
	opts.add(t, "cut", load+`
about: Links break, and a node freezes.
steps:
  - {at: 500ms, cut: gateway to next fanout, for: 1s}
  - {at: 2s, hold: fanout to nats, for: 1s}
  - {at: 3500ms, pause: next fanout, for: 1s}
  - {at: 4s, roll: next gateway}
`)
	var out strings.Builder
	err := run(t.Context(), opts, &out)
	t.Log(out.String())
	require.NoError(t, err)
	r := resultOf(t, out.String())
	require.Greater(t, r.Events, 100)
	require.Greater(t, r.Deliveries, r.Events)
	require.Greater(t, r.Ephemeral, 10)
	r.Events, r.Ephemeral, r.Deliveries, r.Excused, r.PauseP99, r.LongestPause = 0, 0, 0, 0, 0, 0
	require.Zero(t, r)
}

// A relay that was broken on purpose: one event is kept from a subscription, one is delivered twice, one reaches
// who was removed, one subscription is ended for no reason. The checker says exactly that.
func TestFaultsAreFound(t *testing.T) {
	opts := small(t)
	opts.bin = brokenPrograms(t)
	// One of each: every process goes wrong once.
	opts.gateways, opts.fanouts, opts.seconds = 1, 1, 1
	opts.settling = 10 * time.Second // what is missing is not waited for; everything else must have come by then
	opts.marks = []string{broken.MarkDrop, broken.MarkRepeat, broken.MarkLeak, broken.MarkClose}
	opts.add(t, "calm", "load: {subscribers: 18, rate: 10, public: 1, private: 4, churners: 1}\n")
	var out strings.Builder
	err := run(t.Context(), opts, &out)
	t.Log(out.String())
	require.ErrorIs(t, err, errWrong)
	r := resultOf(t, out.String())
	r.Events, r.Ephemeral, r.Deliveries, r.LongestPause = 0, 0, 0, 0
	require.Equal(t, result{Missed: 1, Duplicated: 1, Forbidden: 1, UnexplainedClose: 1}, r)
	for _, said := range []string{"calm: missed: ", "calm: duplicated: ", "calm: forbidden: ", "calm: unexplained: CLOSED "} {
		require.Equal(t, 1, strings.Count(out.String(), said), said)
	}
}

func TestParse(t *testing.T) {
	opts, err := parse([]string{"--seconds", "8", "--subscribers", "20", "--only", "restart-nats,kill-fanout"}, t.Output())
	require.NoError(t, err)
	require.Len(t, opts.scenarios, 2)
	require.Equal(t, "restart-nats", opts.scenarios[0].Name)
	require.Equal(t, 20, opts.scenarios[1].Load.Subscribers)

	for _, c := range []struct {
		wrong string
		args  []string
	}{
		{"1 to 3600 seconds", []string{"--seconds", "0"}},
		{`no scenario "nothing", but cut-fanout-nats, `, []string{"--only", "nothing"}},
		{"subscribers must be", []string{"--subscribers", "100000"}},
		{"no such file", []string{"none.yaml"}},
	} {
		_, err := parse(c.args, t.Output())
		require.ErrorContains(t, err, c.wrong)
	}
	var errs strings.Builder
	require.Equal(t, exitUsage, command(t.Context(), []string{"--seconds", "x"}, t.Output(), &errs))
	require.Zero(t, command(t.Context(), []string{"-help"}, t.Output(), &errs))
}

// Every scenario can be read, and does something also in a short run.
func TestOurScenarios(t *testing.T) {
	all, err := read(nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 12)
	for _, s := range all {
		require.NotEmpty(t, s.About, s.Name)
		require.NotEmpty(t, s.Steps[0].Times(8e9), s.Name)
	}
}

func TestWatchRefusesMistakes(t *testing.T) {
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"watch"}, "say which relay"},
		{[]string{"watch", "--url", "https://relay.example"}, "say which relay"},
		{[]string{"watch", "--url", "ws://relay.example", "stray"}, "say which relay"},
		{[]string{"watch", "--url", "ws://relay.example", "--seconds", "0"}, "1 to 3600 seconds"},
		{[]string{"watch", "--url", "ws://relay.example", "--rate", "1000"}, "rate must be"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, command(t.Context(), c.args, &stdout, &stderr), c.args)
		require.Contains(t, stderr.String(), c.text)
	}
	o, err := parseWatch([]string{"--url", "ws://relay.example"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "relay.example:80", o.address)
	require.Equal(t, "relay.example", o.host)
}
