package policy

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// Sizes of a NIP-44 payload, decoded: a version, a nonce of 32 bytes, 34 to 65,538 bytes of padded text, a MAC of 32.
const (
	minSealed  = 1 + 32 + 34 + 32
	maxSealed  = 1 + 32 + 65_538 + 32
	sealedByV2 = 2
	maxSlug    = 64
)

// checkForm refuses an event that is not what the registry says that its kind has to be like.
func checkForm(ev *nostr.Event) Verdict {
	rules := kind.Of(ev.Kind)
	if v := checkName(ev, rules.Form.D); !v.Accepted() {
		return v
	}
	switch {
	case rules.Form.OneP && !hasOneKey(ev, "p"):
		return invalid(fmt.Sprintf("kind:%d must have exactly one p tag, with a public key", ev.Kind))
	case rules.Form.Sealed && !isSealed(ev.Content):
		return invalid(fmt.Sprintf("kind:%d content must be encrypted (NIP-44)", ev.Kind))
	case rules.Readers == kind.Shared && !sharesPlainly(ev.Tags):
		return invalid(`a shared tag must be exactly ["shared","true"], and there only once`)
	}
	return Verdict{}
}

func checkName(ev *nostr.Event, naming kind.Naming) Verdict {
	if naming == kind.AnyName {
		return Verdict{}
	}
	switch n := ev.Tags.Count("d"); {
	case n == 0:
		return invalid("missing d tag")
	case n > 1:
		return invalid("duplicate d tag")
	case ev.DTag() == "":
		return invalid("empty d tag")
	case naming == kind.Slug && !isSlug(ev.DTag()):
		return invalid("d tag must be a slug: 1 to 64 of a-z, 0-9, and after the first also _ and -")
	case naming == kind.Hash && nostr.ParseHex(make([]byte, 32), ev.DTag()) != nil:
		return invalid("d tag must be 64 lower-case hexadecimal digits")
	}
	return Verdict{}
}

func isSlug(s string) bool {
	if s == "" || len(s) > maxSlug || s[0] == '_' || s[0] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == "" // nothing else, at its ends
}

// oneKey returns the key that the only tag of a name holds.
func oneKey(ev *nostr.Event, name string) (nostr.PubKey, bool) {
	if ev.Tags.Count(name) != 1 {
		return nostr.PubKey{}, false
	}
	value, _ := ev.Tags.First(name)
	key, err := nostr.ParsePubKey(value)
	return key, err == nil
}

func hasOneKey(ev *nostr.Event, name string) bool {
	_, ok := oneKey(ev, name)
	return ok
}

// isSealed reports whether text can be a NIP-44 payload: whether it is one, only who has the key can tell.
func isSealed(text string) bool {
	size := base64.StdEncoding.DecodedLen(len(text))
	if size < minSealed || size > maxSealed+2 { // padding
		return false
	}
	payload, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(payload) >= minSealed && len(payload) <= maxSealed && payload[0] == sealedByV2
}

// sharesPlainly reports whether the shared tags are none, or the one that makes an event everybody's. Any other would keep
// the event private without its author's knowing.
func sharesPlainly(tags nostr.Tags) bool {
	return tags.Count("shared") == 0 ||
		tags.Count("shared") == 1 && slices.ContainsFunc(tags, func(t nostr.Tag) bool { return slices.Equal(t, nostr.Tag{"shared", "true"}) })
}
