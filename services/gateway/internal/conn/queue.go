package conn

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
)

// class says which budget a frame counts against.
type class uint8

const (
	control class = iota
	event
	history
)

// verdict is the outcome of a push.
type verdict uint8

const (
	queued verdict = iota
	full           // no room for an event frame
	broken         // no room for a control frame: the connection must go
	gone           // the connection is closing or closed
)

type item struct {
	frame cork.Frame
	class class
}

// Pressure is what waits for all clients of a process, besides a small part that each may have anyway. Beyond
// its limit that part is all that a client may have, so that many slow clients do not add up. Clients that
// keep up never touch it. Safe for concurrent use.
type Pressure struct {
	limit int64
	bytes atomic.Int64
}

// pressedShare is which part of its bytes a connection may use even under pressure.
const pressedShare = 32

// NewPressure returns a Pressure with a limit in bytes; 0 is no limit.
func NewPressure(limit int64) *Pressure { return &Pressure{limit: limit} }

// Bytes returns how much waits.
func (p *Pressure) Bytes() int64 { return p.bytes.Load() }

func (p *Pressure) isHigh() bool { return p.limit > 0 && p.bytes.Load() > p.limit }

// budget bounds one sort of frame.
type budget struct {
	frames, bytes       int // in use
	maxFrames, maxBytes int
	pressure            *Pressure // shared with the other connections; nil if nothing is
}

// least is how many bytes may be in use under pressure; only what is beyond counts for it.
func (b *budget) least() int { return b.maxBytes / pressedShare }

// most is how many bytes may be in use now.
func (b *budget) most() int {
	if b.pressure != nil && b.pressure.isHigh() {
		return b.least()
	}
	return b.maxBytes
}

// fits reports whether so many frames of n bytes together may be added. What is queued in one piece always fits
// an empty queue, whatever its size.
func (b *budget) fits(frames, n int) bool {
	return b.frames == 0 || (b.frames+frames <= b.maxFrames && b.bytes+n <= b.most())
}

// half reports whether at most half of the budget is in use: the low-water mark of everybody who
// waits for room, so that waiters do not wake for one slot at a time. Whoever waits because of the
// pressure is woken by what is written of its own, which is never nothing.
func (b *budget) half() bool { return b.frames <= b.maxFrames/2 && b.bytes <= b.most()/2 }

func (b *budget) add(f cork.Frame)  { b.count(f.Count(), f.Size()) }
func (b *budget) done(f cork.Frame) { b.count(-f.Count(), -f.Size()) }

// clear notes that everything was dropped.
func (b *budget) clear() { b.count(-b.frames, -b.bytes) }

func (b *budget) count(frames, bytes int) {
	before := max(b.bytes, b.least())
	b.frames += frames
	b.bytes += bytes
	if after := max(b.bytes, b.least()); after != before && b.pressure != nil {
		b.pressure.bytes.Add(int64(after - before))
	}
}

// queue is the FIFO of a connection. It does no I/O.
type queue struct {
	mu      sync.Mutex
	items   []item // items[head:] wait; taken frames stay until they are written
	head    int
	ctl     budget
	data    budget
	running bool          // a flushing goroutine exists
	rested  chan struct{} // closed when running is turned off; nil if nobody waits
	starved bool          // an event was refused since there was room last
	strikes int
	stop    *closing      // set once: no more pushes
	wake    chan struct{} // closed when somebody waiting for room should look again; nil if nobody
}

// closing is how a connection ends.
type closing struct {
	code    websocket.StatusCode // 0: without a close frame
	reason  string
	cause   string
	discard bool
}

var itemPool = sync.Pool{New: func() any { s := make([]item, 0, 64); return &s }}

// push appends frames, at least one, as far as their budget allows and reports whether the caller must start a
// flushing goroutine, whatever the verdict.
func (q *queue) push(c class, frames ...cork.Frame) (v verdict, start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stop != nil {
		return gone, false
	}
	b := q.budget(c)
	for _, f := range frames {
		if c != history && !b.fits(f.Count(), f.Size()) {
			v = full
			if c == control {
				v = broken
			}
			return v, start
		}
		if q.items == nil {
			q.items = *itemPool.Get().(*[]item)
		}
		b.add(f)
		q.items = append(q.items, item{frame: f, class: c})
		if !q.running {
			q.running, start = true, true
		}
	}
	return queued, start
}

func (q *queue) budget(c class) *budget {
	if c == control {
		return &q.ctl
	}
	return &q.data
}

// take copies up to max items, and no more than maxBytes after the first, into dst. It returns no
// frames when the queue is empty, and then the flushing goroutine counts as stopped unless a close is
// due, which it returns.
func (q *queue) take(dst []cork.Frame, maxFrames, maxBytes int) ([]cork.Frame, *closing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes := 0
	for _, it := range q.items[q.head:] {
		n := it.frame.Size()
		if len(dst) == maxFrames || (len(dst) > 0 && bytes+n > maxBytes) {
			break
		}
		dst = append(dst, it.frame)
		bytes += n
	}
	if len(dst) == 0 {
		q.release()
		if q.stop == nil {
			q.restLocked()
		}
		return dst, q.stop
	}
	return dst, nil
}

// rest notes that the flushing goroutine ends.
func (q *queue) rest() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.restLocked()
}

func (q *queue) restLocked() {
	q.running = false
	if q.rested != nil {
		close(q.rested)
		q.rested = nil
	}
}

// awaitRest waits until no flushing goroutine exists. It is called by one goroutine, after shut: so none
// begins later.
func (q *queue) awaitRest() {
	q.mu.Lock()
	if !q.running {
		q.mu.Unlock()
		return
	}
	q.rested = make(chan struct{})
	rested := q.rested
	q.mu.Unlock()
	<-rested
}

// written removes the n items that take returned, says how much that was, and reports whether a refused event
// would find room again.
func (q *queue) written(n int) (frames, bytes int, room bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Discard may have emptied the queue meanwhile.
	n = min(n, len(q.items)-q.head)
	for i := q.head; i < q.head+n; i++ {
		f := q.items[i].frame
		q.budget(q.items[i].class).done(f)
		frames += f.Count()
		bytes += f.Size()
		q.items[i] = item{}
	}
	q.head += n
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head > 1024 && q.head > len(q.items)/2 {
		m := copy(q.items, q.items[q.head:])
		clear(q.items[m:])
		q.items, q.head = q.items[:m], 0
	}
	if q.wake != nil && (q.data.half() || q.ctl.half()) {
		close(q.wake)
		q.wake = nil
	}
	if q.starved && q.data.half() {
		q.starved, q.strikes = false, 0
		return frames, bytes, true
	}
	return frames, bytes, false
}

// release gives the backing array away, so that an idle connection holds none. Called with mu held.
func (q *queue) release() {
	if q.items == nil {
		return
	}
	if cap(q.items) <= 2048 {
		clear(q.items) // what was written is zero already
		s := q.items[:0]
		itemPool.Put(&s)
	}
	q.items, q.head = nil, 0
}

// shut refuses everything from now on. The first call wins; with discard, what waits is dropped,
// also when an earlier close wanted it flushed. It reports whether the caller must start a flushing
// goroutine to carry the close out.
func (q *queue) shut(c *closing) (start bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stop == nil {
		q.stop = c
		start = !q.running
		q.running = true
	}
	if c.discard {
		q.release()
		q.ctl.clear()
		q.data.clear()
	}
	q.starved = false
	if q.wake != nil {
		close(q.wake)
		q.wake = nil
	}
	return start
}

// waitRoom returns nil when at most half of the budget of c is in use or the connection is closing,
// else a channel to wait on before asking again.
func (q *queue) waitRoom(c class) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stop != nil || q.budget(c).half() {
		return nil
	}
	if q.wake == nil {
		q.wake = make(chan struct{})
	}
	return q.wake
}

// hasRoom reports whether waitRoom would return nil.
func (q *queue) hasRoom(c class) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stop != nil || q.budget(c).half()
}

// starve notes that somebody waits for room for events. first is true when nobody did before; room
// is true when there is room already, and then nothing is noted.
func (q *queue) starve() (first, room bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.stop != nil:
		return false, false
	case q.data.half():
		return false, true
	}
	first = !q.starved
	q.starved = true
	return first, false
}

// strike counts one interval without room. It returns 0 when the connection is not starved.
func (q *queue) strike() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.starved {
		return 0
	}
	q.strikes++
	return q.strikes
}

// closing returns how the connection is being closed, nil if it is not.
func (q *queue) closing() *closing {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stop
}

// flushScratch is what a flushing goroutine needs; pooled because it lives only for a burst.
type flushScratch struct {
	frames []cork.Frame
	parts  net.Buffers
}

var scratchPool = sync.Pool{New: func() any { return new(flushScratch) }}
