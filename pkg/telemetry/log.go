package telemetry

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/apiary-relay/apiary/pkg/tenant"
)

// NewLogger returns a logger that writes to w and adds service and version to every line, and the
// trace, span and community of the context to those logged with one.
func NewLogger(cfg LogConfig, service, version string, w io.Writer) *slog.Logger {
	var h slog.Handler = slog.NewJSONHandler(w, &slog.HandlerOptions{Level: cfg.Level, ReplaceAttr: durationsInSeconds})
	if cfg.Format == "text" {
		h = slog.NewTextHandler(w, &slog.HandlerOptions{Level: cfg.Level})
	}
	return slog.New(contextHandler{h}).With(slog.String(KeyService, service), slog.String(KeyVersion, version))
}

// durationsInSeconds makes durations in JSON what they are in metrics; slog writes nanoseconds.
func durationsInSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}

// contextHandler adds what a context knows of a line. It has no state of its own.
type contextHandler struct{ next slog.Handler }

func (h contextHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.next.Enabled(ctx, l)
}

func (h contextHandler) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String(KeyTraceID, sc.TraceID().String()), slog.String(KeySpanID, sc.SpanID().String()))
	}
	if id, ok := tenant.From(ctx); ok {
		r.AddAttrs(tenant.Attr(id))
	}
	return h.next.Handle(ctx, r)
}

func (h contextHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextHandler{h.next.WithAttrs(attrs)}
}

func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.next.WithGroup(name)}
}
