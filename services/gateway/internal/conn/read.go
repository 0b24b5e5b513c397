package conn

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// grace is how long a connection waits for the next frame with the stack that handling the last one needed. Who is
// silent for longer waits on a small one.
const grace = 2 * time.Second

// maxPooled is the largest message buffer that goes back to the pool; a few huge messages must not
// leave every pooled buffer huge.
const maxPooled = 64 << 10

var bufferPool = sync.Pool{New: func() any { b := make([]byte, 0, 2*cork.BufferSize); return &b }}

func getBuffer() *[]byte { return bufferPool.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= maxPooled {
		*b = (*b)[:0]
		bufferPool.Put(b)
	}
}

// errQuiet says that the peer has sent nothing for the grace and has nothing begun.
var errQuiet = errors.New("quiet")

// rest waits for a peer that is silent. It does nothing else, so that the goroutines of idle connections, which are
// most of all connections, keep the smallest stack there is; what comes is handled by another one.
func (c *Conn) rest() {
	b, err := c.net.Take()
	go c.work(b, err)
}

// work reads until the peer is silent or the connection ends; b is what was read already, and is released.
func (c *Conn) work(b *[]byte, err error) {
	r := reader{c: c, buffer: b}
	if b != nil {
		r.end = len(*b)
		c.net.Pace(r.end)
	}
	if err == nil {
		err = r.run()
	}
	cork.Release(r.buffer)
	if r.message != nil {
		putBuffer(r.message)
	}
	if errors.Is(err, errQuiet) {
		go c.rest()
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

// reader takes frames off a connection and passes messages on. It lives on the reading goroutine's stack.
type reader struct {
	c          *Conn
	buffer     *[]byte // nil: nothing is unread
	start, end int     // of what is unread in it
	// Of a message whose beginning has come: what was read of it, nil while it is none, and its type.
	message *[]byte
	text    bool
}

// run handles frames until there are none. The error says why: errQuiet, parted, a violation, or that of the
// connection.
func (r *reader) run() error {
	for {
		// A peer that sends without reading its answers is not read either.
		r.c.awaitControl()
		h, err := r.header()
		if err != nil {
			return err
		}
		r.c.net.Charge(frameCost)
		if h.opcode >= opClose {
			err = r.control(h)
		} else {
			err = r.data(h)
		}
		if err != nil {
			return err
		}
	}
}

// header takes the next frame's header.
func (r *reader) header() (header, error) {
	for {
		h, size, err := parseHeader(r.unread())
		if err != nil || size > 0 {
			r.start += size
			return h, err
		}
		if err := r.fill(r.start == r.end && r.message == nil); err != nil {
			return h, err
		}
	}
}

func (r *reader) unread() []byte {
	if r.buffer == nil {
		return nil
	}
	return (*r.buffer)[r.start:r.end]
}

// fill reads more. Between messages it holds no buffer while it waits, and waits for the grace only.
func (r *reader) fill(between bool) error {
	nc := r.c.net
	if between {
		cork.Release(r.buffer)
		r.buffer, r.start, r.end = nil, 0, 0
		// The deadline is left behind, and lifted by who meets it: most do not.
		if err := nc.SetReadDeadline(time.Now().Add(grace)); err != nil {
			return err
		}
		b, err := nc.Take()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := nc.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
			return errQuiet
		}
		if err != nil {
			return err
		}
		r.buffer, r.end = b, len(*b)
		nc.Pace(r.end)
		return nil
	}
	if r.buffer == nil {
		r.buffer = cork.Buffer()
	}
	all := (*r.buffer)[:cap(*r.buffer)]
	r.start, r.end = 0, copy(all, all[r.start:r.end])
	for {
		n, err := nc.Read(all[r.end:])
		r.end += n
		switch {
		case n > 0:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := nc.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	}
}

// take returns the next n bytes, unmasked; n is at most what the buffer holds. They are valid until the next fill.
func (r *reader) take(h header) ([]byte, error) {
	n := int(h.length)
	for r.end-r.start < n {
		if err := r.fill(false); err != nil {
			return nil, err
		}
	}
	payload := (*r.buffer)[r.start : r.start+n]
	r.start += n
	unmask(payload, h.mask, 0)
	return payload, nil
}

// control handles a control frame.
func (r *reader) control(h header) error {
	payload, err := r.take(h)
	if err != nil {
		return err
	}
	switch h.opcode {
	case opPing:
		r.c.Control(cork.Pong(payload))
	case opPong:
		r.c.missed.Store(0)
	case opClose:
		code, err := closeCode(payload)
		if err != nil {
			return err
		}
		return &parted{code}
	}
	return nil
}

// parted says that the peer has sent a close frame.
type parted struct{ code websocket.StatusCode }

func (p *parted) Error() string { return "closed by the peer" }

// data handles a frame of a message, which may be all of it.
func (r *reader) data(h header) error {
	if r.c.queue.closing() != nil {
		return r.discard(h.length)
	}
	if (h.opcode == opContinuation) != (r.message != nil) {
		return errFragment
	}
	limit := r.c.cfg.FrameLimit
	if r.message == nil {
		r.text = h.opcode == opText
		if h.final && h.length <= int64(min(limit, cork.BufferSize)) {
			payload, err := r.take(h)
			if err == nil {
				r.c.handler.Message(r.text, payload)
			}
			return err
		}
		r.message = getBuffer()
	}
	for left := h.length; left > 0; {
		if r.start == r.end {
			if err := r.fill(false); err != nil {
				return err
			}
		}
		// One byte more than the limit tells that there is more.
		part := r.unread()[:min(int64(r.end-r.start), left, int64(limit+1-len(*r.message)))]
		unmask(part, h.mask, h.length-left)
		*r.message = append(*r.message, part...)
		r.start += len(part)
		left -= int64(len(part))
		if len(*r.message) > limit {
			r.c.handler.TooBig(*r.message)
			r.c.Close(websocket.StatusMessageTooBig, "frame too large", metrics.OutcomeTooBig)
			return r.discard(left)
		}
	}
	if h.final {
		message := r.message
		r.c.handler.Message(r.text, *message)
		r.message = nil
		putBuffer(message)
	}
	return nil
}

// discard reads past n bytes.
func (r *reader) discard(n int64) error {
	if r.message != nil {
		putBuffer(r.message)
		r.message = nil
	}
	for n > 0 {
		if r.start == r.end {
			if err := r.fill(false); err != nil {
				return err
			}
		}
		part := min(int64(r.end-r.start), n)
		r.start += int(part)
		n -= part
	}
	return nil
}
