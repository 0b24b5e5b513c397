package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = slog.New(slog.DiscardHandler)

func newHealth(t *testing.T, log *slog.Logger) *admin.Health {
	t.Helper()
	h, err := admin.NewHealth(log, noop.Meter{})
	require.NoError(t, err)
	return h
}

func get(t *testing.T, s *admin.Server, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

func TestProbesFollowTheState(t *testing.T) {
	h := newHealth(t, discard)
	s := admin.NewServer(admin.Config{}, admin.Deps{Log: discard, Health: h})
	state := func(wantCode int, want string) {
		t.Helper()
		code, body := get(t, s, "/readyz")
		require.Equal(t, wantCode, code)
		require.Equal(t, want+"\n", body)
		code, _ = get(t, s, "/healthz")
		require.Equal(t, http.StatusOK, code)
	}
	state(http.StatusServiceUnavailable, "starting")
	h.SetReady()
	state(http.StatusOK, "ready")
	select {
	case <-h.Draining():
		require.Fail(t, "not draining yet")
	default:
	}
	h.SetDraining()
	h.SetDraining()
	<-h.Draining()
	state(http.StatusServiceUnavailable, "draining")
	h.SetReady()
	state(http.StatusServiceUnavailable, "draining")
}

// A dependency's outage is reported and changes nothing else.
func TestDependencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		h := newHealth(t, slog.New(slog.NewTextHandler(&logged, nil)))
		var down atomic.Bool
		h.AddCheck("postgres", func(context.Context) error {
			if down.Load() {
				return errors.New("connection refused")
			}
			return nil
		})
		h.AddCheck("nats", func(ctx context.Context) error { // hangs
			<-ctx.Done()
			return ctx.Err()
		})
		h.SetReady()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		begin := time.Now()
		go func() { done <- h.Run(ctx, func() {}) }()
		synctest.Wait()
		require.Equal(t, []admin.Dependency{{Name: "nats"}, {Name: "postgres", Up: true, Since: begin}}, h.Dependencies())

		down.Store(true)
		wait(t.Context(), 9*time.Second) // two rounds
		require.Equal(t, []admin.Dependency{
			{Name: "nats", Since: begin.Add(3 * time.Second), Error: context.DeadlineExceeded.Error()},
			{Name: "postgres", Since: begin.Add(5 * time.Second), Error: "connection refused"},
		}, h.Dependencies())
		require.True(t, h.Ready())

		down.Store(false)
		wait(t.Context(), 5*time.Second)
		require.True(t, h.Dependencies()[1].Up)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, 2, strings.Count(logged.String(), "dependency is down"), "only changes are logged")
		require.Equal(t, 2, strings.Count(logged.String(), "dependency is up"))
	})
}

// On the way out the process closes what it depends on, which needs nobody's attention.
func TestDependenciesThatAreLeftAreNoWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		h := newHealth(t, slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn})))
		var closed atomic.Bool
		h.AddCheck("postgres", func(context.Context) error {
			if closed.Load() {
				return errors.New("closed pool")
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx, func() {}) }()
		synctest.Wait()
		h.SetDraining()
		closed.Store(true)
		wait(t.Context(), 9*time.Second)
		cancel()
		require.NoError(t, <-done)
		require.False(t, h.Dependencies()[0].Up)
		require.Empty(t, logged.String())
	})
}

func wait(ctx context.Context, d time.Duration) {
	timer, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-timer.Done()
}

func TestMetric(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	h, err := admin.NewHealth(discard, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("x"))
	require.NoError(t, err)
	h.AddCheck("postgres", func(context.Context) error { return nil })
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	points := got.ScopeMetrics[0].Metrics[0].Data.(metricdata.Gauge[int64]).DataPoints
	require.Len(t, points, 1)
	require.Equal(t, int64(0), points[0].Value)
}

func TestStatusz(t *testing.T) {
	h := newHealth(t, discard)
	h.AddCheck("postgres", func(context.Context) error { return nil })
	s := admin.NewServer(admin.Config{}, admin.Deps{Log: discard, Health: h, Status: func() any { return map[string]int{"partitions": 64} }})
	code, body := get(t, s, "/statusz")
	require.Equal(t, http.StatusOK, code)
	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	require.Equal(t, "starting", doc["state"])
	require.NotEmpty(t, doc["version"])
	require.Equal(t, map[string]any{"partitions": 64.}, doc["process"])
	require.Equal(t, []any{map[string]any{"name": "postgres", "up": false}}, doc["dependencies"])

	s = admin.NewServer(admin.Config{}, admin.Deps{Log: discard, Health: h, Status: func() any { return func() {} }})
	code, _ = get(t, s, "/statusz")
	require.Equal(t, http.StatusInternalServerError, code)
}

func TestPaths(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "m 1\n") })
	s := admin.NewServer(admin.Config{}, admin.Deps{Log: discard, Health: newHealth(t, discard), Metrics: metrics})
	code, body := get(t, s, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "m 1\n", body)
	for path, want := range map[string]int{"/debug/pprof/": 200, "/debug/pprof/heap": 200, "/debug/pprof/cmdline": 200, "/": 404} {
		code, _ := get(t, s, path)
		require.Equal(t, want, code, path)
	}
}

func TestRunAndProbe(t *testing.T) {
	h := newHealth(t, discard)
	s := admin.NewServer(admin.Config{Listen: "127.0.0.1:0"}, admin.Deps{Log: discard, Health: h})
	ctx, cancel := context.WithCancel(t.Context())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- s.Run(ctx, func() { close(ready) }) }()
	<-ready
	addr := s.Addr().String()
	require.NoError(t, admin.Probe(t.Context(), addr, "/healthz"))
	require.ErrorIs(t, admin.Probe(t.Context(), addr, "/readyz"), admin.ErrUnhealthy)
	h.SetReady()
	require.NoError(t, admin.Probe(t.Context(), addr, "/readyz"))

	second := admin.NewServer(admin.Config{Listen: addr}, admin.Deps{Log: discard, Health: h})
	require.ErrorContains(t, second.Run(t.Context(), func() {}), "listen for administration")
	cancel()
	require.NoError(t, <-done)
	require.Error(t, admin.Probe(t.Context(), addr, "/healthz"))
	require.Error(t, admin.Probe(t.Context(), "%", "/healthz"))
}

func TestSwitchedOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := admin.NewServer(admin.Config{}, admin.Deps{Log: discard, Health: newHealth(t, discard)})
	require.NoError(t, s.Run(ctx, cancel))
	require.Nil(t, s.Addr())
}
