package attack

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/tools/bench/internal/rawws"
)

// attack is one sort of abuse. do is one blow, and is called as long as the connection holds.
type attack struct {
	name string
	as   standing
	do   func(s *socket) error
	deaf bool          // does not take what the relay answers
	time time.Duration // of one connection; 0 is sessionTime
}

// lurking are the attacks that last, whatever the others do.
var lurking = []attack{
	{name: "slow bytes", as: anyone, do: slowBytes, time: lurkTime},
	{name: "never reads", as: member, do: neverReads, time: lurkTime, deaf: true},
}

// attacks are what attackers take turns in.
var attacks = []attack{
	{name: "truncated frames", as: member, do: func(s *socket) error { return s.text(s.truncated()) }},
	{name: "frames as large as may be", as: member, do: func(s *socket) error { return s.text(s.sized(frameLimit - s.rng.IntN(3))) }},
	{name: "frames too large", as: member, do: func(s *socket) error { return s.text(s.sized(frameLimit + 1 + s.rng.IntN(frameLimit))) }},
	{name: "deep nesting", as: member, do: func(s *socket) error { return s.text(s.nested(1 + s.rng.IntN(80_000))) }},
	{name: "escapes and surrogates", as: member, do: func(s *socket) error { return s.text(s.escaped(s.rng.IntN(40_000))) }},
	{name: "invalid UTF-8", as: member, do: func(s *socket) error { return s.text(s.garbled(s.rng.IntN(20_000))) }},
	{name: "binary frames", as: member, do: func(s *socket) error { return s.frame(rawws.Final|rawws.Binary, s.bytes(s.rng.IntN(20_000))) }},
	{name: "pings and pongs", as: member, do: controls},
	{name: "fragments", as: member, do: fragments},
	{name: "broken framing", as: member, do: broken},
	{name: "a thousand filters", as: member, do: func(s *socket) error { return s.text(s.many(1000)) }},
	{name: "maximal lists", as: member, do: func(s *socket) error { return s.text(s.lists()) }},
	{name: "subscriptions that come and go", as: member, do: churn},
	{name: "one subscription id", as: member, do: func(s *socket) error { return s.text(wire.AppendReq(nil, "same", s.wanted())) }},
	{name: "forged signatures", as: member, do: func(s *socket) error { return s.text(s.forged()) }},
	{name: "wrong ids", as: member, do: func(s *socket) error { return s.text(s.misnamed()) }},
	{name: "maximal tags", as: member, do: func(s *socket) error { return s.text(s.tagged()) }},
	{name: "counts", as: member, do: func(s *socket) error { return s.text(wire.AppendCountReq(nil, s.hex(2), s.wanted())) }},
	{name: "deaf flood", as: member, do: func(s *socket) error { return s.text(wire.AppendReq(nil, s.hex(2), nostr.Filter{})) }, deaf: true},
	{name: "logins", as: anyone, do: func(s *socket) error { return s.text(s.proof(s.hex(32))) }},
	{name: "commands before a login", as: anyone, do: func(s *socket) error { return s.text(s.forged()) }},
	{name: "HTTP bodies", as: stranger, do: bodies},
	{name: "HTTP headers", as: stranger, do: headers},
}

// controls floods with frames that the relay must answer, or has not asked for.
func controls(s *socket) error {
	for range 100 {
		if err := s.frame(rawws.Final|[]byte{rawws.Ping, rawws.Pong}[s.rng.IntN(2)], s.bytes(s.rng.IntN(126))); err != nil {
			return err
		}
	}
	return nil
}

// fragments sends a message in pieces of a few bytes with pings between them, and seldom ends it.
func fragments(s *socket) error {
	message := submit(s.event(s.hex(2000), nil))
	for i, opcode := 0, byte(rawws.Text); i < len(message); opcode = rawws.Continuation {
		n := min(1+s.rng.IntN(3), len(message)-i)
		if i+n == len(message) && s.rng.IntN(4) == 0 {
			opcode |= rawws.Final
		}
		if err := s.frame(opcode, message[i:i+n]); err != nil {
			return err
		}
		if s.rng.IntN(8) == 0 {
			if err := s.frame(rawws.Final|rawws.Ping, nil); err != nil {
				return err
			}
		}
		i += n
	}
	// Continuations of nothing in them, and never an end.
	for range 1000 {
		if err := s.frame(rawws.Continuation, nil); err != nil {
			return err
		}
	}
	return nil
}

// broken breaks RFC 6455 itself: a continuation of nothing, a message in a message, reserved bits and opcodes, a
// control frame that is too long, a length that nobody can mean.
func broken(s *socket) error {
	switch s.rng.IntN(6) {
	case 0:
		return s.frame(rawws.Final|rawws.Continuation, s.bytes(1000))
	case 1:
		if err := s.frame(rawws.Text, []byte(`["REQ"`)); err != nil {
			return err
		}
		return s.frame(rawws.Final|rawws.Text, []byte(`["CLOSE","x"]`))
	case 2:
		return s.frame(rawws.Final|0x70|rawws.Text, s.bytes(1000))
	case 3:
		return s.frame(rawws.Final|7, s.bytes(1000))
	case 4:
		return s.frame(rawws.Final|rawws.Ping, s.bytes(1000))
	default:
		return s.raw(append([]byte{rawws.Final | rawws.Text, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, s.bytes(65536)...))
	}
}

// churn opens subscriptions and closes them, some at once, some never.
func churn(s *socket) error {
	id := s.hex(2)
	if err := s.text(wire.AppendReq(nil, id, s.wanted(), s.wanted())); err != nil {
		return err
	}
	if s.rng.IntN(4) == 0 {
		return nil
	}
	return s.text(wire.AppendClose(nil, id))
}

// bodies posts to the HTTP bridge: without a signature, with one that is junk, more than is taken, or without end.
func bodies(s *socket) error {
	path := []string{"/query", "/count", "/", "/nowhere"}[s.rng.IntN(4)]
	proof := []string{"", "Authorization: Nostr " + s.hex(500) + "\r\n", "Authorization: Nostr e30=\r\n"}[s.rng.IntN(3)]
	size := s.rng.IntN(2 << 20)
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Type: application/nostr+json+rpc\r\nContent-Length: %d\r\n\r\n",
		path, s.addr, proof, size)
	if err := s.raw([]byte(head)); err != nil {
		return err
	}
	return s.raw(bytes.Repeat([]byte("["), size-s.rng.IntN(2)*size/2))
}

// headers sends a request whose head has no end.
func headers(s *socket) error {
	if err := s.raw([]byte("GET / HTTP/1.1\r\nHost: " + s.addr + "\r\n")); err != nil {
		return err
	}
	for range 2000 {
		if err := s.raw([]byte("X-" + s.hex(4) + ": " + strings.Repeat("y", 500) + "\r\n")); err != nil {
			return err
		}
	}
	return nil
}

// slowBytes sends a frame byte by byte.
func slowBytes(s *socket) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for _, b := range append([]byte{rawws.Final | rawws.Text, 0x80 | 126, 0x10, 0, 0, 0, 0, 0}, s.truncated()...) {
		if err := s.raw([]byte{b}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	return nil
}

// neverReads asks for everything, of which it takes nothing.
func neverReads(s *socket) error {
	for i := range 100 {
		if err := s.text(wire.AppendReq(nil, strconv.Itoa(i), nostr.Filter{})); err != nil {
			return err
		}
	}
	<-s.ctx.Done()
	return s.ctx.Err()
}
