package partition

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/apiary-relay/apiary/pkg/telemetry"
)

// Why something was not delivered; the values of the reason attribute.
const (
	dropOverflow  = "overflow"  // the gateway's queue was full
	dropHold      = "hold"      // too much came while the gateway's replay was under way
	dropUndecided = "undecided" // search did not answer in time
	dropDenied    = "denied"    // not allowed, or not a party
	dropRepeat    = "repeat"    // published again
	dropMalformed = "malformed" // cannot be read; a fault of the publisher
	dropGap       = "gap"       // left the stream before it was consumed
	dropBus       = "bus"       // consumption ended with an error
	dropUnopened  = "unopened"  // the streams were not reachable in time
	dropReplay    = "replay"    // a replay failed
)

// matchBuckets are boundaries in seconds: a match is microseconds, a hold is seconds.
var matchBuckets = []float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 5e-3, 2.5e-2, .1, 1, 10}

// Metrics are the instruments of a node's partitions. They are safe for concurrent use.
type Metrics struct {
	envelopes metric.Int64Counter
	matched   metric.Int64Counter
	delivered metric.Int64Counter
	messages  metric.Int64Counter
	replayed  metric.Int64Counter
	asked     metric.Int64Counter
	dropped   metric.Int64Counter
	match     metric.Float64Histogram
	hold      metric.Float64Histogram
	reasons   map[string]metric.MeasurementOption
}

// NewMetrics makes the instruments.
func NewMetrics(m metric.Meter) (*Metrics, error) {
	var errs []error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	histogram := func(name, description string, buckets []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return h
	}
	x := &Metrics{
		envelopes: counter("apiary_fanout_envelopes", "", "Envelopes consumed."),
		matched:   counter("apiary_fanout_matched", "", "Subscriptions that an envelope matched, before access."),
		delivered: counter("apiary_fanout_delivered", "", "Subscriptions that an envelope was queued for."),
		messages:  counter("apiary_fanout_messages", "", "Deliveries queued, one per envelope and gateway."),
		replayed:  counter("apiary_fanout_replayed", "", "Subscriptions that were resumed by a replay."),
		asked:     counter("apiary_fanout_access_checks", "", "Questions to search about access."),
		dropped:   counter("apiary_fanout_dropped", "", "Deliveries or subscriptions not served, by reason."),
		match:     histogram("apiary_fanout_match", "Time to match one envelope.", matchBuckets),
		hold:      histogram("apiary_fanout_access_hold", "Time an envelope waited for an access decision.", telemetry.ServiceBuckets),
		reasons:   make(map[string]metric.MeasurementOption),
	}
	for _, r := range []string{
		dropOverflow, dropHold, dropUndecided, dropDenied, dropRepeat, dropMalformed, dropGap, dropBus, dropUnopened, dropReplay,
	} {
		x.reasons[r] = metric.WithAttributeSet(attribute.NewSet(attribute.String(telemetry.KeyReason, r)))
	}
	return x, errors.Join(errs...)
}

func (x *Metrics) drop(ctx context.Context, reason string, n int) {
	if n > 0 {
		x.dropped.Add(ctx, int64(n), x.reasons[reason])
	}
}
