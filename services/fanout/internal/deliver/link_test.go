package deliver

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/rpc"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func register(t *testing.T, l *Link, id uint64) *Handle {
	t.Helper()
	h, _, err := l.Register(id, 3)
	require.NoError(t, err)
	return h
}

func delivery(seq uint64) *Delivery {
	return &Delivery{
		Partition: 3, Position: position.After(1, seq), Size: 100,
		Envelope: &commonv1.Envelope{Raw: []byte("{}")},
	}
}

func next(t *testing.T, l *Link) []*fanoutv1.Item {
	t.Helper()
	items, err := l.Next(t.Context())
	require.NoError(t, err)
	return items
}

func TestItemsComeInOrder(t *testing.T) {
	t.Parallel()
	l := NewLink(Limits{Items: 10, Bytes: 1 << 20, Handles: 10})
	a, b := register(t, l, 1), register(t, l, 2)
	l.Attached(a, position.Cursor{})
	n, ok := l.Deliver(delivery(5), []*Handle{a, b})
	require.True(t, ok)
	require.Equal(t, 2, n)
	require.True(t, l.Watermark(3, position.Cursor{}))
	items := next(t, l)
	require.Len(t, items, 3)
	require.Equal(t, uint64(1), items[0].GetAttached().GetHandle())
	require.Equal(t, []uint64{1, 2}, items[1].GetDelivery().GetHandles())
	require.Equal(t, uint64(5), items[1].GetDelivery().GetPosition().GetSequence())
	require.Equal(t, uint32(3), items[2].GetWatermark().GetPartition())
	count, bytes := l.Depth()
	require.Zero(t, count)
	require.Zero(t, bytes)
}

// However often the bus comes and goes while a gateway does not read, one word about it waits.
func TestTheLastWordAboutTheBusCounts(t *testing.T) {
	t.Parallel()
	l := NewLink(Limits{Items: 10, Bytes: 1 << 20, Handles: 10})
	for range 100 {
		l.Bus(false)
		l.Bus(true)
	}
	items := next(t, l)
	require.Len(t, items, 1)
	require.True(t, items[0].GetBus().GetAway())
	l.Bus(false)
	require.True(t, items[0].GetBus().GetAway(), "what has been taken stays as it is")
	require.False(t, next(t, l)[0].GetBus().GetAway())
}

func TestOverflowLosesWhatItWasFor(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]Limits{
		"items": {Items: 2, Bytes: 1 << 20, Handles: 10},
		"bytes": {Items: 100, Bytes: 400, Handles: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := NewLink(limits)
			a, b, c := register(t, l, 1), register(t, l, 2), register(t, l, 3)
			for seq := range uint64(2) {
				_, ok := l.Deliver(delivery(seq), []*Handle{a, b, c})
				require.True(t, ok)
			}
			_, ok := l.Deliver(delivery(2), []*Handle{a})
			require.False(t, ok)
			_, ok = l.Deliver(delivery(3), []*Handle{a, b})
			require.False(t, ok)
			require.False(t, l.Alive(a))
			require.True(t, l.Alive(c))

			items := next(t, l)
			require.Len(t, items, 3, "both losses share one item, behind what was queued")
			lost := items[2].GetLost()
			require.Equal(t, []uint64{1, 2}, lost.GetHandles())
			require.Equal(t, fault.Overloaded, lost.GetReason())

			n, ok := l.Deliver(delivery(4), []*Handle{a, b, c})
			require.True(t, ok)
			require.Equal(t, 1, n, "there is room again, for whom it is not too late")
			require.Equal(t, []uint64{3}, next(t, l)[0].GetDelivery().GetHandles())
		})
	}
}

func TestOneLargeDeliveryFitsAnEmptyQueue(t *testing.T) {
	t.Parallel()
	l := NewLink(Limits{Items: 2, Bytes: 10, Handles: 1})
	_, ok := l.Deliver(delivery(1), []*Handle{register(t, l, 1)})
	require.True(t, ok)
}

func TestWatermarkWithoutRoomIsSkipped(t *testing.T) {
	t.Parallel()
	l := NewLink(Limits{Items: 1, Bytes: 1 << 20, Handles: 1})
	require.True(t, l.Watermark(1, position.Cursor{}))
	require.False(t, l.Watermark(1, position.Cursor{}))
}

func TestReplacedHandleGetsNothing(t *testing.T) {
	t.Parallel()
	l := NewLink(Limits{Items: 10, Bytes: 1 << 20, Handles: 1})
	old := register(t, l, 7)
	h, replaced, err := l.Register(7, 4)
	require.NoError(t, err)
	require.Same(t, old, replaced)
	require.Equal(t, uint32(4), h.Partition())
	l.Attached(old, position.Cursor{})
	l.Lose(old, fault.Overloaded, "late")
	n, ok := l.Deliver(delivery(1), []*Handle{old})
	require.True(t, ok)
	require.Zero(t, n)
	count, _ := l.Depth()
	require.Zero(t, count)

	_, _, err = l.Register(8, 4)
	require.ErrorIs(t, err, ErrTooManyHandles)
	require.Same(t, h, l.Forget(7))
	require.Nil(t, l.Forget(7))
}

func TestCloseFlushesThenEnds(t *testing.T) {
	t.Parallel()
	l := NewLink(Limits{Items: 10, Bytes: 1 << 20, Handles: 2})
	h := register(t, l, 1)
	_, ok := l.Deliver(delivery(1), []*Handle{h})
	require.True(t, ok)
	l.Close()
	n, ok := l.Deliver(delivery(2), []*Handle{h})
	require.True(t, ok)
	require.Zero(t, n)
	require.Len(t, next(t, l), 1)
	_, err := l.Next(t.Context())
	require.ErrorIs(t, err, io.EOF)
}

// batch takes what goes into one message, and returns how large that is.
func batch(t *testing.T, l *Link) (items []*fanoutv1.Item, bytes int) {
	t.Helper()
	items = next(t, l)
	return items, proto.Size(&fanoutv1.AttachResponse{Items: items})
}

// sized is a delivery as large as it says.
func sized(seq uint64, content int) *Delivery {
	d := &Delivery{
		Partition: 3, Position: position.After(uint64(time.Now().UnixNano()), seq),
		Envelope: &commonv1.Envelope{Raw: bytes.Repeat([]byte("x"), content)},
	}
	d.Size = proto.Size(d.Envelope)
	return d
}

func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	const deliveries = 1000
	l := NewLink(Limits{Items: 2 * deliveries, Bytes: 64 << 20, Handles: deliveries})
	var handles []*Handle
	for id := range uint64(deliveries) {
		handles = append(handles, register(t, l, id+1<<50))
	}
	for seq := range uint64(deliveries) {
		_, ok := l.Deliver(sized(seq, 500), handles[:1])
		require.True(t, ok)
		at := position.After(uint64(time.Now().UnixNano()), seq)
		l.Attached(handles[seq], position.Cursor{at, at})
	}
	var seqs []uint64
	batches := 0
	for ; len(seqs) < deliveries; batches++ {
		items, size := batch(t, l)
		require.LessOrEqual(t, size, rpc.BatchBytes)
		for _, i := range items {
			if d := i.GetDelivery(); d != nil {
				seqs = append(seqs, d.GetPosition().GetSequence())
			}
		}
	}
	require.IsIncreasing(t, seqs)
	require.Less(t, batches, deliveries/30)

	for range 2 {
		_, ok := l.Deliver(sized(0, rpc.BatchBytes), handles[:1])
		require.True(t, ok)
	}
	require.Len(t, next(t, l), 1)
	require.Len(t, next(t, l), 1)

	for range deliveries {
		require.True(t, l.Watermark(1, position.Cursor{}))
	}
	items, size := batch(t, l)
	require.LessOrEqual(t, size, rpc.BatchBytes)
	require.Greater(t, len(items), deliveries/4)
}

// An event that many get shares its message with others, as long as there is room for all their handles.
func TestManyHandlesShareAMessage(t *testing.T) {
	t.Parallel()
	const subscribers, deliveries = 2000, 40
	l := NewLink(Limits{Items: 1000, Bytes: 64 << 20, Handles: subscribers})
	var handles []*Handle
	for id := range uint64(subscribers) {
		handles = append(handles, register(t, l, id+1<<50))
	}
	for seq := range uint64(deliveries) {
		_, ok := l.Deliver(sized(seq, 500), handles)
		require.True(t, ok)
	}
	items, size := batch(t, l)
	require.Len(t, items, deliveries)
	require.LessOrEqual(t, size, batchBytes)
	for seq := range uint64(2 * deliveries) {
		_, ok := l.Deliver(sized(seq, 50), handles)
		require.True(t, ok)
	}
	items, size = batch(t, l)
	require.Less(t, len(items), 2*deliveries)
	require.LessOrEqual(t, size, batchBytes)
	require.Zero(t, len(next(t, l))-(2*deliveries-len(items)))

	for _, h := range handles {
		l.Lose(h, fault.Overloaded, "")
	}
	items, size = batch(t, l)
	require.Len(t, items, 1)
	require.LessOrEqual(t, size, rpc.BatchBytes)
}

func TestAdmitWaitsForRoom(t *testing.T) {
	t.Parallel()
	l := NewLink(Limits{Items: 2, Bytes: 1 << 20, Handles: 2})
	require.NoError(t, l.Admit(t.Context()))
	l.Refuse(1, fault.Invalid, "bad filter")
	l.Refuse(2, fault.Overloaded, "draining")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Admit(ctx), context.Canceled)
	admitted := make(chan error, 1)
	go func() { admitted <- l.Admit(t.Context()) }()
	require.Len(t, next(t, l), 2)
	require.NoError(t, <-admitted)
}
