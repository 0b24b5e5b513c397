package bus_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
)

var indexer = bus.DurableConfig{Stream: subject.StreamEvents, Subject: subject.AllEvents, Name: "index", Batch: 16}

func TestDurableHandlesEverythingOverFailuresAndRestarts(t *testing.T) {
	t.Parallel()
	const messages = 200
	s := bustest.New(t)
	b := s.Connect(t)
	bustest.EnsureStreams(t, b)
	publish(t, b, subject.Events(1), 0, messages/2)
	ctx, cancel := context.WithCancelCause(t.Context())
	seen := make(map[string]int)
	all := make(chan struct{})
	failures := 0
	done := make(chan error, 1)
	go func() {
		done <- b.ConsumeDurable(ctx, indexer, func(_ context.Context, batch []bus.Msg) error {
			if failures < 3 {
				failures++
				return errors.New("not now")
			}
			for _, m := range batch {
				seen[string(m.Data)]++
			}
			if len(seen) == messages {
				select {
				case <-all:
				default:
					close(all)
				}
			}
			return nil
		})
	}()
	s.Restart(t)
	connected(t, b)
	publish(t, b, subject.Events(2), messages/2, messages/2)
	await(t, all)
	over := errors.New("over")
	cancel(over)
	require.ErrorIs(t, await(t, done), over)
	for i := range messages {
		require.Contains(t, seen, strconv.Itoa(i))
	}
}

func TestDurableSharesAndRemembers(t *testing.T) {
	t.Parallel()
	s := bustest.New(t)
	b := s.Connect(t)
	bustest.EnsureStreams(t, b)
	const messages = 100
	publish(t, b, subject.Events(1), 0, messages)
	var mu sync.Mutex
	seen := make(map[uint64]int)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var workers sync.WaitGroup
	for range 3 {
		own := s.Connect(t)
		workers.Go(func() {
			_ = own.ConsumeDurable(ctx, indexer, func(_ context.Context, batch []bus.Msg) error {
				mu.Lock()
				defer mu.Unlock()
				for _, m := range batch {
					seen[m.Sequence]++
				}
				if len(seen) == messages {
					cancel()
				}
				return nil
			})
		})
	}
	workers.Wait()
	require.Len(t, seen, messages)
	// Whoever comes next finds only what is new; ErrStop leaves it for the one after.
	publish(t, b, subject.Events(1), messages, 1)
	for range 2 {
		err := b.ConsumeDurable(t.Context(), indexer, func(_ context.Context, batch []bus.Msg) error {
			require.Len(t, batch, 1)
			require.Equal(t, uint64(messages+1), batch[0].Sequence)
			return bus.ErrStop
		})
		require.NoError(t, err)
	}
}
