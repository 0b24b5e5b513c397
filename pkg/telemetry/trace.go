package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const traceParentKey = "traceparent"

// TraceParent returns the W3C traceparent of the span in ctx, and the empty string when there is none
// or it is not sampled: an event then costs no bytes for tracing on its way.
func TraceParent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	Propagator().Inject(ctx, carrier)
	return carrier[traceParentKey]
}

// WithTraceParent returns a context whose parent span is the one that s names. A malformed or empty s
// returns ctx unchanged.
func WithTraceParent(ctx context.Context, s string) context.Context {
	if s == "" {
		return ctx
	}
	return Propagator().Extract(ctx, propagation.MapCarrier{traceParentKey: s})
}

// Link returns a link to the span that the traceparent s names, for work that many such spans cause
// together or that one span causes thousands of times (a delivery). It reports false when s names
// none. Nothing of ctx goes into the link.
func Link(ctx context.Context, s string) (trace.Link, bool) {
	if s == "" {
		return trace.Link{}, false
	}
	// Without ctx's own span, a malformed s cannot be mistaken for it.
	sc := trace.SpanContextFromContext(WithTraceParent(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), s))
	return trace.Link{SpanContext: sc}, sc.IsValid()
}
