package nostr

import (
	"encoding/hex"
	"errors"
)

// ErrBadHex is returned when text is not exactly the right number of lower-case hexadecimal digits.
var ErrBadHex = errors.New("not lower-case hex of the right length")

// ID is an event id: the SHA-256 of the event's canonical form (NIP-01).
type ID [32]byte

// PubKey is an x-only public key (BIP-340). Not every value is a point of the curve; verification
// finds out.
type PubKey [32]byte

// Sig is a BIP-340 signature.
type Sig [64]byte

// ParseID parses exactly 64 lower-case hexadecimal digits. The error is ErrBadHex.
func ParseID(s string) (ID, error) {
	var id ID
	return id, ParseHex(id[:], s)
}

// ParsePubKey parses exactly 64 lower-case hexadecimal digits. The error is ErrBadHex.
func ParsePubKey(s string) (PubKey, error) {
	var p PubKey
	return p, ParseHex(p[:], s)
}

// ParseSig parses exactly 128 lower-case hexadecimal digits. The error is ErrBadHex.
func ParseSig(s string) (Sig, error) {
	var sig Sig
	return sig, ParseHex(sig[:], s)
}

// String returns 64 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id was never set.
func (id ID) IsZero() bool { return id == ID{} }

// String returns 64 lower-case hexadecimal digits.
func (p PubKey) String() string { return hex.EncodeToString(p[:]) }

// IsZero reports whether the key was never set.
func (p PubKey) IsZero() bool { return p == PubKey{} }

// String returns 128 lower-case hexadecimal digits.
func (s Sig) String() string { return hex.EncodeToString(s[:]) }

// MarshalText returns 64 lower-case hexadecimal digits.
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText sets id from exactly 64 lower-case hexadecimal digits, and to zeros on failure. The
// error is ErrBadHex.
func (id *ID) UnmarshalText(b []byte) error { return ParseHex(id[:], b) }

// MarshalText returns 64 lower-case hexadecimal digits.
func (p PubKey) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, p[:]), nil }

// UnmarshalText sets p from exactly 64 lower-case hexadecimal digits, and to zeros on failure. The
// error is ErrBadHex.
func (p *PubKey) UnmarshalText(b []byte) error { return ParseHex(p[:], b) }

// MarshalText returns 128 lower-case hexadecimal digits.
func (s Sig) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText sets s from exactly 128 lower-case hexadecimal digits, and to zeros on failure. The
// error is ErrBadHex.
func (s *Sig) UnmarshalText(b []byte) error { return ParseHex(s[:], b) }

// unhex holds the value of each lower-case hexadecimal digit and 0xff for every other byte.
// encoding/hex also takes upper case, which NIP-01 forbids.
var unhex = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range 16 {
		t["0123456789abcdef"[i]] = byte(i)
	}
	return t
}()

// ParseHex fills dst from s, exactly two lower-case hexadecimal digits per byte. On failure dst is zeroed
// and the error is ErrBadHex.
func ParseHex[T string | []byte](dst []byte, s T) error {
	if len(s) != 2*len(dst) {
		return ErrBadHex
	}
	var bad byte
	for i := range dst {
		hi, lo := unhex[s[2*i]], unhex[s[2*i+1]]
		bad |= hi | lo
		dst[i] = hi<<4 | lo&0x0f
	}
	if bad&0xf0 != 0 {
		clear(dst)
		return ErrBadHex
	}
	return nil
}
