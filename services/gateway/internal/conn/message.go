package conn

import (
	"sync"

	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
)

// Sizes of the buffers of messages that are kept for later ones: they double from what two reads off the socket bring to 1 MiB.
const (
	leastMessage = 2 * cork.BufferSize
	keptSizes    = 8
)

// messagePools hold empty buffers, one pool for each size: so the long ones, which take the most time to make, to clear and to
// collect, are used again, and none of them for a short message.
var messagePools [keptSizes]sync.Pool

// message is what of a message has been read. Its memory is lent: at most twice as much as has been read, or the least.
type message struct {
	buffer *[]byte
	size   int // the buffer has room for leastMessage<<size bytes, and one
}

func newMessage() message {
	var m message
	m.take()
	return m
}

// take gets an empty buffer of the size.
func (m *message) take() {
	if m.size < keptSizes {
		if b, ok := messagePools[m.size].Get().(*[]byte); ok {
			m.buffer = b
			return
		}
	}
	b := make([]byte, 0, leastMessage<<m.size+1) // and one more, to see that a message of that size has ended
	m.buffer = &b
}

// room returns the part of the buffer that is free, but none of it beyond most bytes altogether. There is some unless so much
// has been read.
func (m *message) room(most int) []byte {
	if n := len(*m.buffer); n == cap(*m.buffer) {
		full := *m
		m.size++
		m.take()
		*m.buffer = append(*m.buffer, *full.buffer...)
		full.release()
	}
	b := *m.buffer
	return b[len(b):min(cap(b), most)]
}

// add says that n bytes of the room were filled.
func (m *message) add(n int) { *m.buffer = (*m.buffer)[:len(*m.buffer)+n] }

// bytes is valid until room or release is called.
func (m *message) bytes() []byte { return *m.buffer }

// release gives the buffer back.
func (m *message) release() {
	if m.size < keptSizes {
		*m.buffer = (*m.buffer)[:0]
		messagePools[m.size].Put(m.buffer)
	}
}
