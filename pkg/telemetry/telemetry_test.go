package telemetry_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/pkg/tenant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sampledSpan(t *testing.T) (context.Context, trace.Span) {
	t.Helper()
	p := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()))
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.WithoutCancel(t.Context()))) })
	ctx, span := p.Tracer("x").Start(t.Context(), "x")
	t.Cleanup(func() { span.End() })
	return ctx, span
}

func TestTraceParentRoundTrip(t *testing.T) {
	ctx, span := sampledSpan(t)
	s := telemetry.TraceParent(ctx)
	require.Regexp(t, `^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`, s)

	there := trace.SpanContextFromContext(telemetry.WithTraceParent(t.Context(), s))
	require.Equal(t, span.SpanContext().TraceID(), there.TraceID())
	require.Equal(t, span.SpanContext().SpanID(), there.SpanID())
	require.True(t, there.IsSampled())
	require.True(t, there.IsRemote())
	require.Equal(t, s, telemetry.TraceParent(telemetry.WithTraceParent(t.Context(), s)))

	link, ok := telemetry.Link(t.Context(), s)
	require.True(t, ok)
	require.Equal(t, span.SpanContext().TraceID(), link.SpanContext.TraceID())
}

func TestTraceParentOfNothing(t *testing.T) {
	require.Empty(t, telemetry.TraceParent(t.Context()))
	p := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	ctx, span := p.Tracer("x").Start(t.Context(), "x")
	defer span.End()
	require.Empty(t, telemetry.TraceParent(ctx), "what is not sampled costs nothing")

	own, ownSpan := sampledSpan(t)
	for _, s := range []string{"", "x", "00-00000000000000000000000000000000-0000000000000000-01", strings.Repeat("a", 10_000)} {
		require.False(t, trace.SpanContextFromContext(telemetry.WithTraceParent(t.Context(), s)).IsValid())
		require.Equal(t, ownSpan.SpanContext(), trace.SpanContextFromContext(telemetry.WithTraceParent(own, s)))
		_, ok := telemetry.Link(own, s)
		require.False(t, ok, "%.20q", s)
	}
}

func TestLogLinesSayWhere(t *testing.T) {
	var out strings.Builder
	log := telemetry.NewLogger(telemetry.LogConfig{Level: slog.LevelInfo, Format: "json"}, "search", "v1", &out)
	ctx, span := sampledSpan(t)
	log.With(slog.String("part", "plan"), slog.Duration("took", 1500*time.Millisecond)).WithGroup("g").LogAttrs(tenant.With(ctx, 7), slog.LevelInfo, "hello", slog.Int("n", 1))
	log.LogAttrs(ctx, slog.LevelDebug, "not this")
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(out.String()), &line))
	require.Equal(t, "search", line["service"])
	require.Equal(t, "v1", line["version"])
	require.Equal(t, "plan", line["part"])
	require.InDelta(t, 1.5, line["took"], 0)
	require.Equal(t, map[string]any{
		"n": 1., "community": 7., "trace_id": span.SpanContext().TraceID().String(), "span_id": span.SpanContext().SpanID().String(),
	}, line["g"])

	out.Reset()
	telemetry.NewLogger(telemetry.LogConfig{Format: "text"}, "search", "v1", &out).LogAttrs(t.Context(), slog.LevelWarn, "hello")
	require.Contains(t, out.String(), "level=WARN msg=hello service=search version=v1\n")
}

func TestSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := telemetry.Sampled(slog.New(slog.NewTextHandler(&out, nil)), time.Second)
		derived := log.With(slog.String("a", "b")).WithGroup("g")
		for range 5 {
			log.LogAttrs(t.Context(), slog.LevelWarn, "down")
			derived.LogAttrs(t.Context(), slog.LevelWarn, "down")
		}
		log.LogAttrs(t.Context(), slog.LevelError, "down")
		log.LogAttrs(t.Context(), slog.LevelWarn, "other")
		log.LogAttrs(t.Context(), slog.LevelDebug, "down")
		require.Equal(t, 3, strings.Count(out.String(), "\n"), out.String())
		require.NotContains(t, out.String(), "suppressed")

		later, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-later.Done()
		out.Reset()
		log.LogAttrs(t.Context(), slog.LevelWarn, "down")
		require.Contains(t, out.String(), "suppressed=9")
		log.LogAttrs(t.Context(), slog.LevelWarn, "down")
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
	})
}

func TestSampledMemoryIsBounded(t *testing.T) {
	var out strings.Builder
	log := telemetry.Sampled(slog.New(slog.NewTextHandler(&out, nil)), time.Hour)
	for i := range 1_500 {
		log.LogAttrs(t.Context(), slog.Level(i), "x")
	}
	out.Reset()
	for range 3 {
		log.LogAttrs(t.Context(), slog.Level(1_400), "x")
		log.LogAttrs(t.Context(), slog.Level(10), "x")
	}
	require.Equal(t, 3, strings.Count(out.String(), "\n"), "lines beyond the limit pass")
}

func TestMetricsAreServed(t *testing.T) {
	var out strings.Builder
	tel, err := telemetry.New(t.Context(), telemetry.Config{}, "search", "v1", &out)
	require.NoError(t, err)
	count, err := tel.Meter("search").Int64Counter("apiary_search_queries_total")
	require.NoError(t, err)
	count.Add(t.Context(), 3)
	seconds, err := tel.Meter("search").Float64Histogram("apiary_search_query_duration_seconds", metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(telemetry.ServiceBuckets...))
	require.NoError(t, err)
	seconds.Record(t.Context(), .003)

	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "\napiary_search_queries_total 3\n")
	require.Contains(t, w.Body.String(), "\napiary_search_query_duration_seconds_bucket{le=\"0.005\"} 1\n")
	require.Contains(t, w.Body.String(), "\ngo_goroutines ")
	require.Contains(t, w.Body.String(), "service_name=\"search\"")
	require.NoError(t, tel.Shutdown(t.Context()))
	require.NoError(t, tel.Shutdown(t.Context()), "a second time does nothing")
}

func TestTracing(t *testing.T) {
	off, err := telemetry.New(t.Context(), telemetry.Config{}, "search", "v1", &strings.Builder{})
	require.NoError(t, err)
	_, span := off.Tracer("x").Start(t.Context(), "x")
	span.End()
	require.False(t, span.IsRecording())
	require.NoError(t, off.Shutdown(t.Context()))

	on, err := telemetry.New(t.Context(), telemetry.Config{Trace: telemetry.TraceConfig{Endpoint: "http://127.0.0.1:1", Ratio: 1}}, "search", "v1", &strings.Builder{})
	require.NoError(t, err)
	_, live := on.Tracer("x").Start(t.Context(), "x")
	require.True(t, live.IsRecording(), "spans are made although nobody takes them")
	require.NoError(t, on.Shutdown(t.Context()))
	live.End()

	require.Error(t, (&telemetry.TraceConfig{Ratio: 1.1}).Validate())
	require.NoError(t, (&telemetry.TraceConfig{Ratio: 1}).Validate())
}
