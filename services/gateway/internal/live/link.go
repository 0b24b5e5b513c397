package live

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
)

const (
	// maxCommands is how many commands one message carries, by contract.
	maxCommands = 1024
	// maxCommandBytes bounds the commands of one message, unless a single one is larger: what a client may ask
	// for fits a message, a thousand of them do not, and a message that is refused ends the link for everybody.
	// It is more than rpc.BatchBytes, since who resumes in one message is replayed together.
	maxCommandBytes = 1 << 20
	// maxQueued bounds the commands that wait for a node, besides those of subscriptions that are placed there
	// all at once because they lost their node. A node that does not take them is as good as lost.
	maxQueued = 1 << 17
)

var (
	errQueueFull = errors.New("node does not take commands")
	errSilent    = errors.New("node says nothing")
	errDrained   = errors.New("node has left and serves nobody here")
)

// link is one Attach stream to one node. seats is the loop's; everything below mu is guarded by it.
type link struct {
	name   string
	rpc    grpc.BidiStreamingClient[fanoutv1.AttachRequest, fanoutv1.AttachResponse]
	cancel context.CancelCauseFunc
	wake   chan struct{}

	backlog *backlog // counts what is queued

	// Owned by the loop.
	seats   map[uint64]*seat
	leaving bool // left the set of live nodes: gets no new seats, its old ones move

	// Owned by the receiver.
	run  run
	mute bool // the loop has not been told of the link: nothing has come yet
	away bool // what the loop was told of the node and the bus

	// heard is when something came last, in Unix nanoseconds; 0 while the node has not said that it says so all the time.
	heard atomic.Int64

	mu    sync.Mutex
	ended bool // nothing is sent any more
	queue []*fanoutv1.Command
	items uint64 // received so far
	parts map[uint32]*progress
}

// progress is how far a node has come in one partition on a link.
type progress struct {
	done      cursor // everything up to here was received
	watermark uint64 // item count at the last watermark
}

// command queues a command; it never blocks. Only the loop calls it.
func (l *link) command(c *fanoutv1.Command) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return // the loop is about to learn of it
	}
	full := len(l.queue) >= maxQueued+2*len(l.seats)
	if !full {
		l.queue = append(l.queue, c)
		l.backlog.add(1)
	}
	l.mu.Unlock()
	if full {
		l.cancel(errQueueFull)
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take removes the next message's worth of commands. Only the sender calls it.
func (l *link) take() []*fanoutv1.Command {
	l.mu.Lock()
	next := l.queue[:min(len(l.queue), maxCommands)]
	l.mu.Unlock()
	// Sizes are computed without the lock: nobody else takes, and those who queue only append.
	n, bytes := 0, 0
	for ; n < len(next); n++ {
		size := proto.Size(next[n])
		if n > 0 && bytes+size > maxCommandBytes {
			break
		}
		bytes += size
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil
	}
	l.backlog.add(-n)
	return next[:n:n]
}

// end drops what is queued: the stream has ended.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backlog.add(-len(l.queue))
	l.ended, l.queue = true, nil
}

// progress returns how far the node has come in a partition, and when it said so with a watermark.
func (l *link) progress(partition uint32) (done cursor, watermark uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.parts[partition]; p != nil {
		return p.done, p.watermark
	}
	return cursor{}, 0
}

// count counts an item and returns its number.
func (l *link) count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items++
	return l.items
}

// advance notes progress in a partition; watermark is the item's number if it is one, else 0.
func (l *link) advance(partition uint32, to cursor, watermark uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.parts[partition]
	if p == nil {
		p = &progress{}
		l.parts[partition] = p
	}
	p.done.raise(to)
	if watermark > 0 {
		p.watermark = watermark
	}
}

// send sends commands until ctx ends.
func (l *link) send(ctx context.Context) error {
	for {
		for batch := l.take(); len(batch) > 0; batch = l.take() {
			if err := l.rpc.Send(&fanoutv1.AttachRequest{Commands: batch}); err != nil {
				<-ctx.Done() // the receiver learns why
				return context.Cause(ctx)
			}
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// receive handles what the node says until the stream ends.
func (l *link) receive(lv *Live) error {
	for {
		resp, err := l.rpc.Recv()
		if err != nil {
			return err
		}
		if l.heard.Load() != 0 {
			l.heard.Store(time.Now().UnixNano())
		}
		if l.mute {
			l.mute = false
			lv.tell(op{kind: opLinkUp, link: l})
		}
		for _, item := range resp.GetItems() {
			n := l.count()
			if delivery := item.GetDelivery(); delivery != nil {
				l.gather(lv, delivery)
				continue
			}
			l.deliver(lv) // items take effect in their order
			switch it := item.GetItem().(type) {
			case *fanoutv1.Item_Attached:
				l.attached(lv, it.Attached, n)
			case *fanoutv1.Item_Watermark:
				l.advance(it.Watermark.GetPartition(), cursorOf(it.Watermark.GetCursor()), n)
			case *fanoutv1.Item_Lost:
				l.lost(lv, it.Lost)
			case *fanoutv1.Item_Bus:
				l.bus(lv, it.Bus.GetAway())
			}
		}
		l.deliver(lv)
	}
}

func (l *link) attached(lv *Live, a *fanoutv1.Attached, item uint64) {
	s, ok := lv.seats.Get(a.GetHandle())
	if !ok || s.link != l {
		return
	}
	if a.GetPartition() != s.att.partition {
		// The cluster must agree on the number of partitions, or positions mean nothing.
		lv.tell(op{kind: opLost, seat: s, reason: invalidPartition})
		return
	}
	s.confirm(cursorOf(a.GetFrom()), item)
	lv.tell(op{kind: opAttached, seat: s})
}

// bus takes what a node says at the beginning and then all the time: that it is there, and whether it reaches the bus.
func (l *link) bus(lv *Live, away bool) {
	l.heard.Store(time.Now().UnixNano())
	if away != l.away {
		l.away = away
		lv.tell(op{kind: opBus, link: l, away: away})
	}
}

func (l *link) lost(lv *Live, lost *fanoutv1.Lost) {
	for _, handle := range lost.GetHandles() {
		s, ok := lv.seats.Get(handle)
		if !ok || s.link != l {
			continue
		}
		// Now, because the loop comes later, when the link may have gone on without this handle.
		s.settle()
		lv.seats.Remove(handle)
		lv.tell(op{kind: opLost, seat: s, reason: lost.GetReason(), message: lost.GetMessage()})
	}
}
