package metrics_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// Every reason can be counted, one that only a newer ingest knows as well.
func TestWhatIsNotKnownIsCounted(t *testing.T) {
	x, err := metrics.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("gateway"))
	require.NoError(t, err)
	for r := range commonv1.Reason_name {
		x.OK(t.Context(), fault.Reason(r), 0.1)
	}
	x.OK(t.Context(), fault.Reason(9999), 0.1)
	x.Closed(t.Context(), "something new")
	x.FrameIn(t.Context(), wire.Label(200))
}

// What is counted without an instrument is exported like one: a total, and nothing is lost between many who count.
func TestTalliesAreExported(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	x, err := metrics.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("gateway"))
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				x.Flushed(3, 50)
				x.Delivery(1, 2, 0)
			}
		})
	}
	all.Wait()
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	totals := map[string]int64{}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && sum.IsMonotonic && len(sum.DataPoints) == 1 {
			totals[m.Name] = sum.DataPoints[0].Value
		}
	}
	require.Equal(t, map[string]int64{
		"apiary_gateway_flushes_total": 400, "apiary_gateway_frames_out_total": 1200, "apiary_gateway_out_bytes_total": 20000,
		"apiary_gateway_deliveries_total": 400, "apiary_gateway_delivered_total": 800, "apiary_gateway_duplicates_total": 0,
	}, totals)
}

func BenchmarkFlushed(b *testing.B) {
	x, err := metrics.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("gateway"))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		x.Flushed(1, 500)
	}
}
