package wire

import "github.com/apiary-relay/apiary/pkg/nostr"

// Label is the first element of a frame.
type Label uint8

// The labels of NIP-01, NIP-42 and NIP-45. LabelUnknown is what could not be read.
const (
	LabelUnknown Label = iota
	LabelEvent
	LabelReq
	LabelCount
	LabelClose
	LabelAuth
	LabelOK
	LabelEOSE
	LabelClosed
	LabelNotice
)

var labels = [...]string{
	LabelUnknown: "unknown",
	LabelEvent:   "EVENT",
	LabelReq:     "REQ",
	LabelCount:   "COUNT",
	LabelClose:   "CLOSE",
	LabelAuth:    "AUTH",
	LabelOK:      "OK",
	LabelEOSE:    "EOSE",
	LabelClosed:  "CLOSED",
	LabelNotice:  "NOTICE",
}

// String returns the label as it is on the wire, "unknown" for none; a closed set, fit for metrics.
func (l Label) String() string {
	if int(l) >= len(labels) {
		return labels[LabelUnknown]
	}
	return labels[l]
}

func labelOf(s []byte) Label {
	for l := LabelEvent; int(l) < len(labels); l++ {
		if string(s) == labels[l] {
			return l
		}
	}
	return LabelUnknown
}

// Frame is a client's frame. Which fields are set depends on the label.
type Frame struct {
	// Label is EVENT, REQ, COUNT, CLOSE or AUTH.
	Label Label
	// SubID is the subscription or query id of REQ, COUNT and CLOSE; never empty there.
	SubID string
	// RawEvent is the event object of EVENT and AUTH: exactly its bytes, a slice of the input. It is a
	// syntactically valid JSON object without duplicate keys, not yet a valid event.
	RawEvent []byte
	// EventID is the value of the event's id field if HaveID is set.
	EventID nostr.ID
	// HaveID is set when the event object has an id of 64 lower-case hexadecimal digits.
	HaveID bool
	// Filters are the filters of REQ and COUNT; at least one.
	Filters []nostr.Filter
}

// Limits bound what a decoder accepts. 0 switches a limit off, except Depth.
type Limits struct {
	// Frame is the size of the whole frame, or of the event for DecodeEvent, in bytes.
	Frame int
	// Content is the size of an event's content, unescaped, in bytes.
	Content int
	// SubID is the size of a subscription id, unescaped, in bytes.
	SubID int
	// Filters is the number of filters in one REQ or COUNT.
	Filters int
	// Tags is the number of tags of an event.
	Tags int
	// TagValues is the number of elements of one tag, its name included.
	TagValues int
	// ListValues is the number of values in one list of a filter.
	ListValues int
	// Search is the size of a NIP-50 query, unescaped, in bytes.
	Search int
	// Depth is how deep arrays and objects may nest, the frame's own array included; an event needs 4.
	// 0 means the default; it cannot exceed MaxDepth.
	Depth int
}

// MaxDepth is the deepest nesting that Limits can allow.
const MaxDepth = 256

// DefaultLimits returns the limits that clients are promised.
func DefaultLimits() Limits {
	return Limits{
		Frame:      512 << 10,
		Content:    256 << 10,
		SubID:      256,
		Filters:    10,
		Tags:       5000,
		TagValues:  1000,
		ListValues: 5000,
		Search:     1024,
		Depth:      32,
	}
}

func (l Limits) depth() int {
	if l.Depth <= 0 {
		return DefaultLimits().Depth
	}
	return min(l.Depth, MaxDepth)
}

// over reports whether n exceeds limit, where 0 is no limit.
func over(n, limit int) bool { return limit > 0 && n > limit }

// DecodeError says why a frame was refused, and to whom the answer goes: an EVENT or AUTH gets an OK
// if HaveID is set, a REQ or COUNT gets a CLOSED if SubID is set, anything else a NOTICE.
type DecodeError struct {
	// Label is the frame's label if it could be read.
	Label Label
	// SubID is the subscription id if it could be read and is within its limit, else empty.
	SubID string
	// EventID is the event's id if HaveID is set, also when what follows it is broken.
	EventID nostr.ID
	// HaveID is set when the event's id could be read.
	HaveID bool
	// Unsupported is set when the frame is well-formed but asks for what we do not do, so that the
	// reason is UNSUPPORTED rather than INVALID.
	Unsupported bool
	// Msg is public text without a prefix. It never quotes the input at length.
	Msg string
	// Offset is the byte at which the fault was noticed.
	Offset int
}

// Error returns the message.
func (e *DecodeError) Error() string { return e.Msg }
