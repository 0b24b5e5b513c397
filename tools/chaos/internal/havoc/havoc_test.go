package havoc_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/tools/chaos/internal/checker"
	"github.com/apiary-relay/apiary/tools/chaos/internal/havoc"
	"github.com/apiary-relay/apiary/tools/chaos/internal/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// diary is a cluster that writes down what is done to it, and when.
type diary struct {
	began time.Time

	mu      sync.Mutex // guards what follows
	said    []string
	running []string // fan-out nodes
	refuse  error
	unready int // how often Ready still says no
}

func (d *diary) write(what, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, time.Since(d.began).String()+" "+what+" "+name)
	return d.refuse
}

func (d *diary) Kill(name string) error   { return d.write("kill", name) }
func (d *diary) Pause(name string) error  { return d.write("pause", name) }
func (d *diary) Resume(name string) error { return d.write("resume", name) }

func (d *diary) Leave(_ context.Context, name string) error {
	d.mu.Lock()
	d.running = slices.DeleteFunc(d.running, func(n string) bool { return n == name })
	d.mu.Unlock()
	return d.write("leave", name)
}

func (d *diary) Join(_ context.Context, name string) error {
	d.mu.Lock()
	d.running = slices.Sorted(slices.Values(append(d.running, name)))
	d.mu.Unlock()
	return d.write("join", name)
}

func (d *diary) Running(service string) []string {
	if service != "fanout" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.running)
}

func (d *diary) Ready() bool {
	d.unready--
	return d.unready < 0
}

// do does the steps of a scenario to a cluster of two fan-out nodes, in ten seconds.
func do(t *testing.T, steps string) (*diary, error) {
	t.Helper()
	s, err := scenario.Parse("x.yaml", []byte("steps:\n"+steps))
	require.NoError(t, err)
	d := &diary{began: time.Now(), running: []string{"fanout-1", "fanout-2"}}
	links := havoc.NewLinks(t.Context(), []*scenario.Scenario{s})
	defer links.Close()
	err = havoc.New(d, links, checker.New(), slog.New(slog.DiscardHandler)).Do(t.Context(), s.Steps, 10*time.Second)
	require.Equal(t, 10*time.Second, time.Since(d.began), "the run has its length")
	return d, err
}

func TestStepsAreDoneInTime(t *testing.T) {
	for name, c := range map[string]struct {
		steps string
		want  []string
	}{
		"in turn":           {"  - {every: 3s, kill: next fanout}", []string{"3s kill fanout-1", "6s kill fanout-2", "9s kill fanout-1"}},
		"all":               {"  - {at: 1s, kill: fanout}", []string{"1s kill fanout-1", "1s kill fanout-2"}},
		"one":               {"  - {at: 1s, kill: nats}", []string{"1s kill nats"}},
		"frozen":            {"  - {at: 1s, pause: fanout, for: 2s}", []string{"1s pause fanout-1", "1s pause fanout-2", "3s resume fanout-1", "3s resume fanout-2"}},
		"frozen at the end": {"  - {at: 7s, pause: fanout-2, for: 5s}", []string{"7s pause fanout-2", "10s resume fanout-2"}},
		"rolled":            {"  - {at: 1s, roll: fanout}", []string{"1s leave fanout-1", "1s join fanout-1", "1s leave fanout-2", "1s join fanout-2"}},
		"only those that run": {"  - {at: 1s, remove: fanout-1}\n  - {at: 2s, kill: fanout}\n  - {at: 3s, add: fanout-3}\n  - {at: 4s, kill: fanout}", []string{
			"1s leave fanout-1", "2s kill fanout-2", "3s join fanout-3", "4s kill fanout-2", "4s kill fanout-3",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, err := do(t, c.steps)
				require.NoError(t, err)
				require.Equal(t, c.want, d.said)
			})
		})
	}
}

func TestARunInWhichNothingHappensIsAMistake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := do(t, "  - {at: 11s, kill: fanout}")
		require.ErrorContains(t, err, "the run is too short for this scenario")
	})
}

func TestWhatCannotBeDoneEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := scenario.Parse("x.yaml", []byte("steps: [{every: 1s, kill: nats}]"))
		require.NoError(t, err)
		d := &diary{began: time.Now(), refuse: errors.New("no")}
		links := havoc.NewLinks(t.Context(), nil)
		err = havoc.New(d, links, checker.New(), slog.New(slog.DiscardHandler)).Do(t.Context(), s.Steps, 10*time.Second)
		require.EqualError(t, err, "kill nats: no")
		require.Equal(t, time.Second, time.Since(d.began))
	})
}

func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{began: time.Now(), running: []string{"fanout-2", "fanout-3"}, unready: 3}
		require.NoError(t, havoc.Restore(t.Context(), d, map[string][]string{"fanout": {"fanout-1", "fanout-2"}}))
		require.Equal(t, []string{"fanout-1", "fanout-2"}, d.running)
		require.Negative(t, d.unready)

		d.unready = 1 << 30
		require.ErrorContains(t, havoc.Restore(t.Context(), d, nil), "not everything runs again")
	})
}

// Only what a scenario cuts goes through a proxy.
func TestLinks(t *testing.T) {
	s, err := scenario.Parse("x.yaml", []byte("steps: [{at: 1s, cut: gateway to next fanout, for: 1s}]"))
	require.NoError(t, err)
	links := havoc.NewLinks(t.Context(), []*scenario.Scenario{s})
	defer links.Close()
	direct, err := links.Via("fanout-1", "nats", "127.0.0.1:1")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:1", direct)
	one, err := links.Via("gateway-1", "fanout-2", "127.0.0.1:1")
	require.NoError(t, err)
	other, err := links.Via("gateway-2", "fanout-2", "127.0.0.1:1")
	require.NoError(t, err)
	require.NotEqual(t, "127.0.0.1:1", one)
	require.NotEqual(t, one, other)
}
