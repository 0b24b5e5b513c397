package outbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// rows is a Rows that remembers what was deleted.
type rows struct {
	mu      sync.Mutex
	deleted []int64
	err     error
}

func (r *rows) DeleteRows(_ context.Context, ids []int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	r.deleted = append(r.deleted, ids...)
	return nil
}

func (r *rows) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// row makes a row with one envelope in each of these partitions.
func row(t *testing.T, id int64, partitions ...uint32) *store.Row {
	t.Helper()
	r := &store.Row{ID: id, CreatedAt: time.UnixMicro(1_700_000_000_000_000 + id)}
	for _, p := range partitions {
		encoded, err := proto.Marshal(&busv1.EnvelopeBatch{Envelopes: []*commonv1.Envelope{{Raw: []byte{byte(id)}}}})
		require.NoError(t, err)
		r.Partitions = append(r.Partitions, &busv1.PartitionBatch{Partition: p, Batch: encoded})
	}
	return r
}

// run runs a publisher until the test ends.
func run(t *testing.T, p *Publisher) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, func() {}) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func TestPublisherKeepsOrderAndDeletes(t *testing.T) {
	b, deleted := bustest.NewBus(t), &rows{}
	p := NewPublisher(b, deleted, quiet, nil)
	run(t, p)
	var want []int64
	for id := int64(1); id <= 100; id++ {
		p.Publish(t.Context(), row(t, id, uint32(id%4), 7))
		want = append(want, id)
	}
	require.NoError(t, p.Drain(t.Context()))
	require.Equal(t, want, deleted.deleted)
	require.Zero(t, p.Pending())

	var got []byte
	err := b.ConsumeOrdered(t.Context(), subject.StreamEvents, subject.Events(7), 1, func(_ context.Context, m bus.Msg) error {
		var batch busv1.EnvelopeBatch
		if err := proto.Unmarshal(m.Data, &batch); err != nil {
			return err
		}
		got = append(got, batch.GetEnvelopes()[0].GetRaw()...)
		if len(got) == 100 {
			return bus.ErrStop
		}
		return nil
	})
	require.NoError(t, err)
	for i, id := range got {
		require.EqualValues(t, i+1, id)
	}
	// The same rows again are no new messages; the same ids after a restore of the database are.
	p.Publish(t.Context(), row(t, 1, 7))
	restored := row(t, 1, 7)
	restored.CreatedAt = restored.CreatedAt.Add(time.Microsecond)
	p.Publish(t.Context(), restored)
	require.NoError(t, p.Drain(t.Context()))
	state, err := b.StreamState(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.EqualValues(t, 201, state.LastSeq)
}

// away is a Bus that cannot be reached.
type away struct{ published int }

func (*away) Connected() bool { return false }

func (a *away) PublishAsync(context.Context, string, string, []byte) (*bus.Future, error) {
	a.published++
	return nil, bus.ErrDisconnected
}

func TestPublisherLeavesWhatItCannotDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 0
		b, deleted := &away{}, &rows{}
		p := NewPublisher(b, deleted, quiet, func(_ context.Context, _ time.Duration, ok bool) {
			require.False(t, ok)
			left++
		})
		// More than it holds, while it does not run.
		for id := range int64(maxQueued + 5) {
			p.Publish(t.Context(), row(t, id, 1))
		}
		require.Equal(t, 5, left)
		require.Equal(t, maxQueued, p.Pending())
		run(t, p)
		synctest.Wait()
		require.Equal(t, maxQueued+5, left)
		require.Zero(t, p.Pending())
		require.Zero(t, b.published, "nothing is sent to a bus that is away")
		require.Empty(t, deleted.deleted)
		require.NoError(t, p.Drain(t.Context()))
	})
}

func TestPublisherBoundsBytes(t *testing.T) {
	left := 0
	p := NewPublisher(&away{}, &rows{}, quiet, func(context.Context, time.Duration, bool) { left++ })
	big := &store.Row{ID: 1, Partitions: []*busv1.PartitionBatch{{Batch: make([]byte, maxQueuedBytes/4)}}}
	for range 6 {
		p.Publish(t.Context(), big)
	}
	require.Equal(t, 2, left)
	require.Equal(t, 4, p.Pending())
}

func TestDeletesWaitForTheDatabase(t *testing.T) {
	b, deleted := bustest.NewBus(t), &rows{}
	deleted.fail(errors.New("away"))
	p := NewPublisher(b, deleted, quiet, nil)
	run(t, p)
	p.Publish(t.Context(), row(t, 1, 1))
	within, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	require.ErrorIs(t, p.Drain(within), context.DeadlineExceeded)
	cancel()
	require.Equal(t, 1, p.Pending())
	deleted.fail(nil)
	require.NoError(t, p.Drain(t.Context()))
	require.Equal(t, []int64{1}, deleted.deleted)
}

// outage is an Outbox that fails.
type outage struct{ looks, sweeps int }

func (o *outage) SweepOutbox(context.Context, time.Duration, int64, int, func([]*store.Row) []int64) (int, error) {
	o.sweeps++
	return 0, errors.New("away")
}

func (o *outage) OutboxState(context.Context) (int64, time.Duration, error) {
	o.looks++
	return 0, 0, errors.New("away")
}

// full is an Outbox with a number of overdue rows.
type full struct {
	rows    []*store.Row
	pages   int
	stays   int    // rows that cannot be published
	emptied func() // called when the last of the others was published; may be nil
}

func (f *full) SweepOutbox(_ context.Context, _ time.Duration, after int64, limit int, publish func([]*store.Row) []int64) (int, error) {
	f.pages++
	page := slices.DeleteFunc(slices.Clone(f.rows), func(r *store.Row) bool { return r.ID <= after })
	if page = page[:min(limit, len(page))]; len(page) == 0 {
		return 0, nil
	}
	published := publish(page)
	f.rows = slices.DeleteFunc(f.rows, func(r *store.Row) bool { return slices.Contains(published, r.ID) })
	if len(f.rows) == f.stays && f.emptied != nil {
		f.emptied()
	}
	return len(page), nil
}

func (f *full) OutboxState(context.Context) (int64, time.Duration, error) {
	return int64(len(f.rows)), time.Minute, nil
}

// sweep runs a sweeper for a while of the bubble's time, or until stop.
func sweep(t *testing.T, s *Sweeper, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.NoError(t, s.Run(ctx, func() {}))
}

func TestSweeperGoesOnAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outage{}
		sweep(t, NewSweeper(SweeperConfig{Age: time.Second, Interval: time.Second}, o, connected{}, quiet), 5500*time.Millisecond)
		require.Equal(t, 5, o.looks)
		require.Equal(t, 5, o.sweeps)
	})
}

func TestSweeperWaitsForTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outage{}
		sweep(t, NewSweeper(SweeperConfig{Age: time.Second, Interval: time.Second}, o, &away{}, quiet), 5500*time.Millisecond)
		require.Equal(t, 5, o.looks)
		require.Zero(t, o.sweeps)
	})
}

// connected is a Bus that fails although it seems to be there.
type connected struct{}

func (connected) Connected() bool { return true }

func (connected) PublishAsync(context.Context, string, string, []byte) (*bus.Future, error) {
	return nil, bus.ErrNoStream
}

func TestSweeperDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &full{}
		for id := int64(1); id <= 100; id++ {
			f.rows = append(f.rows, row(t, id, 1))
		}
		s := NewSweeper(SweeperConfig{Age: time.Second, Interval: time.Second}, f, connected{}, quiet)
		sweep(t, s, 5500*time.Millisecond)
		require.Equal(t, 5, f.pages, "one page a look while nothing can be published")
		rows, oldest := s.Backlog()
		require.EqualValues(t, 100, rows)
		require.Equal(t, time.Minute, oldest)
	})
}

func TestSweeperTakesAllPages(t *testing.T) {
	f := &full{}
	for id := int64(1); id <= 100; id++ {
		f.rows = append(f.rows, row(t, id, 1))
	}
	b := bustest.NewBus(t)
	s := NewSweeper(SweeperConfig{Age: time.Second, Interval: 5 * time.Millisecond}, f, b, quiet)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f.emptied = cancel
	require.NoError(t, s.Run(ctx, func() {}))
	require.Empty(t, f.rows)
	state, err := b.StreamState(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.EqualValues(t, 100, state.LastSeq)
}

// Rows that cannot be published, more than a page of them and in front, hold up nobody: they stay, and are counted.
func TestUnpublishableRowsHoldUpNobody(t *testing.T) {
	const maxPayload = 64 << 10
	b := bustest.New(t, bustest.MaxPayload(maxPayload)).Connect(t)
	bustest.EnsureStreams(t, b)
	f := &full{stays: 2*sweepPage + 1}
	for id := int64(1); id <= int64(f.stays)+sweepPage; id++ {
		r := row(t, id, 1)
		switch {
		case id == 1:
			r.Err = errors.New("damaged")
		case id <= int64(f.stays):
			r.Partitions[0].Batch = make([]byte, maxPayload+1)
		}
		f.rows = append(f.rows, r)
	}
	s := NewSweeper(SweeperConfig{Age: time.Second, Interval: 5 * time.Millisecond}, f, b, quiet)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rounds := 0
	f.emptied = func() {
		if s.Stuck() == int64(f.stays) { // a whole round in which nothing else was left
			cancel()
		}
		rounds++
	}
	require.NoError(t, s.Run(ctx, func() {}))
	require.Len(t, f.rows, f.stays)
	require.LessOrEqual(t, rounds, 10)
	state, err := b.StreamState(t.Context(), subject.StreamEvents)
	require.NoError(t, err)
	require.EqualValues(t, sweepPage, state.LastSeq)
}
