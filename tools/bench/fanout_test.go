package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/tools/bench/internal/crowd"
	"github.com/apiary-relay/apiary/tools/internal/programs"
)

// Everybody has everything once, flooded and paced. `make bench-fanout` is the same with more of it, and with others.
func TestFanout(t *testing.T) {
	for _, shape := range []shapeOfCrowd{{"one topic", 20, 1, 1}, {"some topics each", 20, 8, 2}} {
		t.Run(shape.name, func(t *testing.T) {
			var out strings.Builder
			f := fanout{
				binary: allInOne(t), only: "apiary", length: time.Second, most: 400, perSec: 400, outside: 200,
				crowds: []shapeOfCrowd{shape},
			}
			require.NoError(t, runFanout(t.Context(), f, &out), out.String())
			line := out.String()[strings.Index(out.String(), "RESULT ")+len("RESULT "):]
			var res map[string]figures
			require.NoError(t, json.Unmarshal([]byte(line), &res))
			require.Positive(t, res["apiary"].PerSecond)
			require.Positive(t, res["apiary"].PacedP99)
			require.Zero(t, res["apiary"].Lost+res["apiary"].Twice)
		})
	}
}

// Fan-out nodes that share the work all do their part, and nothing is lost or repeated between them.
func TestFanoutNodes(t *testing.T) {
	var out strings.Builder
	f := fanout{length: time.Second, nodes: nodes{
		bin: programs.Bin(t), natsServer: programs.NATSServer(t), counts: "1,2", subscribers: 10, topics: 2, perSec: 200,
	}}
	require.NoError(t, runFanout(t.Context(), f, &out), out.String())
	line := out.String()[strings.Index(out.String(), "RESULT ")+len("RESULT "):]
	var res struct{ Nodes []shared }
	require.NoError(t, json.Unmarshal([]byte(line), &res))
	require.Len(t, res.Nodes, 2)
	for i, n := range res.Nodes {
		require.Equal(t, i+1, n.Fanouts)
		require.Len(t, n.Shares, n.Fanouts)
		require.Positive(t, n.PerSecond)
		require.Zero(t, n.Lost+n.Twice)
	}
}

// What the nodes have used is divided by what arrived, and a node that did not do its part is noticed.
func TestAccount(t *testing.T) {
	res := crowd.Result{Deliveries: 1000, Took: 2 * time.Second}
	before := []spent{{time.Second, 100}, {time.Second, 0}, {cpu: time.Second}}
	after := []spent{{time.Second + time.Millisecond, 600}, {time.Second + 2*time.Millisecond, 500}, {cpu: time.Second + 5*time.Millisecond}}
	got, err := account(res, before, after)
	require.NoError(t, err)
	require.Equal(t, shared{Fanouts: 2, PerSecond: 500, FanoutCPU: 3, GatewayCPU: 5, Shares: []float64{0.5, 0.5}}, got)

	after[0].delivered, after[1].delivered = 1100, 0
	_, err = account(res, before, after)
	require.ErrorContains(t, err, "not equal parts")
}
