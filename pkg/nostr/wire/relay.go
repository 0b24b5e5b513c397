package wire

import (
	"encoding/hex"
	"math"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// RelayFrame is a relay's frame, seen by a client. Which fields are set depends on the label.
type RelayFrame struct {
	// Label is EVENT, OK, EOSE, CLOSED, NOTICE, AUTH or COUNT.
	Label Label
	// SubID is the subscription or query id of EVENT, EOSE, CLOSED and COUNT.
	SubID string
	// RawEvent is the event object of EVENT: exactly its bytes, a slice of the input.
	RawEvent []byte
	// EventID is the id in OK, and the id field of the event in EVENT.
	EventID nostr.ID
	// OK is the verdict of OK.
	OK bool
	// Message is the text of OK, CLOSED and NOTICE, and the challenge of AUTH.
	Message string
	// Count is the number in COUNT.
	Count uint64
	// HLL are the 256 registers of NIP-45's HyperLogLog in COUNT, nil if the relay sent none.
	HLL []byte
}

// Registers is the number of registers of NIP-45's HyperLogLog.
const Registers = 256

// DecodeRelay decodes a relay's frame (NIP-01, NIP-42, NIP-45). It is for clients, which bound what they
// read themselves: no limit but the nesting is applied. An error is a *DecodeError.
func DecodeRelay(b []byte) (RelayFrame, error) {
	d := relayDecoder{frameDecoder: frameDecoder{scanner: scanner{b: b, max: DefaultLimits().depth()}}}
	if !d.decode() {
		return RelayFrame{}, d.refuse(DecodeError{Label: d.f.Label, SubID: d.f.SubID, EventID: d.f.EventID, HaveID: d.f.HaveID})
	}
	d.r.Label, d.r.SubID, d.r.RawEvent, d.r.EventID = d.f.Label, d.f.SubID, d.f.RawEvent, d.f.EventID
	return d.r, nil
}

type relayDecoder struct {
	frameDecoder
	r RelayFrame
}

func (d *relayDecoder) decode() bool {
	if d.peek() != '[' {
		return d.fail("a frame must be a JSON array")
	}
	if !d.enter() || !d.relayLabel() {
		return false
	}
	var ok bool
	switch d.f.Label {
	case LabelEvent:
		ok = d.next() && d.subID() && d.next() && d.event()
	case LabelOK:
		ok = d.next() && d.hex(d.f.EventID[:], "the id of OK") && d.next() && d.verdict() && d.next() && d.message()
	case LabelEOSE:
		ok = d.next() && d.subID()
	case LabelClosed:
		ok = d.next() && d.subID() && d.next() && d.message()
	case LabelNotice, LabelAuth:
		ok = d.next() && d.message()
	case LabelCount:
		ok = d.next() && d.subID() && d.next() && d.count()
	default:
		d.f.Label = LabelUnknown
		return d.fail("unknown message type")
	}
	return ok && d.close()
}

func (d *relayDecoder) relayLabel() bool {
	if d.peek() != '"' {
		return d.fail("a frame must begin with its type")
	}
	t, ok := d.str()
	if ok {
		d.f.Label = labelOf(d.bytes(t))
	}
	return ok
}

func (d *relayDecoder) verdict() bool {
	d.peek()
	var ok bool
	d.r.OK, ok = d.boolean()
	return ok
}

func (d *relayDecoder) message() bool {
	if d.peek() != '"' {
		return d.fail("a message must be a string")
	}
	t, ok := d.str()
	if ok {
		d.r.Message = string(d.bytes(t))
	}
	return ok
}

// count takes {"count":n,"hll":"…"}; other keys (approximate) are passed over, and so is an hll of another
// size than NIP-45's. A key of these two twice is refused, because readers differ in which one counts.
func (d *relayDecoder) count() bool {
	if d.peek() != '{' {
		return d.fail("a count must be a JSON object")
	}
	seen, seenHLL := false, false
	ok := d.object(func(key text) bool {
		switch k := string(d.bytes(key)); {
		case k == "count" && seen, k == "hll" && seenHLL:
			return d.failAt(key.start, "a count has a key twice")
		case k == "count":
			seen = true
			n, ok := d.int64("count", 0, math.MaxInt64)
			d.r.Count = uint64(n)
			return ok
		case k == "hll":
			seenHLL = true
			if d.peek() != '"' {
				return d.skip()
			}
			return d.registers()
		default:
			return d.skip()
		}
	})
	if ok && !seen {
		return d.fail("a count has no number")
	}
	return ok
}

// registers takes the hll of a count.
func (d *relayDecoder) registers() bool {
	t, ok := d.str()
	if !ok || t.size != hex.EncodedLen(Registers) {
		return ok
	}
	if b, err := hex.DecodeString(string(d.bytes(t))); err == nil {
		d.r.HLL = b
	}
	return true
}
