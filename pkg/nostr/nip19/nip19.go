package nip19

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// maxText bounds what is read and written, in characters; NIP-19 suggests it.
const maxText = 5000

var (
	// ErrText is returned for what is no name of NIP-19, or not one for keys and events.
	ErrText = errors.New("not an npub, note, nprofile, nevent or naddr")
	// ErrPubKey is returned for what names no public key.
	ErrPubKey = errors.New("not a public key: 64 hex digits, npub or nprofile")
	// ErrRef is returned for a Ref that cannot be written.
	ErrRef = errors.New("too long for NIP-19, or of unknown type")
)

// Type is the prefix of a name, which says what it names.
type Type string

// The types of NIP-19, but nsec, which is a secret, and nrelay, which is deprecated.
const (
	PubKey  Type = "npub"
	Note    Type = "note"
	Profile Type = "nprofile"
	Event   Type = "nevent"
	Address Type = "naddr"
)

// Ref is what a name names. Which fields are set depends on the type.
type Ref struct {
	Type Type
	// PubKey is the key of PubKey and Profile, the author of Address, and of Event where HasAuthor is set.
	PubKey    nostr.PubKey
	HasAuthor bool
	// ID is the event of Note and Event.
	ID nostr.ID
	// Kind is the kind of Address, and of Event where HasKind is set.
	Kind    nostr.Kind
	HasKind bool
	// Identifier is the d tag of Address, at most 255 bytes.
	Identifier string
	// Relays are where Profile, Event and Address may be found, each at most 255 bytes. Nobody has checked
	// that they are URLs.
	Relays []string
}

// The types of a TLV entry.
const (
	tlvSpecial = iota
	tlvRelay
	tlvAuthor
	tlvKind
)

// ParsePubKey takes a public key as people write it: 64 hexadecimal digits of either case, npub or nprofile. The
// error is ErrPubKey.
func ParsePubKey(text string) (nostr.PubKey, error) {
	if key, err := nostr.ParsePubKey(strings.ToLower(text)); err == nil {
		return key, nil
	}
	ref, err := Decode(text)
	if err != nil || (ref.Type != PubKey && ref.Type != Profile) {
		return nostr.PubKey{}, ErrPubKey
	}
	return ref.PubKey, nil
}

// Decode reads a name of at most 5,000 characters. Entries that NIP-19 does not know are passed over; one that is
// there twice, but relays, is refused, since readers differ in which counts. The error is ErrText.
func Decode(text string) (Ref, error) {
	if len(text) > maxText {
		return Ref{}, ErrText
	}
	prefix, data, ok := decodeBech32(text)
	if !ok {
		return Ref{}, ErrText
	}
	ref := Ref{Type: Type(prefix)}
	switch ref.Type {
	case PubKey:
		ok = fill(ref.PubKey[:], data)
	case Note:
		ok = fill(ref.ID[:], data)
	case Profile, Event, Address:
		ok = ref.entries(data)
	default:
		ok = false
	}
	if !ok {
		return Ref{}, ErrText
	}
	return ref, nil
}

// entries reads the TLV list of a Profile, Event or Address.
func (r *Ref) entries(data []byte) bool {
	var seen [tlvKind + 1]bool
	for len(data) > 0 {
		if len(data) < 2 || len(data)-2 < int(data[1]) {
			return false
		}
		kind, value := data[0], data[2:2+int(data[1])]
		data = data[2+len(value):]
		if kind > tlvKind {
			continue
		}
		if seen[kind] && kind != tlvRelay {
			return false
		}
		seen[kind] = true
		if !r.entry(kind, value) {
			return false
		}
	}
	return seen[tlvSpecial] && (r.Type != Address || seen[tlvAuthor] && seen[tlvKind])
}

func (r *Ref) entry(kind byte, value []byte) bool {
	switch {
	case kind == tlvRelay:
		r.Relays = append(r.Relays, string(value))
		return utf8.Valid(value)
	case kind == tlvSpecial && r.Type == Profile:
		return fill(r.PubKey[:], value)
	case kind == tlvSpecial && r.Type == Event:
		return fill(r.ID[:], value)
	case kind == tlvSpecial:
		r.Identifier = string(value)
		return utf8.Valid(value)
	case r.Type == Profile:
		return true // an author or a kind says nothing of a profile
	case kind == tlvAuthor:
		r.HasAuthor = true
		return fill(r.PubKey[:], value)
	default:
		if len(value) != 4 {
			return false
		}
		n := binary.BigEndian.Uint32(value)
		r.Kind, r.HasKind = nostr.Kind(n), true
		return n <= math.MaxUint16
	}
}

// Encode writes the name, in lower case. The error is ErrRef: an unknown type, an identifier or relay of more than
// 255 bytes, or more than 5,000 characters in all.
func (r Ref) Encode() (string, error) {
	var data []byte
	ok := true
	add := func(kind byte, value []byte) {
		ok = ok && len(value) <= math.MaxUint8
		data = append(append(data, kind, byte(len(value))), value...)
	}
	switch r.Type {
	case PubKey:
		data = r.PubKey[:]
	case Note:
		data = r.ID[:]
	case Profile:
		add(tlvSpecial, r.PubKey[:])
	case Event:
		add(tlvSpecial, r.ID[:])
	case Address:
		add(tlvSpecial, []byte(r.Identifier))
	default:
		return "", ErrRef
	}
	if r.Type == Profile || r.Type == Event || r.Type == Address {
		for _, relay := range r.Relays {
			add(tlvRelay, []byte(relay))
		}
	}
	if r.Type == Address || r.Type == Event && r.HasAuthor {
		add(tlvAuthor, r.PubKey[:])
	}
	if r.Type == Address || r.Type == Event && r.HasKind {
		add(tlvKind, binary.BigEndian.AppendUint32(nil, uint32(r.Kind)))
	}
	text := encodeBech32(string(r.Type), data)
	if !ok || len(text) > maxText {
		return "", ErrRef
	}
	return text, nil
}

// fill copies data of exactly dst's size.
func fill(dst, data []byte) bool { return copy(dst, data) == len(data) && len(data) == len(dst) }
