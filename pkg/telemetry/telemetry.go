// Package telemetry makes the log, the meters and the tracers of a process, and flushes them when it
// ends.
//
// It owns the attribute names shared by all services, the log handler that adds trace and community
// to each line, the Prometheus registry behind /metrics, and the form in which a trace context
// travels with an event. It never decides what is logged. A Telemetry is built once in main and is
// safe for concurrent use; the only goroutines are those of the OpenTelemetry SDK, which Shutdown
// ends.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// Config of a process's telemetry.
type Config struct {
	Log   LogConfig   `embed:"" prefix:"log."`
	Trace TraceConfig `embed:"" prefix:"trace."`
}

// LogConfig selects what is logged and how.
type LogConfig struct {
	Level  slog.Level `help:"Least severe level that is logged: debug, info, warn or error." default:"info"`
	Format string     `help:"json for machines, text for people." default:"json" enum:"json,text"`
}

// TraceConfig says where spans go.
type TraceConfig struct {
	Endpoint string  `help:"OTLP/gRPC endpoint (http://host:4317; https for TLS). Empty switches tracing off." env:"APIARY_TRACE_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT"`
	Ratio    float64 `help:"Share of new traces that are sampled, 0 to 1. A trace that arrives sampled stays sampled." default:"0.01"`
}

// Validate reports values that cannot work.
func (c *TraceConfig) Validate() error {
	if c.Ratio < 0 || c.Ratio > 1 {
		return fmt.Errorf("ratio %g is not within 0 and 1", c.Ratio)
	}
	return nil
}

// Telemetry is what a process hands to its parts.
type Telemetry struct {
	// Log writes to the writer given to New.
	Log *slog.Logger
	// MeterProvider feeds Registry.
	MeterProvider metric.MeterProvider
	// TracerProvider exports to the configured endpoint, or drops everything.
	TracerProvider trace.TracerProvider
	// Registry holds the Go runtime's and the process's collectors besides our own instruments.
	Registry *prometheus.Registry

	shutdown []func(context.Context) error // run in reverse
}

// New builds the telemetry of one process. It opens no connection: the span exporter dials when it
// first has something to send.
func New(ctx context.Context, cfg Config, service, version string, w io.Writer) (*Telemetry, error) {
	t := &Telemetry{Log: NewLogger(cfg.Log, service, version, w), Registry: prometheus.NewRegistry()}
	res := resource.NewSchemaless(attribute.String("service.name", service), attribute.String("service.version", version))
	if err := t.initMetrics(res); err != nil {
		return nil, err
	}
	if err := t.initTraces(ctx, cfg.Trace, res); err != nil {
		return nil, errors.Join(err, t.Shutdown(ctx))
	}
	return t, nil
}

func (t *Telemetry) initMetrics(res *resource.Resource) error {
	t.Registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(
			collectors.MetricsGC, collectors.MetricsMemory, collectors.MetricsScheduler)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	exporter, err := promexporter.New(promexporter.WithRegisterer(t.Registry), promexporter.WithoutScopeInfo())
	if err != nil {
		return fmt.Errorf("build metrics exporter: %w", err)
	}
	p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(res),
		sdkmetric.WithCardinalityLimit(cardinalityLimit))
	t.MeterProvider = p
	t.shutdown = append(t.shutdown, p.Shutdown)
	return nil
}

// cardinalityLimit bounds the attribute sets of one instrument; what is beyond goes to one overflow
// series.
const cardinalityLimit = 2000

func (t *Telemetry) initTraces(ctx context.Context, cfg TraceConfig, res *resource.Resource) error {
	if cfg.Endpoint == "" {
		t.TracerProvider = tracenoop.NewTracerProvider()
		return nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(cfg.Endpoint))
	if err != nil {
		return fmt.Errorf("build trace exporter: %w", err)
	}
	p := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(res),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.Ratio))),
	)
	t.TracerProvider = p
	t.shutdown = append(t.shutdown, p.Shutdown)
	return nil
}

// Meter returns the meter of a service; its name is not part of the metric names.
func (t *Telemetry) Meter(name string) metric.Meter { return t.MeterProvider.Meter(name) }

// Tracer returns the tracer of a service.
func (t *Telemetry) Tracer(name string) trace.Tracer { return t.TracerProvider.Tracer(name) }

// Handler serves the registry in the Prometheus formats.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.Registry, promhttp.HandlerOpts{
		Registry: t.Registry, MaxRequestsInFlight: 4, EnableOpenMetrics: true,
	})
}

// Shutdown sends what is buffered and ends the SDK's goroutines, by ctx's deadline. It is the last
// thing a process does.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	for i := len(t.shutdown) - 1; i >= 0; i-- {
		errs = append(errs, t.shutdown[i](ctx))
	}
	t.shutdown = nil
	return errors.Join(errs...)
}

// Propagator is the W3C trace context, the only format that Apiary speaks.
func Propagator() propagation.TextMapPropagator { return propagation.TraceContext{} }
