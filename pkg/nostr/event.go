package nostr

import (
	"encoding/hex"
	"log/slog"
	"strconv"
)

// Event is a Nostr event (NIP-01). CreatedAt is in Unix seconds and may be negative. Only ID and Sig
// are not covered by the signature directly: ID is derived, Sig signs ID.
type Event struct {
	ID        ID
	PubKey    PubKey
	CreatedAt int64
	Kind      Kind
	Tags      Tags
	Content   string
	Sig       Sig
}

// DTag returns the value that addresses an addressable event: of the first d tag, "" if there is none
// (NIP-01).
func (e *Event) DTag() string {
	d, _ := e.Tags.First("d")
	return d
}

// Channel returns the value of the first h tag and whether there is an h tag (NIP-29). The value is as
// the author wrote it: it may not be a possible channel id, or empty.
func (e *Event) Channel() (string, bool) { return e.Tags.First("h") }

// Expiration returns the Unix second at which the event expires (NIP-40), and false if it has no
// expiration tag or the first one is not a decimal integer that fits an int64.
func (e *Event) Expiration() (int64, bool) {
	v, ok := e.Tags.First("expiration")
	if !ok || v == "" || v[0] == '+' {
		return 0, false
	}
	at, err := strconv.ParseInt(v, 10, 64)
	return at, err == nil
}

// LogValue shows what a log may hold of an event: the kind and the first 8 digits of id and author,
// never content nor tags.
func (e *Event) LogValue() slog.Value {
	if e == nil {
		return slog.StringValue("none")
	}
	return slog.GroupValue(
		slog.String("id", hex.EncodeToString(e.ID[:4])),
		slog.Int("kind", int(e.Kind)),
		slog.String("pubkey", hex.EncodeToString(e.PubKey[:4])),
	)
}
