package bus_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
)

// BenchmarkBus is one message from its publisher through the server to an ordered consumer, of a stream
// whose other partitions are as busy.
func BenchmarkBus(b *testing.B) {
	conn := bustest.NewBus(b)
	const partitions = 4
	payload := make([]byte, 700)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	done := make(chan error, 1)
	want := (b.N + partitions - 1) / partitions
	go func() {
		seen := 0
		done <- conn.ConsumeOrdered(ctx, subject.StreamEvents, subject.Events(0), 1, func(context.Context, bus.Msg) error {
			if seen++; seen == want {
				return bus.ErrStop
			}
			return nil
		})
	}()
	b.ReportAllocs()
	b.ResetTimer()
	var last *bus.Future
	for i := range b.N {
		var err error
		last, err = conn.PublishAsync(ctx, subject.Events(uint32(i%partitions)), "", payload)
		require.NoError(b, err)
	}
	_, err := last.Wait(ctx)
	require.NoError(b, err)
	require.NoError(b, <-done)
}
