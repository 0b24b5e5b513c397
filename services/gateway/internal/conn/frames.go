package conn

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
)

// Opcodes of RFC 6455 §5.2; those from opClose on are control frames.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa
)

// Parts of a frame's first two bytes.
const (
	finalBit   = 0x80
	reserved   = 0x70
	opcodeMask = 0x0f
	maskedBit  = 0x80
	lengthMask = 0x7f
	length16   = 126
	length64   = 127
)

// What a client may not send; the texts are told to it.
var (
	errReserved   = errors.New("reserved bits are set")
	errUnmasked   = errors.New("frame is not masked")
	errControl    = errors.New("control frame is too long or fragmented")
	errOpcode     = errors.New("unknown opcode")
	errLength     = errors.New("invalid length")
	errFragment   = errors.New("fragment out of place")
	errCloseFrame = errors.New("invalid close frame")
)

// isViolation reports whether an error is that the peer does not speak the protocol.
func isViolation(err error) bool {
	return slices.Contains([]error{errReserved, errUnmasked, errControl, errOpcode, errLength, errFragment, errCloseFrame}, err)
}

// header is that of a client's frame (RFC 6455 §5.2).
type header struct {
	final  bool
	opcode byte
	length int64
	mask   [4]byte
}

// parseHeader takes the header off the beginning of b. The size is 0 as long as b does not hold all of it. What is wrong
// in its first two bytes is found with these.
func parseHeader(b []byte) (h header, size int, err error) {
	if len(b) < 2 {
		return h, 0, nil
	}
	h.final, h.opcode, h.length = b[0]&finalBit != 0, b[0]&opcodeMask, int64(b[1]&lengthMask)
	switch {
	case b[0]&reserved != 0: // no extension was agreed on
		return h, 0, errReserved
	case b[1]&maskedBit == 0:
		return h, 0, errUnmasked
	case h.opcode > opBinary && h.opcode < opClose, h.opcode > opPong:
		return h, 0, errOpcode
	case h.opcode >= opClose && (!h.final || h.length > cork.MaxControlPayload):
		return h, 0, errControl
	}
	size = 2
	switch h.length {
	case length16:
		size += 2
	case length64:
		size += 8
	}
	if len(b) < size+len(h.mask) {
		return h, 0, nil
	}
	switch h.length {
	case length16:
		h.length = int64(binary.BigEndian.Uint16(b[2:]))
	case length64:
		h.length = int64(binary.BigEndian.Uint64(b[2:]))
	}
	if h.length < 0 {
		return h, 0, errLength
	}
	copy(h.mask[:], b[size:])
	return h, size + len(h.mask), nil
}

// unmask undoes the masking of payload, which begins at an offset in the frame's.
func unmask(payload []byte, mask [4]byte, offset int64) {
	var turned [8]byte
	for i := range turned {
		turned[i] = mask[(offset+int64(i))%4]
	}
	word := binary.NativeEndian.Uint64(turned[:])
	i := 0
	for ; i+8 <= len(payload); i += 8 {
		binary.NativeEndian.PutUint64(payload[i:], binary.NativeEndian.Uint64(payload[i:])^word)
	}
	for ; i < len(payload); i++ {
		payload[i] ^= turned[i%8]
	}
}

// closeCode returns the code that a close frame is answered with, its own; websocket.StatusNoStatusRcvd if it has none.
func closeCode(payload []byte) (websocket.StatusCode, error) {
	if len(payload) == 0 {
		return websocket.StatusNoStatusRcvd, nil
	}
	if len(payload) < 2 {
		return 0, errCloseFrame
	}
	code := websocket.StatusCode(binary.BigEndian.Uint16(payload))
	switch {
	case code >= 3000 && code <= 4999: // of libraries and applications
	case code < websocket.StatusNormalClosure, code > websocket.StatusBadGateway,
		code == 1004, code == websocket.StatusNoStatusRcvd, code == websocket.StatusAbnormalClosure:
		return 0, errCloseFrame
	}
	return code, nil
}
