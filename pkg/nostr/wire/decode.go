package wire

import (
	"fmt"
	"math"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Decode decodes a client's frame (NIP-01, NIP-42, NIP-45). Of an event it checks the syntax and finds
// the id; DecodeEvent does the rest. The frame shares b only as RawEvent. An error is a *DecodeError.
func Decode(b []byte, l Limits) (Frame, error) {
	d := frameDecoder{scanner: scanner{b: b, max: l.depth()}, limits: l}
	if !d.decode() {
		return Frame{}, d.refuse(DecodeError{
			Label: d.f.Label, SubID: d.f.SubID, EventID: d.f.EventID, HaveID: d.f.HaveID,
			Unsupported: d.unsupported,
		})
	}
	return d.f, nil
}

// frameDecoder decodes one frame into f, of which as much is filled in as was read.
type frameDecoder struct {
	scanner
	limits      Limits
	f           Frame
	unsupported bool
}

func (d *frameDecoder) decode() bool {
	tooLarge := over(len(d.b), d.limits.Frame)
	if d.peek() != '[' {
		return d.fail("a frame must be a JSON array")
	}
	if !d.enter() || !d.label() {
		return false
	}
	switch d.f.Label {
	case LabelEvent, LabelAuth:
		// The id of a frame that is too large is looked for in refuse.
		if tooLarge {
			return d.tooLarge()
		}
		return d.next() && d.event() && d.close()
	case LabelReq, LabelCount, LabelClose:
		if !d.next() || !d.subID() {
			return false
		}
		if tooLarge {
			return d.tooLarge()
		}
		return (d.f.Label == LabelClose || d.filters()) && d.close()
	default:
		if tooLarge {
			return d.tooLarge()
		}
		d.f.Label = LabelUnknown
		return d.fail("unknown message type")
	}
}

func (d *frameDecoder) tooLarge() bool {
	return d.fail(fmt.Sprintf("frame is larger than %d bytes", d.limits.Frame))
}

// maxLabel is the size of the longest label a client may send.
const maxLabel = len("EVENT")

func (d *frameDecoder) label() bool {
	if d.peek() != '"' {
		return d.fail("a frame must begin with its type")
	}
	t, ok := d.str()
	if !ok {
		return false
	}
	if t.size <= maxLabel {
		d.f.Label = labelOf(d.bytes(t))
	}
	return true
}

// next takes the comma before an element.
func (d *frameDecoder) next() bool {
	if d.peek() == ']' {
		return d.fail(d.f.Label.String() + " is too short")
	}
	return d.expect(',')
}

// close takes the end of the frame.
func (d *frameDecoder) close() bool {
	if d.peek() == ',' {
		return d.fail(d.f.Label.String() + " is too long")
	}
	if !d.expect(']') {
		return false
	}
	return d.end()
}

func (d *frameDecoder) subID() bool {
	if d.peek() != '"' {
		return d.fail("a subscription id must be a string")
	}
	t, ok := d.str()
	switch {
	case !ok:
		return false
	case t.size == 0:
		return d.failAt(t.start, "a subscription id must not be empty")
	case over(t.size, d.limits.SubID):
		return d.failAt(t.start, fmt.Sprintf("a subscription id must not be longer than %d bytes", d.limits.SubID))
	}
	d.f.SubID = string(d.bytes(t))
	return true
}

// event takes an event object, checking its syntax only.
func (d *frameDecoder) event() bool {
	if d.peek() != '{' {
		return d.fail("event must be a JSON object")
	}
	start, seen := d.i, 0
	ok := d.object(func(key text) bool {
		field := eventField(d.bytes(key))
		if seen&field != 0 {
			return d.failAt(key.start, "event has a field twice")
		}
		seen |= field
		if field == fieldID {
			d.f.HaveID = d.hex(d.f.EventID[:], "id")
			return d.f.HaveID
		}
		return d.skip()
	})
	if !ok {
		return false
	}
	if !d.f.HaveID {
		return d.fail("event has no id")
	}
	d.f.RawEvent = d.b[start:d.i:d.i]
	return true
}

func (d *frameDecoder) filters() bool {
	unsupported := ""
	for d.peek() == ',' || len(d.f.Filters) == 0 {
		if !d.next() {
			return false
		}
		if over(len(d.f.Filters)+1, d.limits.Filters) {
			return d.fail(fmt.Sprintf("%s has more than %d filters", d.f.Label, d.limits.Filters))
		}
		f := filterDecoder{scanner: &d.scanner, limits: d.limits}
		if !f.decode() {
			return false
		}
		if f.unsupported != "" {
			unsupported = f.unsupported
		}
		d.f.Filters = append(d.f.Filters, f.f)
	}
	// What is malformed is said before what is unknown, so the rest is read first.
	if unsupported != "" {
		if !d.close() {
			return false
		}
		d.unsupported = true
		return d.fail(unsupported)
	}
	return true
}

// DecodeFilter decodes one filter object, with nothing after it, by the rules of REQ. An error is a
// *DecodeError; Unsupported tells an unknown key from a malformed filter.
func DecodeFilter(b []byte, l Limits) (nostr.Filter, error) {
	// In a frame the filter is inside one array.
	s := scanner{b: b, depth: 1, max: l.depth()}
	f := filterDecoder{scanner: &s, limits: l}
	switch {
	case over(len(b), l.Frame):
		s.fail(fmt.Sprintf("filter is larger than %d bytes", l.Frame))
	case !f.decode() || !s.end():
	case f.unsupported != "":
		s.fail(f.unsupported)
		return nostr.Filter{}, s.refuse(DecodeError{Unsupported: true})
	default:
		return f.f, nil
	}
	return nostr.Filter{}, s.refuse(DecodeError{})
}

// DecodeFilters decodes an array of filters, with nothing after it, by the rules of REQ: 1 to Filters of
// them. An error is a *DecodeError.
func DecodeFilters(b []byte, l Limits) ([]nostr.Filter, error) {
	s := scanner{b: b, max: l.depth()}
	var filters []nostr.Filter
	unsupported := ""
	ok := !over(len(b), l.Frame) || s.fail(fmt.Sprintf("filters are larger than %d bytes", l.Frame))
	if ok && s.peek() != '[' {
		ok = s.fail("filters must be a JSON array")
	}
	ok = ok && s.array(func(i int) bool {
		if over(i+1, l.Filters) {
			return s.fail(fmt.Sprintf("more than %d filters", l.Filters))
		}
		f := filterDecoder{scanner: &s, limits: l}
		if !f.decode() {
			return false
		}
		if f.unsupported != "" {
			unsupported = f.unsupported
		}
		filters = append(filters, f.f)
		return true
	}) && s.end()
	switch {
	case !ok:
	case len(filters) == 0:
		s.fail("there must be a filter")
	case unsupported != "":
		s.fail(unsupported)
		return nil, s.refuse(DecodeError{Unsupported: true})
	default:
		return filters, nil
	}
	return nil, s.refuse(DecodeError{})
}

// filterDecoder decodes one filter. unsupported is set when it has a key that we do not know and is
// otherwise well-formed.
type filterDecoder struct {
	*scanner
	limits      Limits
	f           nostr.Filter
	seen        uint64 // keys that were there: a bit each
	unsupported string
}

// The bits of seen: the letters of tag conditions take the low 52.
const (
	seenIDs = 1 << (52 + iota)
	seenAuthors
	seenKinds
	seenSince
	seenUntil
	seenLimit
	seenSearch
)

func (d *filterDecoder) decode() bool {
	if d.peek() != '{' {
		return d.fail("a filter must be a JSON object")
	}
	return d.object(d.member)
}

func (d *filterDecoder) member(key text) bool {
	switch k := d.bytes(key); string(k) {
	case "ids":
		return d.once(key, seenIDs) && d.ids()
	case "authors":
		return d.once(key, seenAuthors) && d.authors()
	case "kinds":
		return d.once(key, seenKinds) && d.kinds()
	case "since":
		return d.once(key, seenSince) && d.time("since", &d.f.Since)
	case "until":
		return d.once(key, seenUntil) && d.time("until", &d.f.Until)
	case "limit":
		return d.once(key, seenLimit) && d.limit()
	case "search":
		return d.once(key, seenSearch) && d.search()
	default:
		if len(k) == 2 && k[0] == '#' && nostr.IsTagLetter(k[1]) {
			return d.once(key, letterBit(k[1])) && d.tag(k[1])
		}
		d.unsupported = "filter contains unknown elements"
		return d.skip()
	}
}

func letterBit(c byte) uint64 {
	if c >= 'a' {
		return 1 << (26 + c - 'a')
	}
	return 1 << (c - 'A')
}

func (d *filterDecoder) once(key text, bit uint64) bool {
	if d.seen&bit != 0 {
		return d.failAt(key.start, "filter has a key twice")
	}
	d.seen |= bit
	return true
}

// list takes an array of at most ListValues elements.
func (d *filterDecoder) list(name string, element func() bool) bool {
	if d.peek() != '[' {
		return d.fail(name + " must be an array")
	}
	n := 0
	ok := d.array(func(int) bool {
		n++
		if over(n, d.limits.ListValues) {
			return d.fail(fmt.Sprintf("%s has more than %d values", name, d.limits.ListValues))
		}
		return element()
	})
	if ok && n == 0 {
		d.f.MatchesNothing = true
	}
	return ok
}

func (d *filterDecoder) ids() bool {
	return d.list("ids", func() bool {
		d.f.IDs = append(d.f.IDs, nostr.ID{})
		return d.hex(d.f.IDs[len(d.f.IDs)-1][:], "a value of ids")
	})
}

func (d *filterDecoder) authors() bool {
	return d.list("authors", func() bool {
		d.f.Authors = append(d.f.Authors, nostr.PubKey{})
		return d.hex(d.f.Authors[len(d.f.Authors)-1][:], "a value of authors")
	})
}

func (d *filterDecoder) kinds() bool {
	return d.list("kinds", func() bool {
		k, ok := d.int64("a value of kinds", 0, math.MaxUint16)
		d.f.Kinds = append(d.f.Kinds, nostr.Kind(k))
		return ok
	})
}

// tag takes the values of a tag condition. NIP-01 wants ids and keys for #e and #p; other values are
// taken too, they match what some event says.
func (d *filterDecoder) tag(letter byte) bool {
	c := nostr.TagCondition{Name: letter}
	ok := d.list("a tag condition", func() bool {
		if d.peek() != '"' {
			return d.fail("a value of a tag condition must be a string")
		}
		t, ok := d.str()
		if ok {
			c.Values = append(c.Values, string(d.bytes(t)))
		}
		return ok
	})
	if len(c.Values) > 0 {
		d.f.Tags = append(d.f.Tags, c)
	}
	return ok
}

func (d *filterDecoder) time(name string, dst **int64) bool {
	at, ok := d.int64(name, math.MinInt64, math.MaxInt64)
	*dst = &at
	return ok
}

func (d *filterDecoder) limit() bool {
	n, ok := d.int64("limit", 0, math.MaxInt64)
	limit := int(min(n, math.MaxInt32))
	d.f.Limit = &limit
	return ok
}

func (d *filterDecoder) search() bool {
	if d.peek() != '"' {
		return d.fail("search must be a string")
	}
	t, ok := d.str()
	if !ok {
		return false
	}
	if over(t.size, d.limits.Search) {
		return d.failAt(t.start, fmt.Sprintf("search is longer than %d bytes", d.limits.Search))
	}
	d.f.Search = string(d.bytes(t))
	return true
}
