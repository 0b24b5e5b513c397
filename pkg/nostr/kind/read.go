package kind

import (
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Readers says who may read events of a kind, of those who may read their channel or the community.
type Readers uint8

// The readers.
const (
	// Everybody may read them.
	Everybody Readers = iota
	// Parties are the author and whom a p tag names.
	Parties
	// Author is the author alone.
	Author
	// Shared is the author, and everybody once the event says so: exactly one shared tag, exactly ["shared","true"].
	Shared
	// Owner is the one key that the p tags name, and not even the author. Where they name several it is nobody.
	Owner
	// Moderators are the author and who moderates the community.
	Moderators
)

// Audience is who may read one event, of those who may read its channel or the community.
type Audience struct {
	everybody  bool
	moderators bool
	keys       map[nostr.PubKey]struct{}
}

// AudienceOf returns who may read an event. p tags that name no key name nobody.
func AudienceOf(e *nostr.Event) Audience {
	switch Of(e.Kind).Readers {
	case Parties:
		return Audience{keys: keysOf(e, e.PubKey)}
	case Author:
		return Audience{keys: only(e.PubKey)}
	case Shared:
		return Audience{everybody: isShared(e.Tags), keys: only(e.PubKey)}
	case Owner:
		return Audience{keys: ownerOf(e)}
	case Moderators:
		return Audience{moderators: true, keys: only(e.PubKey)}
	default:
		return Audience{everybody: true}
	}
}

// IsEverybody reports whether there is nobody whom the event is kept from.
func (a Audience) IsEverybody() bool { return a.everybody }

// Has reports whether a key, which may moderate the community, is of the audience.
func (a Audience) Has(key nostr.PubKey, moderates bool) bool {
	if a.everybody || (a.moderators && moderates) {
		return true
	}
	_, ok := a.keys[key]
	return ok
}

// MayHave reports whether one of the keys is of the audience, or would be if it moderated the community.
func (a Audience) MayHave(keys []nostr.PubKey) bool {
	return a.everybody || slices.ContainsFunc(keys, func(k nostr.PubKey) bool { return a.Has(k, true) })
}

// MarkName is the name of the tag that Mark's value is stored under, next to an event's own tags. It is longer
// than a letter, so that no filter can ask for it.
const MarkName = "audience"

// MarkEverybody marks an event of a Shared kind that is everybody's.
const MarkEverybody = "*"

// Mark returns what has to be stored with an event to find out about its audience without reading it, where single
// tags do not tell: that it is shared, or the key of its owner in hexadecimal. It is false for all
// others, which need none.
func Mark(e *nostr.Event) (string, bool) {
	switch Of(e.Kind).Readers {
	case Shared:
		return MarkEverybody, isShared(e.Tags)
	case Owner:
		for owner := range ownerOf(e) {
			return owner.String(), true
		}
	default:
	}
	return "", false
}

func only(key nostr.PubKey) map[nostr.PubKey]struct{} {
	return map[nostr.PubKey]struct{}{key: {}}
}

// keysOf returns the keys that p tags name, and those given.
func keysOf(e *nostr.Event, more ...nostr.PubKey) map[nostr.PubKey]struct{} {
	keys := make(map[nostr.PubKey]struct{})
	for _, k := range more {
		keys[k] = struct{}{}
	}
	for t := range e.Tags.All("p") {
		if key, err := nostr.ParsePubKey(t.Value()); err == nil {
			keys[key] = struct{}{}
		}
	}
	return keys
}

// ownerOf returns the key that all p tags name, nobody if they differ.
func ownerOf(e *nostr.Event) map[nostr.PubKey]struct{} {
	first, _ := e.Tags.First("p")
	for t := range e.Tags.All("p") {
		if t.Value() != first {
			return nil
		}
	}
	return keysOf(e)
}

// sharedTag makes an event of a Shared kind everybody's.
var sharedTag = nostr.Tag{"shared", "true"}

// isShared reports whether there is one shared tag and it is exactly that: a form that only looks like it keeps
// the event private.
func isShared(tags nostr.Tags) bool {
	shared := false
	for _, t := range tags {
		if len(t) == 0 || t[0] != sharedTag[0] {
			continue
		}
		if shared || !slices.Equal(t, sharedTag) {
			return false
		}
		shared = true
	}
	return shared
}

// Ask says what a filter has to say about who reads, if it names the kind.
type Ask uint8

// What filters have to say.
const (
	// Nothing has to be said.
	Nothing Ask = iota
	// OwnP is that all values of #p are the reader's keys, and that there is one.
	OwnP
	// OwnAuthor is that all authors are the reader's keys, and that there is one.
	OwnAuthor
	// OwnAuthorOrP is one of both.
	OwnAuthorOrP
)

// What filters are refused with.
const (
	refusedP      = "p-gated events require #p matching your pubkey"
	refusedAuthor = "author-only kinds require authors=[self]"
	refusedEither = "agent-engram reads require authors=[self] or #p=[self]"
)

// Refusal returns why a filter of who reads with these keys is not accepted, empty if it is; the reason
// is that of NIP-01's "restricted:".
//
// It concerns filters that name a kind whose events are not for everybody without saying whose they want, so
// that a client learns of its mistake. It is no protection: what the reader may not see is left out of
// every answer (AudienceOf), and so a filter without kinds is never refused. One with ids is refused only
// if it names a kind of Owner. One that names author-only kinds and others as well is for the others.
func Refusal(f *nostr.Filter, keys []nostr.PubKey) string {
	ownP, ownAuthor := isOwnP(f, keys), isOwn(f.Authors, keys)
	others := false
	for _, k := range f.Kinds {
		r := Of(k)
		others = others || r.Ask != OwnAuthor
		switch {
		case len(f.IDs) > 0 && r.Readers != Owner:
		case r.Ask == OwnP && !ownP:
			return refusedP
		case r.Ask == OwnAuthorOrP && !ownP && !ownAuthor:
			return refusedEither
		}
	}
	if len(f.Kinds) > 0 && !others && len(f.IDs) == 0 && !ownAuthor {
		return refusedAuthor
	}
	return ""
}

// isOwn reports whether wanted is not empty and all of it among keys.
func isOwn(wanted, keys []nostr.PubKey) bool {
	return len(wanted) > 0 && !slices.ContainsFunc(wanted, func(k nostr.PubKey) bool { return !slices.Contains(keys, k) })
}

func isOwnP(f *nostr.Filter, keys []nostr.PubKey) bool {
	values, _ := f.Tag('p')
	return len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool {
		key, err := nostr.ParsePubKey(v)
		return err != nil || !slices.Contains(keys, key)
	})
}
