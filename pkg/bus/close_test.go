package bus_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
)

// A Bus that is closed while others publish leaves no goroutine behind, whether its server is there or goes away
// just then, and neither does the server. Whoever publishes is told that the bus is away. It is not parallel: it looks
// at all goroutines.
func TestCloseLeavesNothingRunning(t *testing.T) {
	const publishers = 4
	others := goleak.IgnoreCurrent()
	s := bustest.New(t)
	for round := range 20 {
		b := s.Connect(t)
		connected(t, b)
		bustest.EnsureStreams(t, b)
		if round%2 == 0 { // so that closing meets the first publish of a connection too
			publish(t, b, subject.Events(1), 0, 1)
		}
		var work sync.WaitGroup
		publishing := make(chan struct{}, 1)
		errs := make(chan error, publishers)
		for range publishers {
			work.Go(func() {
				for {
					select {
					case publishing <- struct{}{}:
					default:
					}
					f, err := b.PublishAsync(t.Context(), subject.Events(1), "", []byte("x"))
					if err == nil {
						_, err = f.Wait(t.Context())
					}
					if err != nil {
						errs <- err
						return
					}
				}
			})
		}
		<-publishing
		if round%4 == 3 {
			s.Stop(t)
		}
		b.Close()
		work.Wait()
		for range publishers {
			require.ErrorIs(t, <-errs, bus.ErrDisconnected)
		}
		s.Stop(t)
		require.NoError(t, goleak.Find(others))
		s.Restart(t)
	}
}
