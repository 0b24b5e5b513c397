package replica_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/services/gateway/internal/replica"
)

func TestKeepBacksOffAndStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var waits []time.Duration
		ended := time.Now()
		attempts := 0
		replica.Keep(t.Context(), nil, func() (bool, error) {
			waits = append(waits, time.Since(ended))
			attempts++
			if attempts == 10 { // this one lasts
				lasted := time.NewTimer(time.Minute)
				<-lasted.C
			}
			ended = time.Now()
			return attempts == 12, broken
		}, func(err error) { require.ErrorIs(t, err, broken) })
		require.Len(t, waits, 12)
		require.Zero(t, waits[0])
		for i, w := range waits[1:] {
			base := min(50*time.Millisecond<<i, 2*time.Second)
			if i >= 9 { // after the one that lasted
				base = 50 * time.Millisecond << (i - 9)
			}
			require.GreaterOrEqual(t, w, base/2, "attempt %d", i+2)
			require.Less(t, w, base+base/2, "attempt %d", i+2)
		}
	})
}

func TestKeepEndsWithItsReplicaOrContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan struct{})
		attempts := 0
		replica.Keep(t.Context(), left, func() (bool, error) {
			attempts++
			if attempts == 2 {
				close(left)
			}
			return false, nil
		}, func(error) {})
		require.Equal(t, 2, attempts)

		ctx, cancel := context.WithCancel(t.Context())
		replica.Keep(ctx, nil, func() (bool, error) {
			cancel()
			return false, ctx.Err()
		}, func(error) { t.Error("the end of its context breaks nothing") })
	})
}
