package conn

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// Config bounds one connection. All bounds must be positive unless said otherwise.
type Config struct {
	// FrameLimit is the longest message read, in bytes.
	FrameLimit int
	// QueueFrames and QueueBytes bound the event frames that wait.
	QueueFrames, QueueBytes int
	// Pressure is shared by all connections whose event frames are bounded together; nil if none are.
	Pressure *Pressure
	// ControlFrames and ControlBytes bound the control frames that wait.
	ControlFrames, ControlBytes int
	// FlushFrames and FlushBytes bound one vectored write; frames that are queued in one piece count as one.
	FlushFrames, FlushBytes int
	// PingInterval is the time between pings; 0 sends none.
	PingInterval time.Duration
	// MissedPongs is after how many unanswered pings the peer counts as gone.
	MissedPongs int
	// SlowStrikes is how many SlowInterval in a row the event queue may be found full before a slow
	// client is disconnected.
	SlowStrikes int
	// SlowInterval is the time between two looks at a full queue.
	SlowInterval time.Duration
	// Poller waits for peers that are silent; it may be nil.
	Poller *Poller
	// CloseTimeout bounds a close, from the wish to the end of the TCP connection.
	CloseTimeout time.Duration
}

// frameCost is what a message or a ping costs besides its bytes, in bytes: reading it takes about as long.
const frameCost = 1 << 10

// Handler is what a connection serves.
type Handler interface {
	// Message is one complete message. msg is valid during the call only. It may block: then the
	// socket is not read, and TCP holds the peer back.
	Message(text bool, msg []byte)
	// TooBig is called with the beginning of a message that exceeds the limit, before the connection
	// is closed with 1009.
	TooBig(begin []byte)
	// Room says that event frames fit again after one was refused.
	Room()
}

// Conn is one client connection.
type Conn struct {
	cfg *Config
	ws  *websocket.Conn
	net *cork.Conn // closed with hangUp only
	m   *metrics.Metrics
	ctx context.Context // the connection's own root

	source  source // of what ws reads
	within  bool   // a message has begun; of the reading goroutine
	heard   bool   // what was read last is a message; likewise
	wait    wait
	queue   queue
	handler Handler
	ended   func()
	end     context.CancelFunc // ends ctx

	missed atomic.Int32
	timers struct {
		sync.Mutex
		stopped      bool
		ping, strike *time.Timer
		last         *time.Timer
	}
}

// Start begins to read and returns. ended is called when nothing of the connection is left: no goroutine but the one that
// calls it, no timer, no socket. Start must be called exactly once.
func (c *Conn) Start(h Handler, ended func()) {
	c.handler, c.ended = h, ended
	c.startHeartbeat()
	go c.begin()
}

// Context is the connection's root; it ends when the connection has ended or is beyond hope.
func (c *Conn) Context() context.Context { return c.ctx }

// Cause returns why the connection was closed, from the closed set of metrics outcomes.
func (c *Conn) Cause() string {
	if cl := c.queue.closing(); cl != nil {
		return cl.cause
	}
	return metrics.OutcomePeer
}

// Control queues a frame that must not be lost. When even the control budget is used up the
// connection is closed.
func (c *Conn) Control(f cork.Frame) {
	v, start := c.queue.push(control, f)
	if start {
		c.startFlush()
	}
	if v == broken {
		c.Abort(websocket.StatusPolicyViolation, "client does not read", metrics.OutcomeStuck)
	}
}

// Event queues event frames in order, once Start was called, and reports false if there was no room for all of
// them: then those from the first on that did not fit are not queued, and the caller says WantRoom if it has
// something to do once there is. On a closing connection frames vanish and the result is true.
func (c *Conn) Event(frames ...cork.Frame) bool {
	v, start := c.queue.push(event, frames...)
	if start {
		c.startFlush()
	}
	return v != full
}

// WantRoom makes the connection call Handler.Room once at most half of the event budget is in use,
// at once if that is so already. Until then the client collects strikes.
func (c *Conn) WantRoom() {
	switch first, room := c.queue.starve(); {
	case room:
		c.handler.Room()
	case first:
		c.startStrikes()
	}
}

// History queues a frame of stored events without regard to the budget: its caller has waited in
// HistoryRoom first. So the overshoot is one frame per caller.
func (c *Conn) History(f cork.Frame) {
	if _, start := c.queue.push(history, f); start {
		c.startFlush()
	}
}

// HistoryRoom waits until at most half of the event budget is in use, so that history never takes
// the room that live events need. It returns at once on a closing connection.
func (c *Conn) HistoryRoom(ctx context.Context) error {
	return c.await(ctx, event)
}

// HasHistoryRoom reports whether HistoryRoom would return at once.
func (c *Conn) HasHistoryRoom() bool { return c.queue.hasRoom(event) }

// await waits until at most half of the budget of cl is in use.
func (c *Conn) await(ctx context.Context, cl class) error {
	for {
		wake := c.queue.waitRoom(cl)
		if wake == nil {
			return nil
		}
		select {
		case <-wake:
		case <-c.ctx.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// startFlush is called by whoever turned the queue's running flag on. finish waits until it is off.
func (c *Conn) startFlush() { go c.flush() }

// flush writes until the queue is empty and carries out the close, if one is due.
func (c *Conn) flush() {
	s := scratchPool.Get().(*flushScratch)
	defer func() {
		clear(s.frames[:cap(s.frames)])
		scratchPool.Put(s)
	}()
	for {
		frames, stop := c.queue.take(s.frames[:0], c.cfg.FlushFrames, c.cfg.FlushBytes)
		s.frames = frames
		if len(frames) == 0 {
			if stop != nil {
				c.carryOut(stop)
				c.queue.rest()
			}
			return
		}
		if err := c.net.WriteFrames(frames, &s.parts); err != nil {
			// The peer is gone or does not take a byte; or the library has answered its close, after which nothing is sent.
			cause := metrics.OutcomeStuck
			if errors.Is(err, cork.ErrClosing) {
				cause = metrics.OutcomePeer
			}
			c.queue.shut(&closing{cause: cause, discard: true})
			c.hangUp()
			c.queue.rest()
			return
		}
		written, bytes, room := c.queue.written(len(frames))
		c.m.Flushed(written, bytes)
		if room {
			c.stopStrikes()
			c.handler.Room()
		}
	}
}

// startHeartbeat sets the first ping somewhere in the second half of an interval, so that sockets
// opened together do not ping together for ever.
func (c *Conn) startHeartbeat() {
	if c.cfg.PingInterval <= 0 {
		return
	}
	half := c.cfg.PingInterval / 2
	first := half + rand.N(half+1) //nolint:gosec // jitter
	c.timers.Lock()
	defer c.timers.Unlock()
	c.timers.ping = time.AfterFunc(first, c.beat)
}

func (c *Conn) beat() {
	if c.missed.Load() >= int32(c.cfg.MissedPongs) {
		c.Abort(websocket.StatusPolicyViolation, "no pong", metrics.OutcomeNoPong)
		return
	}
	c.missed.Add(1)
	c.Control(cork.Ping())
	c.timers.Lock()
	defer c.timers.Unlock()
	if !c.timers.stopped {
		c.timers.ping.Reset(c.cfg.PingInterval)
	}
}

func (c *Conn) startStrikes() {
	c.timers.Lock()
	defer c.timers.Unlock()
	if c.timers.stopped {
		return
	}
	if c.timers.strike == nil {
		c.timers.strike = time.AfterFunc(c.cfg.SlowInterval, c.strike)
		return
	}
	c.timers.strike.Reset(c.cfg.SlowInterval)
}

func (c *Conn) stopStrikes() {
	c.timers.Lock()
	defer c.timers.Unlock()
	if c.timers.strike != nil {
		c.timers.strike.Stop()
	}
}

func (c *Conn) strike() {
	n := c.queue.strike()
	switch {
	case n == 0:
	case n >= c.cfg.SlowStrikes:
		c.Abort(websocket.StatusPolicyViolation, "client too slow", metrics.OutcomeSlow)
	default:
		c.startStrikes()
	}
}

func (c *Conn) stopTimers() {
	c.timers.Lock()
	defer c.timers.Unlock()
	c.timers.stopped = true
	for _, t := range []*time.Timer{c.timers.ping, c.timers.strike, c.timers.last} {
		if t != nil {
			t.Stop()
		}
	}
}
