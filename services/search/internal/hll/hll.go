// Package hll computes the HyperLogLog registers of NIP-45: a sketch of how many authors the counted events
// have, which clients merge over relays.
//
// It owns the two rules that relays have to agree on, which byte of a public key chooses the register and
// what is stored there. It estimates nothing, that is the client's part. The package is pure.
package hll

import (
	"crypto/sha256"
	"math/bits"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Registers is the sketch, as NIP-45 encodes it: 256 registers of a byte.
type Registers [256]byte

// Add takes an author into the sketch, with the offset of the filter, 8 to 23.
func (r *Registers) Add(author nostr.PubKey, offset int) {
	zeros := 0
	for _, b := range author[offset+1:] {
		zeros += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	register := &r[author[offset]]
	*register = max(*register, byte(zeros+1))
}

// Offset returns the offset that the filters of a COUNT have, and whether NIP-45 defines one: for one filter
// with exactly one tag condition, of exactly one value.
func Offset(filters []*nostr.Filter) (int, bool) {
	if len(filters) != 1 || len(filters[0].Tags) != 1 || len(filters[0].Tags[0].Values) != 1 {
		return 0, false
	}
	const position = 32 // of the hex digit that is read
	digit, err := strconv.ParseUint(hexOf(filters[0].Tags[0].Values[0])[position:position+1], 16, 8)
	return int(digit) + 8, err == nil
}

// hexOf returns the 64 hex digits that stand for a tag value: those of an id or a key, of the key in an
// address, and for anything else those of its SHA-256.
func hexOf(value string) string {
	if id, err := nostr.ParseID(value); err == nil {
		return id.String()
	}
	if kind, rest, ok := strings.Cut(value, ":"); ok {
		key, _, ok := strings.Cut(rest, ":")
		if _, err := strconv.ParseUint(kind, 10, 16); err == nil && ok {
			if id, err := nostr.ParseID(key); err == nil {
				return id.String()
			}
		}
	}
	return nostr.ID(sha256.Sum256([]byte(value))).String()
}
