package cluster

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// trace gives the cluster a tracer that samples everything and keeps it in memory.
func (c *Cluster) trace(tb testing.TB) {
	tb.Helper()
	c.spans = tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(c.spans), sdktrace.WithSampler(sdktrace.AlwaysSample()))
	c.tracers = provider
	tb.Cleanup(func() { require.NoError(tb, provider.Shutdown(context.WithoutCancel(tb.Context()))) })
}

// AwaitTrace waits for a trace that holds spans of all these names, and returns the names of all its spans,
// sorted.
func (c *Cluster) AwaitTrace(tb testing.TB, spans ...string) []string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for {
		traces := map[string][]string{}
		for _, span := range c.spans.GetSpans() {
			id := span.SpanContext.TraceID().String()
			traces[id] = append(traces[id], span.Name)
		}
		for _, names := range traces {
			if !slices.ContainsFunc(spans, func(name string) bool { return !slices.Contains(names, name) }) {
				slices.Sort(names)
				return names
			}
		}
		pause(ctx) // spans end after what they measure has been seen
		require.NoError(tb, ctx.Err(), "no trace has %v; there are %v", spans, traces)
	}
}
