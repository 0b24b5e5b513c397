package attack

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/tools/bench/internal/rawws"
)

// standing is how far an attacker goes before it attacks.
type standing int

const (
	stranger standing = iota // a TCP connection
	anyone                   // a WebSocket
	member                   // a WebSocket that has authenticated
)

// socket is an attacker's connection. It writes frames as it likes, which no library would let it do.
type socket struct {
	ctx    context.Context
	conn   net.Conn
	addr   string
	reader *bufio.Reader
	rng    *rand.Rand
	secret *nostr.SecretKey
	sig    nostr.Sig // of some event
	buf    []byte

	sent  int64
	total *atomic.Int64 // over all sockets
	most  int64         // at which the attack ends
	share int64         // at which this connection ends
}

// more reports whether the attack goes on over this connection.
func (s *socket) more() bool {
	return s.ctx.Err() == nil && s.sent < s.share && s.total.Load() < s.most
}

// Write implements io.Writer: bytes go out as they are, and are counted.
func (s *socket) Write(b []byte) (int, error) {
	n, err := s.conn.Write(b)
	s.sent += int64(n)
	s.total.Add(int64(n))
	return n, err
}

func (s *socket) raw(b []byte) error {
	_, err := s.Write(b)
	return err
}

// frame writes one frame: first is its first byte, the rawws.Final bit and the opcode.
func (s *socket) frame(first byte, payload []byte) error {
	s.buf = rawws.Append(s.buf[:0], first, payload)
	return s.raw(s.buf)
}

func (s *socket) text(payload []byte) error { return s.frame(rawws.Final|rawws.Text, payload) }

func (s *socket) discard() { _, _ = io.Copy(io.Discard, s.reader) }

// enter goes as far as as.
func (s *socket) enter(as standing) error {
	s.reader = bufio.NewReader(s.conn)
	if as == stranger {
		return nil
	}
	if err := rawws.Upgrade(s, s.reader, s.addr, "/"); err != nil {
		return err
	}
	challenge, err := s.read()
	if err != nil {
		return err
	}
	if s.secret, err = nostr.ParseSecretKey(s.hex(32)); err != nil {
		return err
	}
	if as == anyone {
		return nil
	}
	if err := s.text(s.proof(challenge.Message)); err != nil {
		return err
	}
	ok, err := s.read()
	if err == nil && !ok.OK {
		err = fmt.Errorf("the relay answered %s", ok.Message)
	}
	return err
}

// proof is an AUTH frame for a challenge.
func (s *socket) proof(challenge string) []byte {
	event := nostr.Event{
		Kind: nostr.KindAuth, CreatedAt: time.Now().Unix(),
		Tags: nostr.Tags{{"relay", "ws://" + s.addr}, {"challenge", challenge}},
	}
	s.sign(&event)
	s.sig = event.Sig
	return wire.AppendClientAuth(nil, event.AppendJSON(nil))
}

// sign signs with the attacker's key, which is none in one of 2^128 cases, when the event stays unsigned.
func (s *socket) sign(event *nostr.Event) { _ = event.Sign(s.secret) }

// read reads one short text frame.
func (s *socket) read() (wire.RelayFrame, error) {
	var head [2]byte
	if _, err := io.ReadFull(s.reader, head[:]); err != nil {
		return wire.RelayFrame{}, err
	}
	n := int(head[1])
	if n == 126 {
		var size [2]byte
		if _, err := io.ReadFull(s.reader, size[:]); err != nil {
			return wire.RelayFrame{}, err
		}
		n = int(binary.BigEndian.Uint16(size[:]))
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(s.reader, payload); err != nil {
		return wire.RelayFrame{}, err
	}
	return wire.DecodeRelay(payload)
}
