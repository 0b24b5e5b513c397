// Package subject owns the names on the bus: streams, subjects and buckets. It is the only place where
// such a name is built or taken apart, so that a rename is one change and a typing error cannot subscribe
// to nothing. It is pure: no I/O, no state, safe for concurrent use.
//
// The table of who publishes and who consumes each of them is services/docs/subjects.md.
package subject

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Streams of JetStream.
const (
	// StreamEvents carries committed events, one message per commit and partition; file, 24 h.
	StreamEvents = "EVENTS"
	// StreamEphemeral carries kinds 20000 to 29999; memory, 60 s.
	StreamEphemeral = "EPHEMERAL"
)

// BucketPresence is the key-value bucket of who is online.
const BucketPresence = "presence"

const (
	eventsPrefix    = "apiary.v1.ev."
	ephemeralPrefix = "apiary.v1.eph."
	controlPrefix   = "apiary.v1.control."
)

// Wildcards and subjects without a parameter.
const (
	// AllEvents matches Events of every partition.
	AllEvents = eventsPrefix + "*"
	// AllEphemeral matches Ephemeral of every partition.
	AllEphemeral = ephemeralPrefix + "*"
	// AllControl matches Control of every community.
	AllControl = controlPrefix + "*"
	// Quota carries admission counters between gateways.
	Quota = "apiary.v1.quota"
)

// ErrSubject says that a subject does not belong to the family it was parsed as.
var ErrSubject = errors.New("not a subject of this family")

// Events is where a partition's committed events are published.
func Events(partition uint32) string {
	return eventsPrefix + strconv.FormatUint(uint64(partition), 10)
}

// Ephemeral is where a partition's ephemeral events are published.
func Ephemeral(partition uint32) string {
	return ephemeralPrefix + strconv.FormatUint(uint64(partition), 10)
}

// Control is where a community's revocations and cache invalidations are published. It is in no
// stream: whoever misses one re-validates on its own clock.
func Control(community int64) string {
	return controlPrefix + strconv.FormatInt(community, 10)
}

// PresenceKey is the key of BucketPresence under which a gateway is recorded to have a connection of a public key.
// gateway is an identifier of letters and digits.
func PresenceKey(community int64, pubkey [32]byte, gateway string) string {
	return strconv.FormatInt(community, 10) + "." + hex.EncodeToString(pubkey[:]) + "." + gateway
}

// ParsePresenceKey takes a PresenceKey apart, or returns an error that wraps ErrSubject.
func ParsePresenceKey(s string) (community int64, pubkey [32]byte, gateway string, err error) {
	number, rest, _ := strings.Cut(s, ".")
	digits, gateway, _ := strings.Cut(rest, ".")
	community, _ = strconv.ParseInt(number, 10, 64)
	if len(digits) == hex.EncodedLen(len(pubkey)) {
		_, _ = hex.Decode(pubkey[:], []byte(digits)) // what it leaves undone, the comparison finds
	}
	// Only the spelling that PresenceKey makes.
	if _, err := ParseGateway(gateway); err != nil || community <= 0 || PresenceKey(community, pubkey, gateway) != s {
		return 0, [32]byte{}, "", fmt.Errorf("parse key %q: %w", s, ErrSubject)
	}
	return community, pubkey, gateway, nil
}

// ParseEvents returns the partition of an Events subject, or an error that wraps ErrSubject.
func ParseEvents(s string) (uint32, error) {
	return parsePartition(s, eventsPrefix)
}

// ParseEphemeral returns the partition of an Ephemeral subject, or an error that wraps ErrSubject.
func ParseEphemeral(s string) (uint32, error) {
	return parsePartition(s, ephemeralPrefix)
}

// ParseControl returns the community of a Control subject, or an error that wraps ErrSubject.
func ParseControl(s string) (int64, error) {
	digits, ok := strings.CutPrefix(s, controlPrefix)
	if ok {
		n, err := strconv.ParseInt(digits, 10, 64)
		// Only the spelling that Control makes: no sign, no leading zero, no community 0.
		if err == nil && n > 0 && Control(n) == s {
			return n, nil
		}
	}
	return 0, fmt.Errorf("parse subject %q: %w", s, ErrSubject)
}

// maxGateway is the length of a gateway's identifier in bytes.
const maxGateway = 64

// ParseGateway returns a gateway's identifier if it can be a part of PresenceKey, or an error that wraps ErrSubject.
func ParseGateway(s string) (string, error) {
	odd := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if s == "" || len(s) > maxGateway || strings.ContainsFunc(s, odd) {
		return "", fmt.Errorf("parse gateway %q: %w", s, ErrSubject)
	}
	return s, nil
}

func parsePartition(s, prefix string) (uint32, error) {
	digits, ok := strings.CutPrefix(s, prefix)
	if ok {
		n, err := strconv.ParseUint(digits, 10, 32)
		if err == nil && strconv.FormatUint(n, 10) == digits {
			return uint32(n), nil
		}
	}
	return 0, fmt.Errorf("parse subject %q: %w", s, ErrSubject)
}
