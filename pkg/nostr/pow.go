package nostr

import (
	"math/bits"
	"strconv"
)

// LeadingZeroBits returns how many bits of the id are zero before the first that is one, 0 to 256: the
// difficulty that NIP-13 speaks of.
func (id ID) LeadingZeroBits() int {
	n := 0
	for _, b := range id {
		n += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	return n
}

// CommittedDifficulty returns the difficulty that the author set out for: the third element of the first nonce
// tag (NIP-13). It is false without such a tag, and when the element is missing or no number of bits of an id.
func (e *Event) CommittedDifficulty() (int, bool) {
	for t := range e.Tags.All("nonce") {
		if len(t) < 3 {
			return 0, false
		}
		n, err := strconv.ParseUint(t[2], 10, 16)
		if err != nil || n > 8*uint64(len(ID{})) {
			return 0, false
		}
		return int(n), true
	}
	return 0, false
}
