package bus_test

import (
	"context"
	"errors"
	"math"
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

// keepOnly makes EVENTS drop all but its last n messages, as its limits do.
func keepOnly(t *testing.T, b *bus.Bus, n int64) {
	t.Helper()
	stream, err := b.JetStream().Stream(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgs = n
	_, err = b.JetStream().UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
}

// What a stream dropped before it was handled is told: while the consumer was away, while it was slow, and when the
// stream was lost as a whole.
func TestDurableTellsWhatItMissed(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	publish(t, b, subject.Events(1), 0, 10)
	cfg := indexer
	var gaps []bus.Gap
	var refused bool
	cfg.OnGap = func(_ context.Context, g bus.Gap) error {
		if !refused {
			refused = true
			return errors.New("not now")
		}
		gaps = append(gaps, g)
		return nil
	}
	// upTo consumes until a message was handled and acknowledged; slow is called with the first batch.
	upTo := func(last uint64, slow func()) {
		over := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		handled := uint64(0)
		err := b.ConsumeDurable(ctx, cfg, func(_ context.Context, batch []bus.Msg) error {
			if handled > last {
				cancel(over)
				return bus.ErrStop
			}
			if slow != nil {
				slow()
				slow = nil
			}
			handled = batch[len(batch)-1].Sequence
			if handled >= last { // one more, to be sure that this one is acknowledged
				handled = last + 1
				publish(t, b, subject.Events(1), int(last), 1)
			}
			return nil
		})
		require.True(t, err == nil || errors.Is(err, over), err)
	}
	upTo(10, nil)
	require.Empty(t, gaps)

	publish(t, b, subject.Events(2), 100, 20) // 12 to 31
	keepOnly(t, b, 5)
	upTo(31, nil)
	require.True(t, refused)
	require.Len(t, gaps, 1)
	epoch := gaps[0].Epoch
	// The eleventh was handed out and not acknowledged; the server counts it as done when it drops it.
	require.Contains(t, []uint64{11, 12}, gaps[0].From)
	require.Equal(t, bus.Gap{Stream: subject.StreamEvents, Subject: subject.AllEvents, Epoch: epoch, From: gaps[0].From, To: 26}, gaps[0])

	gaps = nil
	upTo(60, func() { publish(t, b, subject.Events(2), 200, 30) }) // 33 to 62, of which 5 stay
	require.NotEmpty(t, gaps)
	require.Equal(t, uint64(57), gaps[len(gaps)-1].To)

	gaps = nil
	upTo(64, func() {
		require.NoError(t, b.JetStream().DeleteStream(t.Context(), subject.StreamEvents))
		bustest.EnsureStreams(t, b)
		publish(t, b, subject.Events(2), 300, 70)
	})
	require.NotEmpty(t, gaps)
	require.Equal(t, epoch, gaps[0].Epoch)
	require.Equal(t, uint64(math.MaxUint64), gaps[0].To)
}
