package crowd

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/tools/bench/internal/rawws"
)

// errClosed says that the server closed the connection.
var errClosed = errors.New("closed by the server")

// handshakeTime bounds what is done before a socket listens.
const handshakeTime = 30 * time.Second

// Socket is a WebSocket client that costs next to nothing to read from, so that on a busy machine the server is
// measured and not the client: frames are looked at where they were read, nothing is allocated for one. Reading
// is for one goroutine, writing for any.
type Socket struct {
	conn   net.Conn
	url    string
	secret *nostr.SecretKey // of Nostr

	buf        []byte // what was read
	start, end int    // of what was not looked at yet

	mu  sync.Mutex // serialises writes
	out []byte     // guarded by mu
}

// bufferSize is more than one frame of any server here.
const bufferSize = 64 << 10

// Dial opens a WebSocket at ws://ADDR PATH.
func Dial(ctx context.Context, addr, path string) (*Socket, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Socket{conn: conn, url: "ws://" + addr + path, buf: make([]byte, bufferSize)}
	if err := s.shake(addr, path); err != nil {
		conn.Close()
		return nil, fmt.Errorf("handshake with %s: %w", s.url, err)
	}
	return s, nil
}

func (s *Socket) shake(addr, path string) error {
	if err := s.conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	if path == "" {
		path = "/"
	}
	reader := bufio.NewReaderSize(s.conn, 4<<10)
	err := rawws.Upgrade(s.conn, reader, addr, path)
	if err != nil {
		return err
	}
	s.end, err = io.ReadFull(reader, s.buf[:reader.Buffered()])
	return err
}

// Listening lifts the deadline that everything before has.
func (s *Socket) Listening() error { return s.conn.SetDeadline(time.Time{}) }

// Close ends the connection without a word.
func (s *Socket) Close() { s.conn.Close() }

// Write sends a text frame. The mask is zeros, so that the payload stands as it is.
func (s *Socket) Write(payload []byte) error { return s.write(rawws.Text, payload) }

func (s *Socket) write(opcode byte, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := rawws.Append(s.out[:0], rawws.Final|opcode, payload)
	s.out = b
	_, err := s.conn.Write(b)
	return err
}

// Next returns the payload of the next message, which is valid until the following call. Pings are answered.
func (s *Socket) Next() ([]byte, error) {
	for {
		payload, err := s.buffered()
		if payload != nil || err != nil {
			return payload, err
		}
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
}

// Each waits for messages and calls f for each that is there. It does not wait again after that.
func (s *Socket) Each(f func(payload []byte)) error {
	for told := false; ; {
		payload, err := s.buffered()
		switch {
		case err != nil:
			return err
		case payload != nil:
			f(payload)
			told = true
		case told:
			return nil
		default:
			if err := s.fill(); err != nil {
				return err
			}
		}
	}
}

// fill reads once.
func (s *Socket) fill() error {
	if s.start > 0 {
		s.end = copy(s.buf, s.buf[s.start:s.end])
		s.start = 0
	}
	if s.end == len(s.buf) {
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	}
	n, err := s.conn.Read(s.buf[s.end:])
	s.end += n
	if n > 0 {
		return nil
	}
	return err
}

// buffered returns the next message that is there in full, nil if there is none. No server here sends fragments.
func (s *Socket) buffered() ([]byte, error) {
	for {
		b := s.buf[s.start:s.end]
		if len(b) < 2 {
			return nil, nil
		}
		head, size := 2, int(b[1])
		switch size {
		case 126:
			if head = 4; len(b) < head {
				return nil, nil
			}
			size = int(binary.BigEndian.Uint16(b[2:]))
		case 127:
			if head = 10; len(b) < head {
				return nil, nil
			}
			size = int(binary.BigEndian.Uint64(b[2:]))
		}
		if len(b) < head+size {
			return nil, nil
		}
		s.start += head + size
		payload := b[head : head+size : head+size]
		switch b[0] & 0x0f {
		case rawws.Close:
			return nil, fmt.Errorf("%w: %q", errClosed, payload)
		case rawws.Ping:
			if err := s.write(rawws.Pong, payload); err != nil {
				return nil, err
			}
		case rawws.Pong:
		default:
			return payload, nil
		}
	}
}
