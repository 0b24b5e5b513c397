// Package rawws has what the clients of the benchmarks need of WebSocket (RFC 6455) and no library gives them: frames that
// a server must refuse, and connections that cost next to nothing.
package rawws

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
)

// The opcodes of RFC 6455, section 5.2, and the bit that says that a message ends with its frame.
const (
	Continuation = 0x0
	Text         = 0x1
	Binary       = 0x2
	Close        = 0x8
	Ping         = 0x9
	Pong         = 0xa
	Final        = 0x80
)

// masked is the bit of the second byte that every frame of a client has.
const masked = 0x80

// Append appends a client's frame: first is its first byte, the final bit and the opcode. The mask is zeros, so that the
// payload stands as it is.
func Append(dst []byte, first byte, payload []byte) []byte {
	dst = append(dst, first)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, masked|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, masked|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, masked|127), uint64(n))
	}
	return append(append(dst, 0, 0, 0, 0), payload...)
}

// Upgrade asks the server at HOST:PORT for a WebSocket at path and reads its answer; what has come after that stays in r.
// The key's answer is not checked: whoever uses this has started the server.
func Upgrade(w io.Writer, r *bufio.Reader, addr, path string) error {
	if _, err := io.WriteString(w, "GET "+path+" HTTP/1.1\r\nHost: "+addr+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("the server answered %s", resp.Status)
	}
	return nil
}
