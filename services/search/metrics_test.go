package search

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

func TestMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	s, err := New(DefaultConfig(), Deps{
		DB: pgtest.NewAs(t, Role), Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("search"),
	})
	require.NoError(t, err)
	c := serve(t, s)
	read(t, c, queryFor(1, principal(), nostr.Filter{}, nostr.Filter{Kinds: []nostr.Kind{1}}))
	_, err = c.Count(t.Context(), countFor(1, principal(), nostr.Filter{Authors: []nostr.PubKey{{1}}}))
	require.NoError(t, err)
	everyCall(t, c)

	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	counts := map[string]uint64{}
	note := func(name string, set attribute.Set, n uint64) {
		counts[name+" "+set.Encoded(attribute.DefaultEncoder())] += n
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				note(m.Name, p.Attributes, p.Count)
			}
		case metricdata.Histogram[int64]:
			for _, p := range d.DataPoints {
				note(m.Name, p.Attributes, p.Count)
			}
		}
	}
	require.Equal(t, map[string]uint64{
		"apiary_search_query driver=time":                             2,
		"apiary_search_query driver=kinds":                            1,
		"apiary_search_rows driver=time":                              2,
		"apiary_search_rows driver=kinds":                             1,
		"apiary_search_count driver=authors":                          1,
		"apiary_search_count driver=time":                             1,
		"apiary_search_request call=query,reason=REASON_UNSPECIFIED":  2,
		"apiary_search_request call=count,reason=REASON_UNSPECIFIED":  2,
		"apiary_search_request call=access,reason=REASON_UNSPECIFIED": 1,
		"apiary_search_request call=resolve,reason=REASON_NOT_FOUND":  1,
	}, counts)
}
