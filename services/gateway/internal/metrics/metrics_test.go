package metrics_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

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
