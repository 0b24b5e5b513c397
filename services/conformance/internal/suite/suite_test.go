package suite_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func options() suite.Options {
	return suite.Options{Step: time.Second, Quiet: time.Millisecond, Parallel: 3}
}

func run(t *testing.T, o suite.Options, cases ...suite.Case) suite.Report {
	t.Helper()
	relay := &suite.Relay{URL: "ws://relay.example", URLs: []string{"ws://relay.example"}, Info: &client.Info{NIPs: []int{1, 9}}}
	return suite.Run(t.Context(), relay, cases, o, nil)
}

func TestOutcomes(t *testing.T) {
	var cleaned atomic.Bool
	cases := []suite.Case{
		{NIP: 9, ID: "passes", Required: true, Run: func(*suite.T) {}},
		{NIP: 1, ID: "fails", Title: "a relay does it", Required: true, Run: func(t *suite.T) {
			defer cleaned.Store(true)
			t.Fail("one thing", "another: %d\nand\x00more", 1)
			cleaned.Store(false) // not reached
		}},
		{NIP: 1, ID: "optional", Run: func(t *suite.T) { t.Check(false, "one thing", "another") }},
		{NIP: 1, ID: "declined", Required: true, Run: func(t *suite.T) { t.NotClaimed("because of %s", "policy") }},
		{NIP: 45, ID: "needs", Needs: []int{45}, Required: true, Run: func(t *suite.T) { t.Fail("not to be run", "it was") }},
		{NIP: 1, ID: "panics", Required: true, Run: func(*suite.T) { panic("oh") }},
	}
	report := run(t, options(), cases...)
	require.True(t, cleaned.Load(), "what a case deferred runs")

	got := map[string]suite.Outcome{}
	for i := range report {
		got[report[i].Case.Name()] = report[i].Outcome
	}
	require.Equal(t, map[string]suite.Outcome{
		"NIP-09/passes": suite.Passed, "NIP-01/fails": suite.Failed, "NIP-01/optional": suite.NotClaimed,
		"NIP-01/declined": suite.NotClaimed, "NIP-45/needs": suite.NotClaimed, "NIP-01/panics": suite.Failed,
	}, got)
	require.Equal(t, 9, report[4].Case.NIP, "sorted by NIP")

	var out bytes.Buffer
	require.NoError(t, report.Print(&out))
	require.Contains(t, out.String(), "expected: one thing\n")
	require.Contains(t, out.String(), "saw:      another: 1\n")
	require.Contains(t, out.String(), "and<U+0000>more\n")
	require.Contains(t, out.String(), "optional; expected: one thing; saw: another\n")
	require.Contains(t, out.String(), "because of policy\n")
	require.Contains(t, out.String(), "NIP-45 is not among the supported NIPs\n")
	require.Regexp(t, `\nRESULT \{"passed":1,"failed":2,"not_claimed":3\}\n$`, out.String())
}

func TestChoiceAndClaims(t *testing.T) {
	pass := func(*suite.T) {}
	cases := []suite.Case{
		{NIP: 1, ID: "a/one", Run: pass}, {NIP: 1, ID: "b/two", Run: pass}, {NIP: 45, ID: "count", Needs: []int{45}, Run: pass},
	}
	o := options()
	o.Only, o.Claims = []string{"NIP-01/b", "NIP-45/"}, []int{45}
	report := run(t, o, cases...)
	require.Len(t, report, 2)
	require.Equal(t, 2, report.Count(suite.Passed))
}

func TestParallelismIsBounded(t *testing.T) {
	var running, most atomic.Int64
	cases := make([]suite.Case, 20)
	for i := range cases {
		cases[i] = suite.Case{NIP: 1, ID: "case", Run: func(t *suite.T) {
			now := running.Add(1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); {
				seen = most.Load()
			}
			t.Pause(time.Millisecond)
			running.Add(-1)
		}}
	}
	require.Equal(t, 20, run(t, options(), cases...).Count(suite.Passed))
	require.LessOrEqual(t, most.Load(), int64(3))
}

func TestTheRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	relay := &suite.Relay{URL: "ws://relay.example"}
	report := suite.Run(ctx, relay, []suite.Case{{NIP: 1, ID: "waits", Required: true, Run: func(t *suite.T) {
		cancel()
		t.Pause(time.Hour)
	}}}, options(), nil)
	require.Equal(t, 1, report.Count(suite.Failed))
}

func TestRandomCasesAreRepeatable(t *testing.T) {
	draw := func(seed uint64, id string) (n uint64) {
		o := options()
		o.Seed = seed
		run(t, o, suite.Case{NIP: 1, ID: id, Run: func(t *suite.T) { n = t.Rand().Uint64() }})
		return n
	}
	first := draw(1, "a")
	require.Equal(t, first, draw(1, "a"))
	require.NotEqual(t, first, draw(2, "a"))
	require.NotEqual(t, first, draw(1, "b"))
}
