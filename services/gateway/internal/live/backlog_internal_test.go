package live

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestTheBacklogHoldsNewAttachmentsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b backlog
		b.add(maxBacklog - 1)
		require.NoError(t, b.await(t.Context()))
		b.add(1)
		admitted := make(chan error, 2)
		for range cap(admitted) {
			go func() { admitted <- b.await(t.Context()) }()
		}
		synctest.Wait()
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		require.ErrorIs(t, b.await(ctx), gone)

		b.add(-maxBacklog/2 + 1)
		synctest.Wait()
		require.Empty(t, admitted, "not one by one, but when half is done")
		b.add(-1)
		require.NoError(t, <-admitted)
		require.NoError(t, <-admitted)
	})
}
