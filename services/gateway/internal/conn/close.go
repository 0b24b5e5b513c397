package conn

import (
	"errors"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// answerTime is how long a peer may take to answer a close frame.
const answerTime = 5 * time.Second

// farewell is what the reading side knows of the end: that the peer has said its last.
type farewell struct {
	mu   sync.Mutex
	over bool
	wake chan struct{} // closed when it is over; nil if nobody waits
}

// said notes that nothing more will be read.
func (f *farewell) said() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

// await waits for said, at most for answerTime. It is called by one goroutine.
func (f *farewell) await() {
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		return
	}
	wake := make(chan struct{})
	f.wake = wake
	f.mu.Unlock()
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	}
}

// Close sends what is queued and then closes with code and reason (at most 123 bytes). Frames queued
// later vanish. It does not wait.
func (c *Conn) Close(code websocket.StatusCode, reason, cause string) {
	c.shut(&closing{code: code, reason: reason, cause: cause})
}

// Abort is Close without what is queued.
func (c *Conn) Abort(code websocket.StatusCode, reason, cause string) {
	c.shut(&closing{code: code, reason: reason, cause: cause, discard: true})
}

// Kill ends the TCP connection at once.
func (c *Conn) Kill() {
	if c.queue.shut(&closing{cause: metrics.OutcomeRestart, discard: true}) {
		c.startFlush()
	}
	c.hangUp()
}

// hangUp closes the TCP connection, which ends the reading and any write.
func (c *Conn) hangUp() {
	_ = c.net.Close() // it may be closed already
	c.end()
}

func (c *Conn) shut(cl *closing) {
	start := c.queue.shut(cl)
	if !start && c.queue.closing() != cl {
		return
	}
	c.timers.Lock()
	if !c.timers.stopped {
		c.timers.last = time.AfterFunc(c.cfg.CloseTimeout, c.hangUp)
	}
	c.timers.Unlock()
	if start {
		c.startFlush()
	}
}

// carryOut performs the closing handshake; it returns after the peer's answer, or when that takes too long, or when the
// last resort has closed the TCP connection. The reading side goes on until then, and passes nothing on.
func (c *Conn) carryOut(cl *closing) {
	c.net.Part()
	if cl.code != 0 {
		if _, err := c.net.Write(cork.Close(uint16(cl.code), cl.reason).Head); err == nil {
			c.farewell.await()
		}
	}
	c.hangUp()
}

// finish is the last of a connection, on the goroutine that has read last; err is why nothing more is read. When it calls
// ended nothing of the connection is left: no other goroutine, no timer, no socket.
func (c *Conn) finish(err error) {
	var left *parted
	switch {
	case errors.As(err, &left):
		// A close is answered with its code, and nothing after it (RFC 6455 §5.5.1), so what waits is dropped.
		c.Abort(left.code, "", metrics.OutcomePeer)
	case isViolation(err):
		c.Abort(websocket.StatusProtocolError, err.Error(), metrics.OutcomePeer)
	default:
		if c.queue.shut(&closing{cause: metrics.OutcomePeer, discard: true}) {
			c.startFlush()
		}
		c.hangUp()
	}
	c.farewell.said()
	c.queue.awaitRest()
	c.hangUp()
	c.stopTimers()
	c.ended()
}
