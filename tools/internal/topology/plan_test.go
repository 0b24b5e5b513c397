package topology_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/tools/internal/supervise"
	"github.com/apiary-relay/apiary/tools/internal/topology"
)

// programs makes files that look like the services' programs.
func programs(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"gateway", "ingest", "fanout", "search", "audit", "workflow", "media", "apiary", "nats-server"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700))
	}
	return bin
}

func plan(t *testing.T) *topology.Plan {
	t.Helper()
	bin := programs(t)
	p, err := topology.New(t.Context(), topology.Config{
		Bin: bin, NATSServer: filepath.Join(bin, "nats-server"), Data: t.TempDir(),
		Gateways: 2, Ingests: 3, Fanouts: 2, Searches: 2, Port: 3000, DatabaseURL: "postgres://u:secret@db/x",
	})
	require.NoError(t, err)
	return p
}

func named(t *testing.T, p *topology.Plan, name string) topology.Process {
	t.Helper()
	i := slices.IndexFunc(p.All(), func(process topology.Process) bool { return process.Spec.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return p.All()[i]
}

func TestEveryoneKnowsWhereTheOthersAre(t *testing.T) {
	p := plan(t)
	require.Len(t, p.All(), 1+3+2+2+3+2)
	require.Equal(t, "ws://localhost:3000", p.URL)

	seen := map[string]bool{}
	for _, process := range p.All() {
		for _, address := range []string{process.Address, process.Admin} {
			require.True(t, strings.HasPrefix(address, "127.0.0.1:"), address)
			require.False(t, seen[address], "%s is given out twice", address)
			seen[address] = true
		}
	}
	ingests := named(t, p, "ingest-1").Address + "," + named(t, p, "ingest-2").Address + "," + named(t, p, "ingest-3").Address
	searches := named(t, p, "search-1").Address + "," + named(t, p, "search-2").Address
	require.Contains(t, named(t, p, "gateway-2").Spec.Args, "--ingest.targets="+ingests)
	require.Contains(t, named(t, p, "gateway-2").Spec.Args, "--search.targets="+searches)
	require.Contains(t, named(t, p, "fanout-1").Spec.Args, "--search.targets="+searches)
	require.Contains(t, named(t, p, "ingest-2").Spec.Args, "--nats.url="+p.NATSURL)
	require.Contains(t, strings.Join(named(t, p, "gateway-1").Spec.Args, " "), "--self=")
	require.Contains(t, strings.Join(named(t, p, "ingest-1").Spec.Env, " "), "APIARY_RELAY_KEY_FILE=", "the key itself is in a file")
	require.Equal(t, []string{named(t, p, "gateway-1").Address, named(t, p, "gateway-2").Address}, p.Backends)
}

func TestConnectionsMayTakeAnotherWay(t *testing.T) {
	bin := programs(t)
	ways := map[string]string{}
	p, err := topology.New(t.Context(), topology.Config{
		Bin: bin, NATSServer: filepath.Join(bin, "nats-server"), Data: t.TempDir(),
		Gateways: 1, Ingests: 1, Fanouts: 2, SpareFanouts: 1, Searches: 1, Port: 3000,
		Via: func(from, to, address string) (string, error) {
			ways[from+" "+to] = address
			return from + "-to-" + to, nil
		},
	})
	require.NoError(t, err)
	require.Len(t, p.Spares, 1)
	require.Equal(t, "fanout-3", named(t, p, "fanout-3").Spec.Name)
	require.Contains(t, named(t, p, "gateway-1").Spec.Args, "--fanout.targets=gateway-1-to-fanout-1,gateway-1-to-fanout-2,gateway-1-to-fanout-3")
	require.Contains(t, named(t, p, "fanout-2").Spec.Args, "--nats.url=nats://fanout-2-to-nats")
	require.Contains(t, named(t, p, "fanout-2").Spec.Args, "--search.targets=fanout-2-to-search-1")
	require.Equal(t, named(t, p, "ingest-1").Address, ways["gateway-1 ingest-1"])
	require.Equal(t, p.NATS.Address, ways["ingest-1 nats"])
}

func TestPasswordsAreNotInArgumentsOrState(t *testing.T) {
	p := plan(t)
	for _, process := range p.All() {
		require.NotContains(t, strings.Join(process.Spec.Args, " "), "secret")
	}
	require.Contains(t, named(t, p, "search-1").Spec.Env, "APIARY_POSTGRES_URL=postgres://u:secret@db/x")
	path := filepath.Join(t.TempDir(), "cluster.json")
	require.NoError(t, p.State(nil).Write(path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(content), "secret")
}

func TestStateAndTable(t *testing.T) {
	p := plan(t)
	state := p.State([]supervise.Status{
		{Name: "gateway-1", PID: 7, State: supervise.Running, Restarts: 2},
		{Name: "nats", State: supervise.Waiting},
	})
	require.Equal(t, os.Getpid(), state.Supervisor)
	require.Len(t, state.Processes, 2)
	require.Equal(t, "nats", state.Processes[0].Name, "in the order of the plan")
	require.Equal(t, named(t, p, "gateway-1").Admin, state.Processes[1].Admin)

	encoded, err := json.Marshal(state)
	require.NoError(t, err)
	require.Contains(t, string(encoded), `"name":"gateway-1","service":"gateway","pid":7,"state":"running","restarts":2`)
	var table strings.Builder
	require.NoError(t, state.Table(&table))
	require.Regexp(t, `(?m)^gateway-1 +7 +127\.0\.0\.1:\d+ +127\.0\.0\.1:\d+$`, table.String())
}

func TestHintsNameTheServices(t *testing.T) {
	state := topology.State{URL: "ws://localhost:3000", Processes: []topology.ProcessState{
		{Service: "nats", Address: "127.0.0.1:1"},
		{Service: "ingest", Address: "127.0.0.1:2"},
		{Service: "search", Address: "127.0.0.1:3"},
		{Service: "ingest", Address: "127.0.0.1:4"},
	}}
	var out strings.Builder
	require.NoError(t, state.Hints(&out, "bin/apiary"))
	require.Equal(t, `Try, in two terminals:
    bin/apiary client listen --relay ws://localhost:3000
    bin/apiary client publish --relay ws://localhost:3000 "hello, hive"
    bin/apiary community list --search 127.0.0.1:3
    bin/apiary community member-add localhost PUBKEY --ingest 127.0.0.1:2
`, out.String())
}

func TestMistakes(t *testing.T) {
	bin := programs(t)
	cfg := topology.Config{Bin: bin, NATSServer: filepath.Join(bin, "nats-server"), Data: t.TempDir(), Gateways: 1, Ingests: 1, Fanouts: 1}
	_, err := topology.New(t.Context(), cfg)
	require.ErrorContains(t, err, "1 to 64 of each service, not 0")

	cfg.Searches, cfg.SpareFanouts = 1, -1
	_, err = topology.New(t.Context(), cfg)
	require.ErrorContains(t, err, "up to 64 spare fan-out nodes, not -1")

	cfg.SpareFanouts = 0
	require.NoError(t, os.Remove(filepath.Join(bin, "fanout")))
	_, err = topology.New(t.Context(), cfg)
	require.ErrorContains(t, err, "find the program of fanout (make build makes it)")

	cfg.NATSServer = filepath.Join(bin, "no-such-server")
	_, err = topology.New(t.Context(), cfg)
	require.ErrorContains(t, err, "find nats-server (make tools builds it)")
}
