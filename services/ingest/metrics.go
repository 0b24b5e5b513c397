package ingest

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/outbox"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

var (
	secondsBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	batchBuckets   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

// Classes of kinds, a closed set for labels.
const (
	classRegular = iota
	classReplaceable
	classAddressable
	classEphemeral
	classUnknown // the event could not be read
	classes
)

var classNames = [classes]string{"regular", "replaceable", "addressable", "ephemeral", "unknown"}

func classOf(c *policy.Candidate) int {
	if c == nil {
		return classUnknown
	}
	return classOfKind(c.Event.Kind)
}

func classOfKind(k nostr.Kind) int {
	switch {
	case k.IsReplaceable():
		return classReplaceable
	case k.IsAddressable():
		return classAddressable
	case k.IsEphemeral():
		return classEphemeral
	}
	return classRegular
}

// metrics are the instruments of ingest. Attribute sets are made once.
type metrics struct {
	events    metric.Int64Counter
	submit    metric.Float64Histogram
	verify    metric.Float64Histogram
	commit    metric.Float64Histogram
	batch     metric.Int64Histogram
	publish   metric.Float64Histogram
	left      metric.Int64Counter
	expired   metric.Int64Counter
	reminders metric.Int64Counter
	drained   metric.Int64Counter
	streams   metric.Int64UpDownCounter

	verdicts [][classes]metric.MeasurementOption // by reason
	outcomes [2]metric.MeasurementOption         // ok, failed
}

func newMetrics(m metric.Meter) (*metrics, error) {
	var errs []error
	counter := func(name, help string) metric.Int64Counter {
		c, err := m.Int64Counter("apiary_ingest_"+name, metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, help string) metric.Float64Histogram {
		h, err := m.Float64Histogram("apiary_ingest_"+name, metric.WithDescription(help), metric.WithUnit("s"),
			metric.WithExplicitBucketBoundaries(secondsBuckets...))
		errs = append(errs, err)
		return h
	}
	x := &metrics{
		events:    counter("events", "Submissions answered, by reason (accepted, duplicate, invalid, ...) and class of kind."),
		submit:    seconds("submission", "Time from reading a submission to its verdict."),
		verify:    seconds("verify", "Time to decode and verify one event."),
		commit:    seconds("commit", "Time of one transaction of a batch, by outcome."),
		publish:   seconds("publish", "Time from a commit to the acknowledgement of its last message."),
		left:      counter("outbox_left", "Outbox rows left to the sweeper because they could not be published at once."),
		expired:   counter("expired_events", "Events removed because they had expired (NIP-40)."),
		reminders: counter("reminders", "Reminders passed on because their time had come (NIP-ER)."),
		drained:   counter("drained_rows", "Rows removed because their community was deleted."),
	}
	var err error
	x.batch, err = m.Int64Histogram("apiary_ingest_batch_events", metric.WithDescription("Events in one transaction."),
		metric.WithExplicitBucketBoundaries(batchBuckets...))
	errs = append(errs, err)
	x.streams, err = m.Int64UpDownCounter("apiary_ingest_streams", metric.WithDescription("Publish streams that are open."))
	errs = append(errs, err)

	x.verdicts = make([][classes]metric.MeasurementOption, len(commonv1.Reason_name))
	for reason := range x.verdicts {
		for class, name := range classNames {
			x.verdicts[reason][class] = metric.WithAttributeSet(attribute.NewSet(
				attribute.String("reason", reasonLabel(fault.Reason(reason))), attribute.String("kind_class", name)))
		}
	}
	for i, name := range []string{"ok", "failed"} {
		x.outcomes[i] = metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", name)))
	}
	return x, errors.Join(errs...)
}

// watch registers the gauges that are read when somebody asks.
func (x *metrics) watch(m metric.Meter, publisher *outbox.Publisher, sweeper *outbox.Sweeper) error {
	var errs []error
	gauge := func(name, help, unit string, read func() int64) {
		_, err := m.Int64ObservableGauge("apiary_ingest_"+name, metric.WithDescription(help), metric.WithUnit(unit),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				o.Observe(read())
				return nil
			}))
		errs = append(errs, err)
	}
	gauge("outbox_pending", "Outbox rows of this replica on their way to JetStream.", "", func() int64 {
		return int64(publisher.Pending())
	})
	gauge("outbox_backlog", "Outbox rows of the whole cluster, at most 10,000.", "", func() int64 {
		rows, _ := sweeper.Backlog()
		return rows
	})
	gauge("outbox_stuck", "Overdue outbox rows that could not be published when this replica last went through all of them.", "", sweeper.Stuck)
	gauge("outbox_oldest", "Age of the oldest outbox row.", "s", func() int64 {
		_, oldest := sweeper.Backlog()
		return int64(oldest / time.Second)
	})
	return errors.Join(errs...)
}

func (x *metrics) answered(ctx context.Context, class int, v policy.Verdict, took time.Duration) {
	if reason := int(v.Reason); reason >= 0 && reason < len(x.verdicts) {
		x.events.Add(ctx, 1, x.verdicts[reason][class])
	}
	x.submit.Record(ctx, took.Seconds())
}

func (x *metrics) committed(ctx context.Context, events int, took time.Duration, failed bool) {
	outcome := 0
	if failed {
		outcome = 1
	}
	x.commit.Record(ctx, took.Seconds(), x.outcomes[outcome])
	x.batch.Record(ctx, int64(events))
}

// reasonLabel is "accepted", "duplicate", "rate_limited" and so on.
func reasonLabel(r fault.Reason) string {
	if r == fault.Accepted {
		return "accepted"
	}
	return strings.ToLower(strings.TrimPrefix(r.String(), "REASON_"))
}
