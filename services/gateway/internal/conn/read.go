package conn

import (
	"errors"
	"io"
	"sync"
)

// errTooBig ends the reading of a message that exceeds the limit.
var errTooBig = errors.New("message too big")

// maxPooled is the largest read buffer that goes back to the pool; a few huge messages must not
// leave every pooled buffer huge.
const maxPooled = 64 << 10

var bufferPool = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

func getBuffer() *[]byte { return bufferPool.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= maxPooled {
		bufferPool.Put(b)
	}
}

// readLimited reads one message to its end into buf, growing it as needed. With more than limit
// bytes it returns what it has and errTooBig.
func readLimited(r io.Reader, buf []byte, limit int) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), max(limit+1, len(buf)+1))])
		buf = buf[:len(buf)+n]
		if len(buf) > limit {
			return buf, errTooBig
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}
