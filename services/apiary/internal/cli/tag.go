package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
)

// parseTag reads a tag as people give it: NAME=VALUE, NAME alone, or a JSON array of strings for a tag with more
// values. A value that is a key, an event or an address may be written as NIP-19 has it.
func parseTag(text string) (nostr.Tag, error) {
	var tag nostr.Tag
	if strings.HasPrefix(text, "[") {
		if err := json.Unmarshal([]byte(text), &tag); err != nil {
			return nil, usageError{fmt.Sprintf("--tag %q is not a JSON array of strings", text)}
		}
	} else if name, value, hasValue := strings.Cut(text, "="); hasValue {
		tag = nostr.Tag{name, value}
	} else {
		tag = nostr.Tag{name}
	}
	if tag.Key() == "" {
		return nil, usageError{fmt.Sprintf("--tag %q has no name", text)}
	}
	if len(tag) > 1 {
		value, err := plainValue(tag[0], tag[1])
		if err != nil {
			return nil, usageError{fmt.Sprintf("--tag %q: %v", text, err)}
		}
		tag[1] = value
	}
	return tag, nil
}

// The tags whose values are keys, events and addresses (NIP-01, NIP-18, NIP-22).
var (
	pubkeyTags  = []string{"p", "P"}
	eventTags   = []string{"e", "E", "q"}
	addressTags = []string{"a", "A", "q"}
)

// plainValue returns a tag's value as it stands in events. NIP-19 is for people: in a tag it would name nothing.
func plainValue(name, value string) (string, error) {
	if !slices.Contains(slices.Concat(pubkeyTags, eventTags, addressTags), name) || !looksNamed(value) {
		return value, nil
	}
	ref, err := nip19.Decode(strings.TrimPrefix(value, "nostr:"))
	if err != nil {
		return "", err
	}
	switch {
	case ref.Type == nip19.PubKey || ref.Type == nip19.Profile:
		if slices.Contains(pubkeyTags, name) {
			return ref.PubKey.String(), nil
		}
	case ref.Type == nip19.Address:
		if slices.Contains(addressTags, name) {
			return fmt.Sprintf("%d:%s:%s", ref.Kind, ref.PubKey, ref.Identifier), nil
		}
	case slices.Contains(eventTags, name):
		return ref.ID.String(), nil
	}
	return "", fmt.Errorf("%s is not for a tag %s", ref.Type, name)
}

// looksNamed reports whether a value is one of NIP-19, if perhaps mistyped: no key, id or address looks so.
func looksNamed(value string) bool {
	prefix, _, found := strings.Cut(strings.TrimPrefix(value, "nostr:"), "1")
	return found && slices.Contains([]string{"npub", "nprofile", "note", "nevent", "naddr", "nsec"}, strings.ToLower(prefix))
}

// parseID reads an event's id: 64 hexadecimal digits, note or nevent.
func parseID(text string) (nostr.ID, error) {
	if id, err := nostr.ParseID(strings.ToLower(text)); err == nil {
		return id, nil
	}
	ref, err := nip19.Decode(strings.TrimPrefix(text, "nostr:"))
	if err != nil || (ref.Type != nip19.Note && ref.Type != nip19.Event) {
		return nostr.ID{}, usageError{fmt.Sprintf("%q is not an event's id: 64 hex digits, note or nevent", text)}
	}
	return ref.ID, nil
}

// parsePubKey reads a public key: 64 hexadecimal digits, npub or nprofile.
func parsePubKey(text string) (nostr.PubKey, error) {
	key, err := nip19.ParsePubKey(text)
	if err != nil {
		return key, usageError{fmt.Sprintf("%q: %v", text, err)}
	}
	return key, nil
}
