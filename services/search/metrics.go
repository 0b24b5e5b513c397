package search

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/search/internal/plan"
)

// The calls, as metrics name them.
const (
	callQuery      = "query"
	callCount      = "count"
	callResolve    = "resolve"
	callAccess     = "access"
	callModeration = "moderation"
	callList       = "list"
)

// rowBuckets are boundaries for events per filter.
var rowBuckets = []float64{0, 1, 10, 50, 100, 250, 500, 1000, 10_000}

// metrics are the service's instruments, with every attribute set made beforehand: drivers, calls and
// reasons are closed sets.
type metrics struct {
	requests  metric.Float64Histogram
	statement metric.Float64Histogram
	count     metric.Float64Histogram
	rows      metric.Int64Histogram
	drivers   map[plan.Driver]metric.MeasurementOption
	outcomes  map[outcome]metric.MeasurementOption
}

// outcome is a call and how it ended.
type outcome struct {
	call   string
	reason fault.Reason
}

func newMetrics(m metric.Meter) (*metrics, error) {
	var errs []error
	seconds := func(name, description string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(telemetry.ServiceBuckets...))
		errs = append(errs, err)
		return h
	}
	x := &metrics{
		requests:  seconds("apiary_search_request", "Time of a request, by call and reason of failure."),
		statement: seconds("apiary_search_query", "Time of one filter of a stored query, by the plan's driver."),
		count:     seconds("apiary_search_count", "Time of one filter of a count, by the plan's driver."),
		drivers:   make(map[plan.Driver]metric.MeasurementOption),
		outcomes:  make(map[outcome]metric.MeasurementOption),
	}
	var err error
	x.rows, err = m.Int64Histogram("apiary_search_rows", metric.WithDescription("Events that one filter of a stored query returned, by the plan's driver."),
		metric.WithExplicitBucketBoundaries(rowBuckets...))
	errs = append(errs, err)
	for _, d := range plan.Drivers() {
		x.drivers[d] = metric.WithAttributeSet(attribute.NewSet(attribute.String("driver", d.String())))
	}
	for _, call := range []string{callQuery, callCount, callResolve, callAccess, callModeration, callList} {
		for n := range commonv1.Reason_name {
			r := fault.Reason(n)
			x.outcomes[outcome{call, r}] = metric.WithAttributeSet(attribute.NewSet(
				attribute.String("call", call), attribute.String(telemetry.KeyReason, r.String())))
		}
	}
	return x, errors.Join(errs...)
}

func (x *metrics) request(ctx context.Context, call string, err error, took time.Duration) {
	label, ok := x.outcomes[outcome{call, fault.ReasonOf(err)}]
	if !ok { // a nil option would be the end of the process
		label = metric.WithAttributeSet(attribute.NewSet())
	}
	x.requests.Record(ctx, took.Seconds(), label)
}

// queried returns the observer of a stored query.
func (x *metrics) queried(ctx context.Context) func(*plan.Plan, time.Duration, int) {
	return func(p *plan.Plan, took time.Duration, rows int) {
		x.statement.Record(ctx, took.Seconds(), x.drivers[p.Shape.Driver])
		x.rows.Record(ctx, int64(rows), x.drivers[p.Shape.Driver])
	}
}

// counted returns the observer of a count.
func (x *metrics) counted(ctx context.Context) func(*plan.Plan, time.Duration, int) {
	return func(p *plan.Plan, took time.Duration, _ int) {
		x.count.Record(ctx, took.Seconds(), x.drivers[p.Shape.Driver])
	}
}
