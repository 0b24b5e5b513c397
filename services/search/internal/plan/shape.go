package plan

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Driver is the index that yields a statement's candidates.
type Driver uint8

// The drivers; see the package comment.
const (
	DriverIDs Driver = iota
	DriverAddress
	DriverTag
	DriverChannel
	DriverAuthors
	DriverKinds
	DriverTime
	DriverWords
	DriverAction
	drivers
)

// String returns the driver's name, as in metrics.
func (d Driver) String() string {
	switch d {
	case DriverIDs:
		return "ids"
	case DriverAddress:
		return "address"
	case DriverTag:
		return "tag"
	case DriverChannel:
		return "channel"
	case DriverAuthors:
		return "authors"
	case DriverKinds:
		return "kinds"
	case DriverWords:
		return "words"
	case DriverAction:
		return "action"
	default:
		return "time"
	}
}

// steps reports whether the driver has a list of values each of which can have very many events.
func (d Driver) steps() bool { return d == DriverChannel || d == DriverAuthors || d == DriverKinds }

// Drivers returns all drivers.
func Drivers() []Driver {
	all := make([]Driver, drivers)
	for i := range all {
		all[i] = Driver(i)
	}
	return all
}

// TagChecks says how many tag conditions are checked on each candidate.
type TagChecks uint8

// The forms of tag checks.
const (
	NoTags TagChecks = iota
	OneTag
	ManyTags
)

// Channels says what a shape knows of an event's channel.
type Channels uint8

// The forms of #h.
const (
	// AnyChannel: there is no #h.
	AnyChannel Channels = iota
	// InChannel: there is #h, and the kinds leave out the relay-signed state of channels.
	InChannel
	// InChannelWithState: there is #h, and such state can be among the candidates.
	InChannelWithState
)

type output uint8

const (
	outRows output = iota
	outCount
	outIDs
	outAuthors
)

// Shape is what decides a statement's text.
type Shape struct {
	// Driver yields the candidates.
	Driver Driver
	// Many is set for the tag driver with several values, which can yield an event more than once.
	Many bool
	// Stepped is set when many values drive: see steps.
	Stepped bool
	// Tags are the tag conditions besides the driver's.
	Tags TagChecks
	// Channel is what #h asks for.
	Channel Channels
	// Party is set when events that are not for everybody can be among the candidates.
	Party bool
	// Paged is set when the first page is not all that is wanted.
	Paged bool
	// Top is set when replies are left out.
	Top bool
	// Prefix is set when the last word of a search is the beginning of words.
	Prefix bool

	out output
}

// String returns a name for tests and logs, such as "tag.many+tags+party/rows".
func (s Shape) String() string {
	name := s.Driver.String()
	if s.Many {
		name += ".many"
	}
	if s.Stepped {
		name += ".stepped"
	}
	name += [...]string{"", "+tag", "+tags"}[s.Tags]
	name += [...]string{"", "+channel", "+channel+state"}[s.Channel]
	if s.Party {
		name += "+party"
	}
	if s.Paged {
		name += ".paged"
	}
	if s.Top {
		name += ".top"
	}
	if s.Prefix {
		name += ".prefix"
	}
	return name + [...]string{"/rows", "/count", "/ids", "/authors"}[s.out]
}

// statement is a text with $n placeholders and the names of its parameters in order.
type statement struct {
	sql    string
	params []string
}

// table holds every statement; it is made when first needed and never changes.
var table = sync.OnceValue(func() map[Shape]statement {
	t := make(map[Shape]statement)
	for s := range shapes {
		t[s] = number(text(s))
	}
	return t
})

// shapes yields every shape that a filter can choose.
func shapes(yield func(Shape) bool) {
	for d := range drivers {
		for i := range 2 * 3 * 3 * 2 * 2 * 4 * 2 * 2 * 2 {
			s := Shape{
				Driver: d, Many: i%2 == 1, Tags: TagChecks(i / 2 % 3), Channel: Channels(i / 6 % 3),
				Party: i/18%2 == 1, Stepped: i/36%2 == 1, out: output(i / 72 % 4), Paged: i/288%2 == 1, Top: i/576%2 == 1, Prefix: i/1152 == 1,
			}
			if !possible(s) {
				continue
			}
			if !yield(s) {
				return
			}
		}
	}
}

// possible reports whether choose can give the shape: most drivers are chosen only in the absence of what
// would make a better one.
func possible(s Shape) bool {
	if s.Stepped && (!s.Driver.steps() || s.out != outRows) {
		return false
	}
	if s.Prefix && (!s.Paged || s.Driver != DriverWords) {
		return false
	}
	if s.Top && (!s.Paged || s.Stepped || s.Channel == AnyChannel || s.Driver == DriverWords) {
		return false
	}
	if s.Paged && s.out != outRows {
		return false
	}
	if s.Many && s.out == outAuthors {
		return false // there is one value
	}
	switch s.Driver {
	case DriverChannel:
		return !s.Many && s.Channel != AnyChannel
	case DriverAuthors:
		return !s.Many && s.Channel == AnyChannel
	case DriverKinds, DriverTime:
		return !s.Many && s.Channel == AnyChannel && s.Tags == NoTags
	case DriverTag:
		return true
	default:
		return !s.Many
	}
}

func statementOf(s Shape) statement { return table()[s] }

// All returns the text of every statement by its shape's name, for tests that prepare them.
func All() map[string]string {
	all := make(map[string]string)
	for s, st := range table() {
		all[s.String()] = st.sql
	}
	return all
}

// number replaces each @name by a $n, the same n for the same name, in order of first use. An @ without a
// name belongs to an operator.
func number(text string) statement {
	var st statement
	var b strings.Builder
	parts := strings.Split(text, "@")
	b.WriteString(parts[0])
	for _, part := range parts[1:] {
		end := strings.IndexFunc(part, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9')
		})
		if end < 0 {
			end = len(part)
		}
		name := part[:end]
		if name == "" {
			b.WriteByte('@')
			b.WriteString(part)
			continue
		}
		n := slices.Index(st.params, name)
		if n < 0 {
			n = len(st.params)
			st.params = append(st.params, name)
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n + 1))
		b.WriteString(part[end:])
	}
	st.sql = b.String()
	return st
}
