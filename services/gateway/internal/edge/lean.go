package edge

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Sizes of a connection's buffers after the handshake. Longer reads go past the buffer, and only control
// frames, at most 127 bytes, are written through the library's.
const (
	readBuffer  = 2 << 10
	writeBuffer = 256
)

// lean is a ResponseWriter whose Hijack gives small buffers instead of the HTTP server's 4 KiB each,
// which would live as long as the connection.
type lean struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (l lean) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(l.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	r := rw.Reader
	if n := r.Buffered(); n <= readBuffer {
		small := bufio.NewReaderSize(struct{ io.Reader }{r}, readBuffer) // bufio would return r itself
		// What the client sent right behind its handshake must be in the new reader's buffer, because the
		// library goes on with that and the connection, past the old reader.
		if _, err := small.Peek(n); err != nil {
			return nil, nil, err
		}
		r = small
	}
	return c, bufio.NewReadWriter(r, bufio.NewWriterSize(c, writeBuffer)), nil
}
