package cork

import (
	"io"
	"net"
	"sync"
	"syscall"
)

// BufferSize is how much one Take reads at most, in bytes: several events, or the beginning of a large one.
const BufferSize = 4 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, BufferSize); return &b }}

// Buffer returns an empty buffer of BufferSize, to be given back with Release.
func Buffer() *[]byte { return buffers.Get().(*[]byte) }

// Release gives a buffer back that Take or Buffer has returned; nil is none.
func Release(b *[]byte) {
	if b != nil && cap(*b) == BufferSize {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// Take waits until the peer has sent something and returns it in a buffer, which the caller releases; with an error there is
// none. While it waits there is no buffer, so that a silent connection costs none, and the stack is shallow. What it
// reads is not metered: the caller says Pace. Only the reader may call it.
func (c *Conn) Take() (*[]byte, error) {
	if raw, ok := c.Raw(); ok && rawReads {
		t := taking{}
		if err := raw.Read(t.try); err != nil {
			return nil, err // nothing was read
		}
		return t.result()
	}
	b := Buffer()
	n, err := c.Conn.Read((*b)[:BufferSize])
	*b = (*b)[:n]
	if n == 0 && err != nil {
		Release(b)
		return nil, err
	}
	return b, nil
}

// Raw is the socket itself, past the buffer that a Read needs while it waits. A pipe in memory has none.
func (c *Conn) Raw() (syscall.RawConn, bool) {
	sys, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return nil, false
	}
	raw, err := sys.SyscallConn()
	return raw, err == nil
}

// taking is a Take under way.
type taking struct {
	buffer *[]byte
	err    error
}

// try reads what there is; false when that is nothing yet.
func (t *taking) try(fd uintptr) bool {
	b := Buffer()
	n, again, err := readNow(fd, (*b)[:BufferSize])
	switch {
	case again:
		Release(b)
		return false
	case err == nil && n == 0:
		err = io.EOF
	}
	*b = (*b)[:max(n, 0)]
	t.buffer, t.err = b, err
	return true
}

func (t *taking) result() (*[]byte, error) {
	if t.err != nil {
		Release(t.buffer)
		return nil, t.err
	}
	return t.buffer, nil
}
