package access

import (
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Kinds that go to their parties only.
const (
	kindDirectMessage nostr.Kind = 4    // NIP-04
	kindReport        nostr.Kind = 1984 // NIP-56
)

// IsReport reports whether events of the kind are reports (NIP-56), which go only to their author and to
// who moderates the community.
func IsReport(k nostr.Kind) bool { return k == kindReport }

// IsPrivate reports whether events of the kind go only to their author and to those whom a p tag names:
// gift wraps (NIP-59) and direct messages (NIP-04).
func IsPrivate(k nostr.Kind) bool {
	return k.IsGiftWrap() || k == kindDirectMessage
}

// Parties are who may get one private event.
type Parties map[nostr.PubKey]struct{}

// PartiesOf returns the author and the recipients of an event. p tags that name no key name nobody.
func PartiesOf(e *nostr.Event) Parties {
	parties := Parties{e.PubKey: {}}
	for t := range e.Tags.All("p") {
		if key, err := nostr.ParsePubKey(t.Value()); err == nil {
			parties[key] = struct{}{}
		}
	}
	return parties
}

// Has reports whether a key is a party.
func (p Parties) Has(key nostr.PubKey) bool {
	_, ok := p[key]
	return ok
}

// Include reports whether one of the keys is a party.
func (p Parties) Include(keys []nostr.PubKey) bool { return slices.ContainsFunc(keys, p.Has) }
