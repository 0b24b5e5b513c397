package cork

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosing is returned by writes after a close frame has gone out or a write has failed: the byte
// stream has ended, whatever the state of the TCP connection.
var ErrClosing = errors.New("websocket stream has ended")

// Listener wraps every accepted connection in a Conn, so that the WebSocket library gets a connection that shares its
// writes with us.
type Listener struct {
	net.Listener
	timeout time.Duration
	slots   chan struct{} // nil without a limit
	closing sync.Once
	closed  chan struct{}
}

// Listen wraps l. writeTimeout is how long one write may make no progress before the connection
// counts as dead; limit bounds the TCP connections open at once, whatever they do (0: no limit). At
// the limit the kernel's backlog holds newcomers.
func Listen(l net.Listener, writeTimeout time.Duration, limit int) *Listener {
	c := &Listener{Listener: l, timeout: writeTimeout, closed: make(chan struct{})}
	if limit > 0 {
		c.slots = make(chan struct{}, limit)
	}
	return c
}

// Accept waits for the next connection. The returned net.Conn is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err // net/http looks at the listener's own error
	}
	conn := New(c, l.timeout)
	if l.slots != nil {
		// One connection over the limit waits here.
		select {
		case l.slots <- struct{}{}:
			conn.release = func() { <-l.slots }
		case <-l.closed:
			_ = c.Close() // nobody has heard of it
			return nil, net.ErrClosed
		}
	}
	return conn, nil
}

// Close stops accepting.
func (l *Listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Conn serialises whole-frame writes of two writers: the WebSocket library through Write, and the gateway's writer
// through WriteFrames.
type Conn struct {
	net.Conn
	timeout time.Duration
	closed  sync.Once
	gone    chan struct{} // closed by Close
	release func()        // gives the listener's slot back; nil without a limit

	// Only the reader touches these, but for the meter, which is set before it begins.
	meter   func(read int) time.Duration // nil: reading costs nothing
	charged int
	parting atomic.Bool // reading costs nothing any more

	mu      sync.Mutex // serialises writes; guards what follows
	framing bool       // the handshake is over: every Write is one control frame
	ended   bool       // a close frame is out, or a frame was cut short
}

// New wraps c. A write that makes no progress for timeout fails and ends the stream.
func New(c net.Conn, timeout time.Duration) *Conn {
	return &Conn{Conn: c, timeout: timeout, gone: make(chan struct{})}
}

// Close closes the connection; only the first call has an effect on the listener's limit.
func (c *Conn) Close() error {
	c.closed.Do(func() {
		close(c.gone)
		if c.release != nil {
			c.release()
		}
	})
	return c.Conn.Close()
}

// Meter has every later Read tell how many bytes were read, with what was charged besides, and then wait as long as
// meter says: so a client is held back, by TCP in the end, however it cuts its bytes into frames. It is called
// before the reader of frames begins.
func (c *Conn) Meter(meter func(read int) time.Duration) { c.meter = meter }

// Part ends the metering, for a connection that is about to be closed: what a peer that was held back has sent is
// not worth the wait for its answer to the close, or for its end. A wait that has begun ends by itself.
func (c *Conn) Part() { c.parting.Store(true) }

// Charge adds to what the next Read tells. Only the reader may call it.
func (c *Conn) Charge(bytes int) { c.charged += bytes }

// Read implements net.Conn for the HTTP server and the WebSocket library.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.Pace(n)
	return n, err
}

// Pace tells the meter of n bytes read, with what was charged besides, and waits as long as it says. Only the reader
// may call it.
func (c *Conn) Pace(n int) {
	if c.meter == nil || c.parting.Load() {
		return
	}
	wait := c.meter(n + c.charged)
	c.charged = 0
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.gone:
	}
}

// BeginFrames says that the HTTP handshake has been written. From here on each Write must be exactly
// one frame, which holds for the library: it flushes its buffer once per control frame.
func (c *Conn) BeginFrames() {
	c.mu.Lock()
	c.framing = true
	c.mu.Unlock()
}

// Write implements net.Conn for the HTTP server and the WebSocket library. It blocks while a
// vectored write is under way.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.framing {
		return c.Conn.Write(p)
	}
	if c.ended {
		return 0, ErrClosing
	}
	if len(p) > 0 && p[0]&opcodeMask == opcodeClose {
		c.ended = true // RFC 6455 §5.5.1: no data frame after a close frame
	}
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		c.ended = true
	}
	return n, err
}

// patience is how many write timeouts a peer may take for one batch while it keeps taking bytes. Without a
// bound, one byte now and then would keep a full queue in memory for ever.
const patience = 12

// WriteFrames writes the frames in order with one vectored write if the system takes them at once.
// scratch is reused for the list of parts and may be nil. It blocks as long as the peer keeps taking
// bytes, and fails when it takes none for the write timeout, or not all in twelve of them; after a failure
// part of a frame may be on the wire, so the stream has ended and the caller should close the connection.
func (c *Conn) WriteFrames(frames []Frame, scratch *net.Buffers) error {
	if scratch == nil {
		scratch = new(net.Buffers)
	}
	parts := (*scratch)[:0]
	for _, f := range frames {
		parts = append(parts, f.Head)
		if len(f.Body) > 0 {
			parts = append(parts, f.Body)
		}
	}
	*scratch = parts
	defer func() {
		clear(parts) // the scratch must not keep payloads alive
		*scratch = parts[:0]
	}()

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return ErrClosing
	}
	end := time.Now().Add(patience * c.timeout)
	for {
		deadline := time.Now().Add(c.timeout)
		if deadline.After(end) {
			deadline = end
		}
		if err := c.SetWriteDeadline(deadline); err != nil {
			c.ended = true
			return fmt.Errorf("set write deadline: %w", err)
		}
		n, err := scratch.WriteTo(c.Conn)
		if err == nil {
			return nil
		}
		// The timeout bounds silence: a slow peer that still reads is judged by its queue first.
		// WriteTo has taken what was written off the list.
		if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) && deadline.Before(end) {
			continue
		}
		c.ended = true
		return fmt.Errorf("write %d frames: %w", len(frames), err)
	}
}

// Ended reports whether no more frames can be written.
func (c *Conn) Ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}
