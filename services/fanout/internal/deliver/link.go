package deliver

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/rpc"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

const (
	// batchBytes bounds one message to a gateway, and rpc.BatchBytes what is in it besides handles: a gateway delivers together what
	// comes in one message, so that an event for thousands of handles is not to be alone there. A message holds at least one item,
	// whatever its size.
	batchBytes = 1 << 20
	// lostHandles is how many handles one Lost names before a further one is begun.
	lostHandles = 2048
)

// Estimates of what an item adds to the envelope that it shares, in bytes.
const (
	itemBytes   = 64
	handleBytes = 10
)

// ErrTooManyHandles is returned by Register when the link holds as many handles as it may.
var ErrTooManyHandles = errors.New("too many handles on one stream")

// Limits bound a Link; all must be positive.
type Limits struct {
	// Items is the number of queued deliveries and watermarks.
	Items int
	// Bytes is the size of the queued deliveries. One delivery fits an empty queue whatever its size.
	Bytes int
	// Handles is the number of registered handles.
	Handles int
}

// Handle is one subscription of a gateway: the identity of an incarnation, so that a handle number that
// is replaced cannot be mistaken for its predecessor.
type Handle struct {
	link      *Link
	id        uint64
	partition uint32
	alive     bool // guarded by the link's mu
}

// Link returns the link that the handle is registered on.
func (h *Handle) Link() *Link { return h.link }

// ID returns the number that the gateway chose.
func (h *Handle) ID() uint64 { return h.id }

// Partition returns the partition that serves the handle.
func (h *Handle) Partition() uint32 { return h.partition }

// Link is the outbound side of one gateway's stream.
type Link struct {
	limits Limits
	ready  chan struct{} // holds a token when there may be something to take
	room   chan struct{} // holds a token when something was taken

	mu      sync.Mutex
	handles map[uint64]*Handle
	queue   []element
	head    int           // queue[:head] has been taken
	counted int           // deliveries and watermarks queued
	bytes   int           // their size
	bus     *fanoutv1.Bus // queued; nil when none is
	closed  bool
}

// element is a queued item. Only deliveries and watermarks count against the limits; the number of the
// others is bounded by the handles and by Admit.
type element struct {
	item    *fanoutv1.Item
	size    int // without its handles, of which a Lost gets more while it is queued
	counted bool
}

// handles returns the size of the element's handles in bytes.
func (e *element) handles() int {
	return handleBytes * (len(e.item.GetDelivery().GetHandles()) + len(e.item.GetLost().GetHandles()))
}

// NewLink returns an open link without handles.
func NewLink(limits Limits) *Link {
	return &Link{
		limits:  limits,
		ready:   make(chan struct{}, 1),
		room:    make(chan struct{}, 1),
		handles: make(map[uint64]*Handle),
	}
}

// Register makes a handle for a partition. A handle that has the number already is dead from now on and
// returned as replaced, for its partition to forget.
func (l *Link) Register(id uint64, partition uint32) (h, replaced *Handle, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	replaced = l.forgetLocked(id)
	if len(l.handles) >= l.limits.Handles {
		return nil, replaced, ErrTooManyHandles
	}
	h = &Handle{link: l, id: id, partition: partition, alive: true}
	l.handles[id] = h
	return h, replaced, nil
}

// Forget drops a handle at the gateway's wish and returns it, nil if there is none.
func (l *Link) Forget(id uint64) *Handle {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forgetLocked(id)
}

func (l *Link) forgetLocked(id uint64) *Handle {
	h := l.handles[id]
	if h != nil {
		h.alive = false
		delete(l.handles, id)
	}
	return h
}

// Handles returns how many handles are registered.
func (l *Link) Handles() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.handles)
}

// Alive reports whether the handle is still the gateway's.
func (l *Link) Alive(h *Handle) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return h.alive
}

// Attached queues the answer to a Subscribe, unless the handle is gone already.
func (l *Link) Attached(h *Handle, from position.Cursor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !h.alive || l.closed {
		return
	}
	l.pushLocked(element{size: itemBytes, item: &fanoutv1.Item{Item: &fanoutv1.Item_Attached{Attached: &fanoutv1.Attached{
		Handle: h.id, Partition: h.partition, From: from.Proto(),
	}}}})
}

// Delivery is an event on its way to a gateway.
type Delivery struct {
	Partition uint32
	Stream    position.Stream
	Position  position.Position
	Envelope  *commonv1.Envelope
	// Size is the encoded size of Envelope in bytes.
	Size int
}

// Deliver queues an event for those of the handles that are alive and returns how many they are. When
// there is no room it loses them instead and returns false: the caller forgets all handles it passed.
func (l *Link) Deliver(d *Delivery, handles []*Handle) (delivered int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, true
	}
	ids := make([]uint64, 0, len(handles))
	for _, h := range handles {
		if h.alive {
			ids = append(ids, h.id)
		}
	}
	if len(ids) == 0 {
		return 0, true
	}
	size := d.Size + itemBytes
	if l.counted > 0 && (l.counted >= l.limits.Items || l.bytes+size+handleBytes*len(ids) > l.limits.Bytes) {
		for _, h := range handles {
			l.loseLocked(h, fault.Overloaded, "outbound queue is full")
		}
		return 0, false
	}
	l.pushLocked(element{size: size, counted: true, item: &fanoutv1.Item{
		Item: &fanoutv1.Item_Delivery{Delivery: &fanoutv1.Delivery{
			Partition: d.Partition,
			Stream:    d.Stream.Proto(),
			Position:  d.Position.Proto(),
			Handles:   ids,
			Envelope:  d.Envelope,
		}},
	}})
	return len(ids), true
}

// Watermark queues word of how far a partition has come and returns true. Without room it does nothing:
// the next watermark says more.
func (l *Link) Watermark(partition uint32, cursor position.Cursor) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.counted >= l.limits.Items {
		return false
	}
	l.pushLocked(element{size: itemBytes, counted: true, item: &fanoutv1.Item{
		Item: &fanoutv1.Item_Watermark{Watermark: &fanoutv1.Watermark{
			Partition: partition, Cursor: cursor.Proto(),
		}},
	}})
	return true
}

// Bus queues word of whether the node reaches the streams. At most one such word is queued: a later one replaces it.
func (l *Link) Bus(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
	case l.bus != nil:
		l.bus.Away = away
	default:
		l.bus = &fanoutv1.Bus{Away: away}
		l.pushLocked(element{size: itemBytes, item: &fanoutv1.Item{Item: &fanoutv1.Item_Bus{Bus: l.bus}}})
	}
}

// Lose queues word that a handle is no longer served. Nothing is delivered to it afterwards.
func (l *Link) Lose(h *Handle, reason fault.Reason, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loseLocked(h, reason, message)
}

func (l *Link) loseLocked(h *Handle, reason fault.Reason, message string) {
	if !h.alive || l.closed {
		return
	}
	l.forgetLocked(h.id)
	l.tellLostLocked(h.id, reason, message)
}

// Refuse queues word that a Subscribe was not accepted.
func (l *Link) Refuse(id uint64, reason fault.Reason, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tellLostLocked(id, reason, message)
	}
}

// tellLostLocked adds the handle to the Lost at the end of the queue, or begins one.
func (l *Link) tellLostLocked(id uint64, reason fault.Reason, message string) {
	if n := len(l.queue); n > l.head {
		last := l.queue[n-1].item.GetLost()
		if last != nil && last.Reason == reason && last.Message == message && len(last.Handles) < lostHandles {
			last.Handles = append(last.Handles, id)
			return
		}
	}
	l.pushLocked(element{size: itemBytes + len(message), item: &fanoutv1.Item{Item: &fanoutv1.Item_Lost{Lost: &fanoutv1.Lost{
		Handles: []uint64{id}, Reason: reason, Message: message,
	}}}})
}

func (l *Link) pushLocked(e element) {
	l.queue = append(l.queue, e)
	if e.counted {
		l.counted++
		l.bytes += e.size + e.handles()
	}
	signal(l.ready)
}

// Admit blocks while the queue holds as many items as it may, control items included: a gateway that
// does not take answers is not asked for more commands. It returns ctx's error.
func (l *Link) Admit(ctx context.Context) error {
	for {
		l.mu.Lock()
		full := len(l.queue)-l.head >= l.limits.Items && !l.closed
		l.mu.Unlock()
		if !full {
			return ctx.Err()
		}
		select {
		case <-l.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Next blocks until there is something to send and returns a batch in order. After Close it returns what
// is left, then io.EOF. Only one goroutine may call it.
func (l *Link) Next(ctx context.Context) ([]*fanoutv1.Item, error) {
	for {
		batch, closed := l.take()
		switch {
		case len(batch) > 0:
			signal(l.room)
			return batch, nil
		case closed:
			return nil, io.EOF
		}
		select {
		case <-l.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *Link) take() (batch []*fanoutv1.Item, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, handles := 0, 0
	for l.head < len(l.queue) {
		e := l.queue[l.head]
		size, handles = size+e.size, handles+e.handles()
		if len(batch) > 0 && (size > rpc.BatchBytes || size+handles > batchBytes) {
			break
		}
		batch = append(batch, e.item)
		if l.bus != nil && e.item.GetBus() == l.bus {
			l.bus = nil
		}
		l.queue[l.head] = element{}
		l.head++
		if e.counted {
			l.counted--
			l.bytes -= e.size + e.handles()
		}
	}
	if l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
		if cap(l.queue) > l.limits.Items {
			l.queue = nil // a burst of control items is over
		}
	} else if l.head > len(l.queue)/2 {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	return batch, l.closed
}

// Close ends the link: nothing is queued any more, what is queued can still be taken.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	signal(l.ready)
	signal(l.room)
}

// Depth returns how many items and bytes are queued, for metrics.
func (l *Link) Depth() (items, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) - l.head, l.bytes
}

// signal leaves a token; one is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
