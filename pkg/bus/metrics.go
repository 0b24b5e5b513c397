package bus

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the instruments of one Bus.
type metrics struct {
	connects  metric.Int64Counter
	published metric.Int64Counter
	consumed  metric.Int64Counter
	gaps      metric.Int64Counter
}

var (
	outcomeAcked     = outcome("acked")
	outcomeDuplicate = outcome("duplicate")
	outcomeFailed    = outcome("failed")
)

func outcome(value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", value)))
}

func streamAttr(stream string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("stream", stream)))
}

func newMetrics(meter metric.Meter) (*metrics, error) {
	var m metrics
	var errs [4]error
	m.connects, errs[0] = meter.Int64Counter("apiary_bus_connects", metric.WithDescription("Connections made to NATS."))
	m.published, errs[1] = meter.Int64Counter("apiary_bus_published", metric.WithDescription("Messages published to a stream, by outcome."))
	m.consumed, errs[2] = meter.Int64Counter("apiary_bus_consumed", metric.WithDescription("Messages handed to a handler, by stream."))
	m.gaps, errs[3] = meter.Int64Counter("apiary_bus_gaps", metric.WithDescription("Times that a stream no longer held what a consumer wanted, by stream."))
	return &m, errors.Join(errs[:]...)
}
