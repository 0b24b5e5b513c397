package scenario_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/tools/chaos/internal/scenario"
)

func TestParse(t *testing.T) {
	s, err := scenario.Parse("dir/some-name.yaml", []byte(`
about: What it is good for.
load: {subscribers: 12, churn: 20ms}
steps:
  - {every: 5s, kill: next fanout}
  - {at: 1s, pause: ingest-2, for: 10s}
  - {at: 1s, roll: gateway}
  - {at: 2s, every: 20s, cut: gateway to next fanout, for: 3s}
  - {at: 3s, kill: postgres}
`))
	require.NoError(t, err)
	require.Equal(t, "some-name", s.Name)
	require.Equal(t, "What it is good for.", s.About)
	require.Equal(t, scenario.Load{
		Subscribers: 12, Publishers: 4, Rate: 36, Public: 4, Private: 4, Churners: 4, Churn: 20 * time.Millisecond,
	}, s.Load)
	var said []string
	for i := range s.Steps {
		said = append(said, s.Steps[i].String())
	}
	require.Equal(t, []string{
		"kill next fanout", "pause ingest-2", "roll gateway", "cut gateway to next fanout", "kill postgres",
	}, said)
	require.Equal(t, scenario.Target{Service: "fanout", Next: true}, s.Steps[0].Target())
	require.Equal(t, scenario.Target{Service: "ingest", Process: "ingest-2"}, s.Steps[1].Target())
	require.Equal(t, scenario.Target{Service: "gateway"}, s.Steps[2].Target())
	require.Equal(t, scenario.Link{From: scenario.Target{Service: "gateway"}, To: scenario.Target{Service: "fanout", Next: true}}, s.Steps[3].Link())
	require.Equal(t, scenario.Target{Service: "postgres", Process: "postgres"}, s.Steps[4].Target())
}

func TestMistakesAreSaid(t *testing.T) {
	for text, want := range map[string]string{
		"abot: x":                "field abot not found",
		"load: {subscribers: 0}": "subscribers must be 1 to 10000, not 0",
		"load: {rate: 46}":       "rate must be 1 to 45, not 46",
		"load: {churn: 0s}":      "churn must be a time",
		"steps: [{at: 1s}]":      "step 1: it must say one thing to do",
		"steps: [{at: 1s, kill: nats, roll: nats}]":                    "one thing to do",
		"steps: [{kill: nats}]":                                        "it must say when",
		"steps: [{every: 1ms, kill: nats}]":                            "every 100ms, not more often",
		"steps: [{at: 1s, pause: fanout-1}]":                           "pause must say for how long",
		"steps: [{at: 1s, kill: nats, for: 1s}]":                       "kill takes no time",
		"steps: [{every: 2s, for: 2s, hold: gateway to nats}]":         "must end before it is done again",
		"steps: [{at: 1s, kill: fanouts}]":                             `"fanouts" is no target`,
		"steps: [{at: 1s, kill: next fanout-1}]":                       `"next fanout-1" is no target`,
		"steps: [{at: 1s, cut: gateway, for: 1s}]":                     `"gateway" is no link`,
		"steps: [{at: 1s, cut: gateway to us, for: 1s}]":               `"us" is no target`,
		"steps: [{at: 1s, roll: postgres}]":                            "postgres can only be killed",
		"steps: [" + strings.Repeat("{at: 1s, kill: nats},", 33) + "]": "more than 32 steps",
		strings.Repeat("#", 70_000):                                    "more than 65536 bytes",
	} {
		_, err := scenario.Parse("x.yaml", []byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		step scenario.Step
		want []time.Duration
	}{
		{scenario.Step{At: 4 * time.Second}, []time.Duration{4 * time.Second}},
		{scenario.Step{Every: 4 * time.Second}, []time.Duration{4 * time.Second, 8 * time.Second}},
		{scenario.Step{At: time.Second, Every: 4 * time.Second}, []time.Duration{time.Second, 5 * time.Second, 9 * time.Second}},
		{scenario.Step{At: 10 * time.Second}, nil}, // the run is over
	} {
		require.Equal(t, c.want, c.step.Times(10*time.Second))
	}
}
