package wire

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// The fields of an event, as bits of a set.
const (
	fieldID = 1 << iota
	fieldPubKey
	fieldCreatedAt
	fieldKind
	fieldTags
	fieldContent
	fieldSig
)

var fieldNames = [...]string{"id", "pubkey", "created_at", "kind", "tags", "content", "sig"}

// eventField returns the bit of an event's field, 0 for an unknown key.
func eventField(key []byte) int {
	for i, name := range fieldNames {
		if string(key) == name {
			return 1 << i
		}
	}
	return 0
}

// DecodeEvent decodes an event object (NIP-01) strictly: the seven fields, each once and of its type,
// nothing after it. It checks neither id nor signature. The event shares no memory with raw. An error
// is a *DecodeError with label EVENT and the event's id if it could be read.
func DecodeEvent(raw []byte, l Limits) (*nostr.Event, error) {
	ev, _, err := DecodeEventExtra(raw, l)
	return ev, err
}

// DecodeEventExtra is DecodeEvent and besides reports whether the object has keys that NIP-01 does not
// know. They are not signed: who passes raw on passes them on, who encodes the event drops them.
func DecodeEventExtra(raw []byte, l Limits) (ev *nostr.Event, extra bool, err error) {
	// In a frame the event is inside one array; count it here too, so that both decoders agree.
	d := eventDecoder{scanner: scanner{b: raw, depth: 1, max: l.depth()}, limits: l}
	if !d.decode() {
		return nil, false, d.refuse(DecodeError{
			Label: LabelEvent, EventID: d.ev.ID, HaveID: d.seen&fieldID != 0,
		})
	}
	return d.ev, d.extra, nil
}

// eventDecoder decodes one event. src is a copy of the input as a string, of which the event's strings
// without escapes are slices: one allocation instead of one per string.
type eventDecoder struct {
	scanner
	limits  Limits
	src     string
	scratch []byte // of unescaping
	ev      *nostr.Event
	seen    int
	extra   bool
}

func (d *eventDecoder) decode() bool {
	d.ev = &nostr.Event{}
	if over(len(d.b), d.limits.Frame) {
		return d.fail(fmt.Sprintf("event is larger than %d bytes", d.limits.Frame))
	}
	d.src = string(d.b)
	if d.peek() != '{' {
		return d.fail("event must be a JSON object")
	}
	if !d.object(d.member) || !d.end() {
		return false
	}
	for i, name := range fieldNames {
		if d.seen&(1<<i) == 0 {
			return d.fail("event has no " + name)
		}
	}
	return true
}

func (d *eventDecoder) member(key text) bool {
	field := eventField(d.bytes(key))
	if d.seen&field != 0 {
		return d.failAt(key.start, "event has a field twice")
	}
	var ok bool
	switch field {
	case fieldID:
		ok = d.hex(d.ev.ID[:], "id")
	case fieldPubKey:
		ok = d.hex(d.ev.PubKey[:], "pubkey")
	case fieldSig:
		ok = d.hex(d.ev.Sig[:], "sig")
	case fieldCreatedAt:
		d.ev.CreatedAt, ok = d.int64("created_at", math.MinInt64, math.MaxInt64)
	case fieldKind:
		var kind int64
		kind, ok = d.int64("kind", 0, math.MaxUint16)
		d.ev.Kind = nostr.Kind(kind)
	case fieldTags:
		ok = d.tags()
	case fieldContent:
		d.ev.Content, ok = d.string("content", d.limits.Content)
	default:
		d.extra = true
		ok = d.skip()
	}
	if ok {
		d.seen |= field
	}
	return ok
}

// tags takes the array of arrays of strings. The elements of all tags go into one slice, which is cut
// up at the end, when it cannot move any more.
func (d *eventDecoder) tags() bool {
	if d.peek() != '[' {
		return d.fail("tags must be an array")
	}
	var (
		elements = make([]string, 0, 16)
		ends     = make([]int, 0, 8)
	)
	ok := d.array(func(i int) bool {
		if over(i+1, d.limits.Tags) {
			return d.fail(fmt.Sprintf("event has more than %d tags", d.limits.Tags))
		}
		if d.peek() != '[' {
			return d.fail("a tag must be an array of strings")
		}
		start := len(elements)
		ok := d.array(func(j int) bool {
			if over(j+1, d.limits.TagValues) {
				return d.fail(fmt.Sprintf("a tag has more than %d elements", d.limits.TagValues))
			}
			v, ok := d.string("a tag's element", 0)
			elements = append(elements, v)
			return ok
		})
		if ok && len(elements) == start {
			return d.fail("a tag must have a name")
		}
		ends = append(ends, len(elements))
		return ok
	})
	if !ok {
		return false
	}
	d.ev.Tags = make(nostr.Tags, len(ends))
	start := 0
	for i, end := range ends {
		d.ev.Tags[i] = elements[start:end:end]
		start = end
	}
	return true
}

// string takes a string of at most limit bytes.
func (d *eventDecoder) string(name string, limit int) (string, bool) {
	if d.peek() != '"' {
		return "", d.fail(name + " must be a string")
	}
	t, ok := d.str()
	if !ok {
		return "", false
	}
	if over(t.size, limit) {
		return "", d.failAt(t.start, fmt.Sprintf("%s is longer than %d bytes", name, limit))
	}
	if !t.escaped {
		return d.src[t.start:t.end], true
	}
	d.scratch = unescape(slices.Grow(d.scratch[:0], t.size), d.b[t.start:t.end])
	return string(d.scratch), true
}

// hex fills dst from a string of lower-case hexadecimal digits of the right length.
func (s *scanner) hex(dst []byte, name string) bool {
	if s.peek() == '"' {
		t, ok := s.str()
		if !ok {
			return false
		}
		if t.size == 2*len(dst) && nostr.ParseHex(dst, s.bytes(t)) == nil {
			return true
		}
		s.i = t.start
	}
	return s.fail(name + " must be lower-case hex of its exact length")
}

// refuse completes e from the scanner's state and from what a tolerant look at the input can still
// find.
func (s *scanner) refuse(e DecodeError) *DecodeError {
	e.Msg, e.Offset = s.msg, s.i
	if (e.Label == LabelEvent || e.Label == LabelAuth) && !e.HaveID {
		e.EventID, e.HaveID = salvageID(s.b)
	}
	return &e
}

// salvageID looks for the id of the first object in b although b is not valid: a key "id" directly in
// that object with a value of 64 lower-case hexadecimal digits. It only tracks strings and nesting, so
// bad escapes, bad UTF-8, limits and a missing end do not stop it.
func salvageID(b []byte) (id nostr.ID, ok bool) {
	start := bytes.IndexByte(b, '{')
	if start < 0 {
		return id, false
	}
	var (
		depth  = 0
		isKey  = false
		isName = false // the last key was "id"
	)
	for i := start; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
			isKey = depth == 1
			isName = isName && depth == 1
		case '}', ']':
			depth--
			if depth == 0 {
				return nostr.ID{}, false
			}
			isName = false
		case ',':
			isKey = depth == 1
			isName = false
		case ':':
			isKey = false
		case '"':
			end := closingQuote(b, i+1)
			if end < 0 {
				return nostr.ID{}, false
			}
			s := b[i+1 : end]
			i = end
			if depth != 1 {
				continue
			}
			if !isKey && isName && nostr.ParseHex(id[:], s) == nil {
				return id, true
			}
			isName = isKey && string(s) == "id"
		}
	}
	return nostr.ID{}, false
}

// closingQuote returns the index of the quote that ends a string whose text begins at i, -1 if none.
func closingQuote(b []byte, i int) int {
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return -1
}
