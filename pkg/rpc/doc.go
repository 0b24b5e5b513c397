// Package rpc makes the gRPC servers and clients of the cluster.
//
// It owns what both ends must agree on (message size, keepalive, health, deadlines, the in-process
// transport) and the question which replicas of a service can be called now (Peers). It knows no
// service and no message. In-process connections are real gRPC over memory, so that deadlines,
// metadata, interceptors and errors are the same in one process and in many.
//
// Ownership: a Server's Run goroutine owns its listeners. In Peers, one goroutine per peer owns that
// peer's connection and decides whether it is alive; the Run goroutine owns the set; readers get
// immutable snapshots and never block.
package rpc

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// MaxMessageBytes bounds every gRPC message in both directions. Whoever batches stays below it.
const MaxMessageBytes = 8 << 20

// BatchBytes is how much a sender puts into one message if it may as well send several: encoded, with what holds it together, such a message
// takes a buffer of 32 KiB on both sides. Anything larger takes one of 1 MiB (the sizes of grpc-go's buffers), which is cleared for each
// message and soon most of what there is to collect. The receiver also begins earlier.
const BatchBytes = 30 << 10

const (
	// Flow control windows are fixed, so that the memory of a stalled stream is known.
	streamWindow = 1 << 20
	connWindow   = 4 << 20
	maxStreams   = 10_000
	ioBuffer     = 64 << 10

	// The client pings an idle connection at the shortest interval that grpc-go allows. Peers does not
	// rely on it: it finds a frozen peer by health checks, which may be more frequent.
	clientKeepalive        = 10 * time.Second
	clientKeepaliveTimeout = 2 * time.Second
	// The server notices a client that vanished without a reset, and accepts far more frequent pings
	// than our own clients send.
	serverKeepalive        = 5 * time.Second
	serverKeepaliveTimeout = 5 * time.Second
	minClientPing          = 500 * time.Millisecond

	// A connection attempt that takes longer has met a dead or frozen host. Attempts follow each other
	// fast enough that a peer is back in use within about a second of its return.
	connectTimeout = time.Second
	backoffBase    = 50 * time.Millisecond
	backoffMax     = 400 * time.Millisecond

	// defaultCallTimeout is the deadline of a unary call whose context has none.
	defaultCallTimeout = 10 * time.Second
)

// Deps is what servers and clients take from their process. The zero value works.
type Deps struct {
	// Memory is the in-process transport for "mem:///name" targets and servers with a MemoryName.
	Memory *Memory
	// Log receives changes of peers and failed calls.
	Log *slog.Logger
	// MeterProvider and TracerProvider feed the otelgrpc stats handlers.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
}

// complete replaces what is nil.
func (d Deps) complete() Deps {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.MeterProvider == nil {
		d.MeterProvider = metricnoop.NewMeterProvider()
	}
	if d.TracerProvider == nil {
		d.TracerProvider = tracenoop.NewTracerProvider()
	}
	return d
}
