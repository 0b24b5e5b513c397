package conn

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// grace is how long a connection waits for the next frame with the stack that handling the last one needed. Who is
// silent for longer waits on a small one.
const grace = 2 * time.Second

// errTooBig ends the reading of a message that exceeds the limit.
var errTooBig = errors.New("message too big")

// begin is the first of a connection that reads.
func (c *Conn) begin() { c.work(c.source.await(grace)) }

// settle waits for a peer that is silent, which most are, without a goroutine if it can.
func (c *Conn) settle() {
	if !c.cfg.Poller.seat(c) {
		go c.rest()
		return
	}
	// Who ends the wait may have come before it had begun.
	if c.source.parting.Load() || c.ctx.Err() != nil {
		c.cfg.Poller.rouse(c)
	}
}

// rest waits for a peer that is silent, or takes what has come since. It does nothing else, so that such a goroutine keeps the
// smallest stack there is; what comes is handled by another one.
func (c *Conn) rest() {
	taken, err := 0, c.source.enter()
	if err == nil {
		taken, err = c.source.leave(c.net.Take())
	}
	go c.work(taken, err)
}

// work reads until the peer is silent or the connection ends. taken is how much was taken off the socket for it, and err why
// nothing was.
func (c *Conn) work(taken int, err error) {
	for err == nil {
		c.net.Pace(taken)
		c.heard = false
		if err = c.read(); err == nil {
			// A peer that sends without reading its answers is not read either.
			c.awaitControl()
			patience := time.Duration(0) // a pong is no sign that something follows
			if c.heard {
				patience = grace
			}
			taken, err = c.source.await(patience)
		}
	}
	if errors.Is(err, errQuiet) {
		c.settle()
		return
	}
	c.finish(err)
}

// awaitControl waits until at most half of the control frames' budget is in use, or the connection is closing.
func (c *Conn) awaitControl() {
	for wake := c.queue.waitRoom(control); wake != nil; wake = c.queue.waitRoom(control) {
		select {
		case <-wake:
		case <-c.ctx.Done():
			return
		}
	}
}

// read lets the library read a message, and passes it on, or the control frames that there are.
func (c *Conn) read() error {
	// A context that can be cancelled costs the library a timer per frame; closing the connection is how reading ends.
	ctx := context.WithoutCancel(c.ctx)
	typ, r, err := c.ws.Reader(ctx)
	if errors.Is(err, errBoundary) {
		return nil
	}
	if err != nil {
		return err
	}
	c.heard = true
	c.within = true // until the message is read; an error is the end of reading
	if c.queue.closing() != nil {
		if _, err := io.Copy(io.Discard, r); err != nil {
			return err
		}
		c.within = false
		return nil
	}
	msg := newMessage()
	defer msg.release()
	err = c.readLimited(r, &msg)
	c.within = false
	switch {
	case err == nil:
		c.handler.Message(typ == websocket.MessageText, msg.bytes())
	case errors.Is(err, errTooBig):
		// The rest of the message is still on the wire. The closing handshake reads past it, so it has the reading side
		// to itself now.
		c.handler.TooBig(msg.bytes())
		c.Close(websocket.StatusMessageTooBig, "frame too large", metrics.OutcomeTooBig)
		return errLeft
	}
	return err
}

// readLimited reads one message to its end into msg. When there are more bytes than the limit it stops at errTooBig with one
// more than that.
func (c *Conn) readLimited(r io.Reader, msg *message) error {
	limit := c.cfg.FrameLimit
	c.net.Charge(frameCost)
	for ended := false; ; {
		part := msg.room(limit + 1)
		n, err := r.Read(part)
		if n > 0 && ended {
			c.net.Charge(frameCost) // this is the next fragment
		}
		ended = n < len(part)
		msg.add(n)
		switch {
		case len(msg.bytes()) > limit:
			return errTooBig
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// onPing answers through the queue instead of the library, so that reading never waits for a write.
func (c *Conn) onPing(_ context.Context, payload []byte) bool {
	if c.onControl() {
		c.Control(cork.Pong(payload))
		c.awaitControl()
	}
	return false
}

func (c *Conn) onPong(context.Context, []byte) {
	if c.onControl() {
		c.missed.Store(0)
	}
}

// onControl notes a control frame, which the library has read to its end. It reports false if the closing handshake did.
func (c *Conn) onControl() bool {
	if c.source.parting.Load() {
		return false
	}
	c.net.Charge(frameCost)
	if !c.within {
		c.source.between()
	}
	return true
}

// isViolation reports whether reading has ended with err because the peer does not speak the protocol.
func (c *Conn) isViolation(err error) bool {
	return !c.source.failed.Load() && websocket.CloseStatus(err) == -1 && !errors.Is(err, net.ErrClosed)
}
