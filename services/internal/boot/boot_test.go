package boot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buffer is a stream that several goroutines may use.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type settings struct {
	Rooms int `help:"Rooms." default:"3"`
}

func (s *settings) Validate() error {
	if s.Rooms < 0 {
		return errors.New("rooms is negative")
	}
	return nil
}

func (s *settings) Warnings() []string {
	if s.Rooms > 9 {
		return []string{"rooms is large"}
	}
	return nil
}

// start runs a program as Main does and returns its exit code and streams.
func start(t *testing.T, build Build, args ...string) (code int, out, logs string) {
	t.Helper()
	var stdout, stderr buffer
	b, cfg := &base{}, &settings{}
	args = append([]string{"--admin.listen=127.0.0.1:0"}, args...)
	code = run("hive", "A test.", []any{cfg, b}, args, Streams{&stdout, &stderr}, mainRun("hive", b, build))
	return code, stdout.String(), stderr.String()
}

func never(t *testing.T) Build {
	t.Helper()
	return func(*Env) (lifecycle.Service, error) {
		t.Error("built")
		return nil, nil //nolint:nilnil // not reached
	}
}

// signalled is a service that sends the process a signal once everything is ready, and notes what it
// sees on its way out.
type signalled struct {
	env   *Env
	notes []string
}

func (s *signalled) Run(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !s.env.Health.Ready() {
		<-tick.C
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		return err
	}
	<-ctx.Done()
	s.notes = append(s.notes, "stopped")
	return nil
}

func (s *signalled) Drain(context.Context) error {
	s.notes = append(s.notes, "drain while "+s.env.Health.State())
	return nil
}

func TestOrderlyStop(t *testing.T) {
	s := &signalled{}
	code, out, logs := start(t, func(e *Env) (lifecycle.Service, error) {
		s.env = e
		require.NotNil(t, e.Meter)
		require.NotNil(t, e.Tracer)
		require.NotNil(t, e.RPC().MeterProvider)
		return s, nil
	}, "--rooms=10")
	require.Equal(t, 0, code, logs)
	require.Empty(t, out)
	require.Equal(t, []string{"drain while draining", "stopped"}, s.notes)

	var messages []string
	for line := range bytes.Lines([]byte(logs)) {
		var m map[string]any
		require.NoError(t, json.Unmarshal(line, &m))
		require.Equal(t, "hive", m["service"])
		messages = append(messages, m["msg"].(string))
	}
	require.Equal(t, []string{"suspicious configuration", "starting", "admin listening", "ready", "draining", "drained", "stopped"}, messages)
}

func TestExitCodes(t *testing.T) {
	broken := errors.New("disk is gone")
	failing := func(*Env) (lifecycle.Service, error) {
		return lifecycle.Task(func(context.Context) error { return broken }), nil
	}
	refusing := func(*Env) (lifecycle.Service, error) { return nil, broken }
	for _, c := range []struct {
		name  string
		build Build
		args  []string
		code  int
		text  string
	}{
		{"failure", failing, nil, exitFailure, "disk is gone"},
		{"constructor refuses", refusing, nil, exitConfig, "disk is gone"},
		{"unknown flag", never(t), []string{"--romms=1"}, exitConfig, "romms"},
		{"invalid value", never(t), []string{"--rooms=-1"}, exitConfig, "rooms is negative"},
		{"invalid process setting", never(t), []string{"--drain.timeout=0s"}, exitConfig, "drain: "},
		{"bad endpoint", never(t), []string{"--trace.ratio=2"}, exitConfig, "trace: "},
		{"nobody to ask", never(t), []string{"--healthcheck"}, exitFailure, "probe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, logs := start(t, c.build, c.args...)
			require.Equal(t, c.code, code, logs)
			require.Contains(t, logs, c.text)
		})
	}
}

func TestPrinting(t *testing.T) {
	for _, c := range []struct{ flag, want string }{
		{"--help", "--rooms"},
		{"--version", "hive "},
		{"--print-config", "rooms: 3 # default"},
		{"--print-changed", "listen: 127.0.0.1:0 # flag --admin.listen"},
		{"--print-doc", "| `--rooms` | `APIARY_ROOMS` | `3` | Rooms. |"},
	} {
		code, out, logs := start(t, never(t), c.flag)
		require.Equal(t, 0, code, logs)
		require.Contains(t, out, c.want)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	atOnce := make(chan struct{})
	ctx, stop := withSignals(t.Context(), func() { close(atOnce) })
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	<-ctx.Done()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-atOnce
	stop()
}

func TestStopWithoutSignal(t *testing.T) {
	ctx, stop := withSignals(t.Context(), func() { t.Error("no signal was sent") })
	stop()
	require.Error(t, ctx.Err())
}

func TestChangedSettings(t *testing.T) {
	loaded, err := config.Parse("hive", &settings{}, []string{"--rooms=4"}, config.Options{Environ: []string{}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"rooms": "4"}, changed(loaded))
}
