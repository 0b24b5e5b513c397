package conn

import (
	"errors"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

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
	c.cfg.Poller.rouse(c)
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

// carryOut performs the closing handshake; it returns after the peer's answer or the library's own timeout of 5 s, or when
// the last resort has closed the TCP connection. Nothing that comes until then is passed on.
func (c *Conn) carryOut(cl *closing) {
	c.net.Part()
	if cl.code != 0 {
		c.source.part()
		c.cfg.Poller.rouse(c)
		_ = c.ws.Close(cl.code, cl.reason) // the connection is closed whatever becomes of it
	}
	c.hangUp()
}

// finish is the last of a connection, on the goroutine that has read last; err is why it reads no more. When it calls
// ended nothing of the connection is left: no other goroutine, no timer, no socket.
func (c *Conn) finish(err error) {
	switch {
	case errors.Is(err, errLeft):
	case c.isViolation(err):
		// The library has told the peer why, mostly; then this only waits for the answer.
		c.Abort(websocket.StatusProtocolError, "protocol error", metrics.OutcomePeer)
	default:
		if c.queue.shut(&closing{cause: metrics.OutcomePeer, discard: true}) {
			c.startFlush()
		}
		c.hangUp()
	}
	c.queue.awaitRest()
	c.hangUp()
	_ = c.ws.CloseNow() // it may be closed already
	c.source.release()
	c.stopTimers()
	c.ended()
}
