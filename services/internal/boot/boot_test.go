package boot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/admin"
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

func TestBadSettingsAreNamed(t *testing.T) {
	for want, args := range map[string][]string{
		`--admin.listen ($APIARY_ADMIN_LISTEN): "1:2:3" is not HOST:PORT: too many colons in address`: {"--admin.listen=1:2:3"},
		"start-timeout must be positive, not -1s":                                                     {"--start-timeout=-1s"},
		"drain: delay must not be negative, as -2m is":                                                {"--drain.delay=-2m"},
		"drain: timeout must be positive, not 0s":                                                     {"--drain.timeout=0s"},
		"trace: ratio 7 is not within 0 and 1":                                                        {"--trace.ratio=7"},
		`--start-timeout: expected duration but got "x": `:                                            {"--start-timeout=x"},
	} {
		code, _, logs := start(t, never(t), args...)
		require.Equal(t, 2, code)
		require.Contains(t, logs, "hive: "+want)
		require.Equal(t, 1, strings.Count(logs, "hive: "), logs)
	}
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
			require.Equal(t, 1, strings.Count(logs, c.text), "a failure is told once: %s", logs)
			require.NotContains(t, logs, "bad configuration", "what is bad says more")
		})
	}
}

// A service's failure is for those who collect logs: everything it writes is JSON.
func TestFailureIsLogged(t *testing.T) {
	broken := errors.New("disk is gone")
	var env *Env
	code, _, logs := start(t, func(e *Env) (lifecycle.Service, error) {
		env = e
		return lifecycle.Func(func(context.Context, func()) error {
			require.NotZero(t, e.AdminAddr().(*net.TCPAddr).Port, "port 0 was asked for")
			return broken
		}), nil
	})
	require.Equal(t, exitFailure, code)
	require.NotNil(t, env)
	for line := range bytes.Lines([]byte(logs)) {
		require.True(t, json.Valid(line), string(line))
	}
}

// What a person runs says it in text, without the log's words.
func TestQuietFailureIsPrinted(t *testing.T) {
	var stderr buffer
	code := run("hive", "A test.", []any{&settings{}}, nil, Streams{&stderr, &stderr}, func(ctx context.Context, loaded *config.Loaded, std Streams) error {
		cfg := config.MustDefault(Config{QuietFailure: true, Admin: admin.Config{Listen: "127.0.0.1:0"}})
		return Serve(ctx, "hive", cfg, loaded, std.Err, func(*Env) (lifecycle.Service, error) {
			return lifecycle.Task(func(context.Context) error { return errors.New("disk is gone") }), nil
		})
	})
	require.Equal(t, exitFailure, code)
	require.Equal(t, "hive: disk is gone", lastLine(stderr.String()))
	require.Equal(t, 1, strings.Count(stderr.String(), "disk is gone"))
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestAMistakeIsToldWithAWayOn(t *testing.T) {
	code, _, logs := start(t, never(t), "--romms=1")
	require.Equal(t, exitConfig, code)
	require.Equal(t, "hive: unknown flag --romms, did you mean \"--rooms\"?\nRun \"hive --help\" to see what there is.\n", logs)
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
	for _, first := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		atOnce := make(chan struct{})
		ctx, stop := withSignals(t.Context(), func() { close(atOnce) })
		require.NoError(t, syscall.Kill(os.Getpid(), first))
		<-ctx.Done()
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		<-atOnce
		stop()
	}
}

// A terminal that closes says so twice: that must not cut the stop short.
func TestSecondHangupChangesNothing(t *testing.T) {
	hangups := make(chan os.Signal, 2) // gets its copy after withSignals has got one
	ctx, stop := withSignals(t.Context(), func() { t.Error("ended at once") })
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for range 2 {
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		<-hangups
	}
	<-ctx.Done()
	stop()
}

// Under nohup a terminal that is closed ends nothing.
func TestIgnoredHangupStaysIgnored(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer func() { // Reset would not make Ignored forget
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		signal.Stop(hangups)
	}()
	ctx, stop := withSignals(t.Context(), func() { t.Error("no second signal was sent") })
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	<-ctx.Done()
	stop()
}

// A reader of the log that is gone does not kill the process.
func TestABrokenPipeIsSurvived(t *testing.T) {
	start(t, func(*Env) (lifecycle.Service, error) { return nil, errors.New("no") })
	require.True(t, signal.Ignored(syscall.SIGPIPE))
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
