package naive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/model"
)

// count answers a COUNT (NIP-45). Called with the relay's mu held.
func (c *conn) count(id string, filters []model.Filter) {
	r := c.relay
	found := map[nostr.ID]*nostr.Event{}
	n := 0
	for i := range filters {
		for _, e := range r.query(c, &filters[i]) {
			found[e.ID] = e
			n++
		}
	}
	if !r.fault(CountsTwice) {
		n = len(found)
	}
	answer := map[string]any{"count": n}
	if len(filters) == 1 && len(filters[0].Tags) == 1 {
		for _, values := range filters[0].Tags {
			if len(values) > 0 {
				answer["hll"] = r.registers(values[0], found)
			}
		}
	}
	c.send(client.LabelCount, id, answer)
}

// registers are the HyperLogLog of the authors.
func (r *Relay) registers(value string, found map[nostr.ID]*nostr.Event) string {
	if parts := strings.SplitN(value, ":", 3); len(parts) == 3 && len(parts[1]) == 64 {
		value = parts[1]
	}
	if _, err := nostr.ParseID(value); err != nil {
		sum := sha256.Sum256([]byte(value))
		value = hex.EncodeToString(sum[:])
	}
	digit, _ := strconv.ParseInt(value[32:33], 16, 8) // hex, as was just seen to
	offset := int(digit) + 8
	if r.fault(WrongHLL) {
		offset--
	}
	var registers [256]byte
	for _, e := range found {
		// The bits behind the register's index, as one number.
		rest := new(big.Int).SetBytes(e.PubKey[offset+1:])
		zeros := 8*(31-offset) - rest.BitLen()
		at := e.PubKey[offset]
		registers[at] = max(registers[at], byte(zeros+1))
	}
	return hex.EncodeToString(registers[:])
}

// negOpen answers a NEG-OPEN (NIP-77): with everything that the client lacks in a list of ids, unless its
// fingerprint says that it lacks nothing. Called with the relay's mu held.
func (c *conn) negOpen(id string, raw []json.RawMessage) {
	var message string
	filters, err := decodeFilters(raw[:min(1, len(raw))])
	if err != nil || len(raw) != 2 || json.Unmarshal(raw[1], &message) != nil {
		c.send(client.LabelNegErr, id, "invalid: no filter or message")
		return
	}
	b, err := hex.DecodeString(message)
	whole := []byte{0, 0} // one range up to infinity
	switch {
	case err != nil || len(b) == 0:
		c.send(client.LabelNegErr, id, "invalid: no message")
		return
	case b[0] != 0x61:
		c.send(client.LabelNegMsg, id, "61")
		return
	case !bytes.HasPrefix(b[1:], whole) || len(b) < 5:
		c.send(client.LabelNegErr, id, "invalid: more than one range")
		return
	}
	have := c.relay.query(c, &filters[0])
	answer := []byte{0x61}
	switch mode, payload := b[3], b[4:]; {
	case mode == 1 && bytes.Equal(payload, fingerprint(have)):
	case mode == 1 && len(payload) == 16, mode == 2 && payload[0] == 0 && len(payload) == 1:
		if c.relay.fault(ForgetsInNegentropy) {
			have = have[:max(0, len(have)-1)]
		}
		answer = append(answer, 0, 0, 2, byte(len(have)))
		for _, e := range have {
			answer = append(answer, e.ID[:]...)
		}
	default:
		c.send(client.LabelNegErr, id, "invalid: no message")
		return
	}
	c.send(client.LabelNegMsg, id, hex.EncodeToString(answer))
}

// fingerprint is the digest of a set of events, of which there are less than 128.
func fingerprint(events []*nostr.Event) []byte {
	var sum [32]byte
	for _, e := range events {
		carry := uint64(0)
		for i := 0; i < 32; i += 8 {
			a, b := little(sum[i:]), little(e.ID[i:])
			s, out := bits.Add64(a, b, carry)
			carry = out
			for k := range 8 {
				sum[i+k] = byte(s >> (8 * k))
			}
		}
	}
	hash := sha256.Sum256(append(slices.Clone(sum[:]), byte(len(events))))
	return hash[:16]
}

func little(b []byte) uint64 {
	var n uint64
	for k := range 8 {
		n |= uint64(b[k]) << (8 * k)
	}
	return n
}
