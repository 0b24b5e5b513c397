package nostr

// Tag is one tag: its name, then its values (NIP-01). On the wire a tag has at least one element.
type Tag []string

// Tags are the tags of an event in their signed order.
type Tags []Tag

// Key returns the tag's name, "" for an empty tag.
func (t Tag) Key() string {
	if len(t) == 0 {
		return ""
	}
	return t[0]
}

// Value returns the tag's first value, "" if it has none.
func (t Tag) Value() string {
	if len(t) < 2 {
		return ""
	}
	return t[1]
}

// First returns the first value of the first tag with this name, and whether there is such a tag. A
// tag without a value gives "", true, so that a malformed tag is not taken for an absent one.
func (ts Tags) First(name string) (string, bool) {
	for _, t := range ts {
		if len(t) > 0 && t[0] == name {
			return t.Value(), true
		}
	}
	return "", false
}

// All iterates over the tags with this name, in order.
func (ts Tags) All(name string) func(yield func(Tag) bool) {
	return func(yield func(Tag) bool) {
		for _, t := range ts {
			if len(t) > 0 && t[0] == name && !yield(t) {
				return
			}
		}
	}
}

// Count returns how many tags have this name.
func (ts Tags) Count(name string) int {
	n := 0
	for range ts.All(name) {
		n++
	}
	return n
}

// IsIndexed reports whether filters can ask for tags of this name: one letter, a–z or A–Z (NIP-01).
func IsIndexed(name string) bool {
	return len(name) == 1 && IsTagLetter(name[0])
}

// IsTagLetter reports whether b is a letter that can name a tag condition: a–z or A–Z.
func IsTagLetter(b byte) bool {
	b |= 0x20
	return b >= 'a' && b <= 'z'
}
