package fanout

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// observe registers the gauges that read the state of the service when they are scraped.
func (s *Service) observe(m metric.Meter) error {
	var errs []error
	gauge := func(name, unit, description string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return g
	}
	gateways := gauge("apiary_fanout_gateways", "", "Attached gateways.")
	items := gauge("apiary_fanout_queue_depth", "", "Items queued for gateways.")
	bytes := gauge("apiary_fanout_queue", "By", "Bytes queued for gateways.")
	partitions := gauge("apiary_fanout_partitions", "", "Partitions that are consumed.")
	subscriptions := gauge("apiary_fanout_subscriptions", "", "Subscriptions filed or waiting.")
	lag := gauge("apiary_fanout_lag", "", "Messages waiting in the streams behind the last one consumed.")
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		var open, subs, behind, queued, size int64
		for _, p := range s.partitions {
			st := p.Stats()
			if st.Open {
				open++
			}
			subs += int64(st.Subscriptions)
			behind += int64(st.Lag)
		}
		links := s.links.all()
		for _, l := range links {
			n, b := l.Depth()
			queued += int64(n)
			size += int64(b)
		}
		o.ObserveInt64(gateways, int64(len(links)))
		o.ObserveInt64(items, queued)
		o.ObserveInt64(bytes, size)
		o.ObserveInt64(partitions, open)
		o.ObserveInt64(subscriptions, subs)
		o.ObserveInt64(lag, behind)
		return nil
	}, gateways, items, bytes, partitions, subscriptions, lag)
	return errors.Join(append(errs, err)...)
}
