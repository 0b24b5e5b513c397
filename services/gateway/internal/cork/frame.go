package cork

import "encoding/binary"

// Opcodes of RFC 6455 §5.2 that the gateway writes, with the FIN bit set.
const (
	finText = 0x80 | 0x1
	finPing = 0x80 | 0x9
	finPong = 0x80 | 0xa

	opcodeMask  = 0x0f
	opcodeClose = 0x8
)

// maxHeader is the longest header of an unmasked frame.
const maxHeader = 10

// MaxControlPayload is the longest payload of a ping or a pong (RFC 6455 §5.5).
const MaxControlPayload = 125

// Frame is one complete server frame in up to two parts, or several that follow each other in one part. Its
// bytes are immutable once built, so one frame (or one Body) may be queued on any number of connections at once.
type Frame struct {
	// Head begins with the WebSocket header.
	Head []byte
	// Body continues the payload; nil when Head holds all of it.
	Body []byte
	// More is how many further frames Head holds. Body is nil if there are any.
	More int
}

// Count is the number of WebSocket frames.
func (f Frame) Count() int { return 1 + f.More }

// Size is the number of bytes the frame takes on the wire.
func (f Frame) Size() int { return len(f.Head) + len(f.Body) }

// Build makes a text frame in a single allocation: fill appends the payload to the slice that it is
// given and returns the result. hint is the expected payload length in bytes.
func Build(hint int, fill func(dst []byte) []byte) Frame {
	buf := fill(make([]byte, maxHeader, maxHeader+hint))
	return Frame{Head: sealHeader(buf, len(buf)-maxHeader)}
}

// Text makes a text frame of prefix followed by body. body is shared, not copied: many frames with
// different prefixes may point at the same one.
func Text(prefix, body []byte) Frame {
	buf := append(make([]byte, maxHeader, maxHeader+len(prefix)), prefix...)
	return Frame{Head: sealHeader(buf, len(prefix)+len(body)), Body: body}
}

// AppendText appends a text frame of prefix followed by body, for a Frame that holds several.
func AppendText(dst, prefix, body []byte) []byte {
	n := len(prefix) + len(body)
	switch {
	case n <= 125:
		dst = append(dst, finText, byte(n))
	case n <= 0xffff:
		dst = binary.BigEndian.AppendUint16(append(dst, finText, 126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, finText, 127), uint64(n))
	}
	return append(append(dst, prefix...), body...)
}

// Ping makes a ping frame without payload.
func Ping() Frame { return Frame{Head: []byte{finPing, 0}} }

// Pong makes the answer to a ping; payload is copied and must not exceed MaxControlPayload.
func Pong(payload []byte) Frame {
	if len(payload) > MaxControlPayload {
		payload = payload[:MaxControlPayload]
	}
	head := append(make([]byte, 0, 2+len(payload)), finPong, byte(len(payload)))
	return Frame{Head: append(head, payload...)}
}

// sealHeader writes the header of a text frame with n bytes of payload right before offset
// maxHeader of buf and returns buf from the header on.
func sealHeader(buf []byte, n int) []byte {
	switch {
	case n <= 125:
		buf = buf[maxHeader-2:]
		buf[1] = byte(n)
	case n <= 0xffff:
		buf = buf[maxHeader-4:]
		buf[1] = 126
		binary.BigEndian.PutUint16(buf[2:], uint16(n))
	default:
		buf[1] = 127
		binary.BigEndian.PutUint64(buf[2:], uint64(n))
	}
	buf[0] = finText
	return buf
}
