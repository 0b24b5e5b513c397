package client

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// The labels of a relay's frames.
const (
	LabelEvent  = "EVENT"
	LabelOK     = "OK"
	LabelEOSE   = "EOSE"
	LabelClosed = "CLOSED"
	LabelNotice = "NOTICE"
	LabelAuth   = "AUTH"
	LabelCount  = "COUNT"
	LabelNegMsg = "NEG-MSG"
	LabelNegErr = "NEG-ERR"
)

// Frame is one frame of the relay. Which fields are set depends on the label.
type Frame struct {
	// Raw is the frame as it came.
	Raw []byte
	// Label is the first element, empty if it could not be read.
	Label string
	// Sub is the subscription or query id of EVENT, EOSE, CLOSED, COUNT, NEG-MSG and NEG-ERR.
	Sub string
	// Event is what EVENT carries.
	Event *nostr.Event
	// ID is the event id in OK.
	ID string
	// Accepted is the verdict of OK.
	Accepted bool
	// Message is the text of OK, CLOSED, NOTICE and NEG-ERR, the challenge of AUTH, the payload of NEG-MSG.
	Message string
	// Count is the answer to a COUNT.
	Count Counted
	// Malformed says what is wrong with the frame, nil for a frame as the NIPs have it. What could be read
	// is set nevertheless.
	Malformed error
}

// Counted is the object of a COUNT frame (NIP-45).
type Counted struct {
	Count       *int64 `json:"count"`
	Approximate bool   `json:"approximate"`
	HLL         string `json:"hll"`
}

// String returns the frame, cut to a readable length.
func (f *Frame) String() string { return Excerpt(f.Raw) }

// Excerpt returns the beginning of b, for a person.
func Excerpt(b []byte) string {
	const most = 480
	if len(b) <= most {
		return string(b)
	}
	return fmt.Sprintf("%s… (%d bytes)", b[:most], len(b))
}

// shapes says what follows the label.
var shapes = map[string]func(*Frame, []json.RawMessage) error{
	LabelEvent: func(f *Frame, e []json.RawMessage) error {
		if err := read(e, &f.Sub, nil); err != nil {
			return err
		}
		var err error
		f.Event, err = DecodeEvent(e[1])
		return err
	},
	LabelOK:     func(f *Frame, e []json.RawMessage) error { return read(e, &f.ID, &f.Accepted, &f.Message) },
	LabelEOSE:   func(f *Frame, e []json.RawMessage) error { return read(e, &f.Sub) },
	LabelClosed: func(f *Frame, e []json.RawMessage) error { return read(e, &f.Sub, &f.Message) },
	LabelNotice: func(f *Frame, e []json.RawMessage) error { return read(e, &f.Message) },
	LabelAuth:   func(f *Frame, e []json.RawMessage) error { return read(e, &f.Message) },
	LabelCount: func(f *Frame, e []json.RawMessage) error {
		err := read(e, &f.Sub, &f.Count)
		if err == nil && f.Count.Count == nil {
			err = errors.New("the count is missing")
		}
		return err
	},
	LabelNegMsg: func(f *Frame, e []json.RawMessage) error { return read(e, &f.Sub, &f.Message) },
	LabelNegErr: func(f *Frame, e []json.RawMessage) error {
		if len(e) > 2 { // NIP-77 allows the greatest number of records there
			e = e[:2]
		}
		return read(e, &f.Sub, &f.Message)
	},
}

// read decodes elements into dst, of which nil ones are passed over.
func read(elements []json.RawMessage, dst ...any) error {
	if len(elements) != len(dst) {
		return fmt.Errorf("%d elements follow the label, not %d", len(elements), len(dst))
	}
	for i, d := range dst {
		if d == nil {
			continue
		}
		if string(elements[i]) == "null" {
			return fmt.Errorf("element %d is null", i+1)
		}
		if err := json.Unmarshal(elements[i], d); err != nil {
			return fmt.Errorf("element %d: %w", i+1, err)
		}
	}
	return nil
}

// Decode reads a relay's frame; it never fails, see Malformed.
func Decode(raw []byte) Frame {
	f := Frame{Raw: raw}
	var elements []json.RawMessage
	if err := json.Unmarshal(raw, &elements); err != nil {
		f.Malformed = fmt.Errorf("not a JSON array: %w", err)
		return f
	}
	if len(elements) == 0 || json.Unmarshal(elements[0], &f.Label) != nil {
		f.Malformed = errors.New("no label")
		return f
	}
	shape, known := shapes[f.Label]
	if !known {
		f.Malformed = fmt.Errorf("unknown label %q", f.Label)
		return f
	}
	if err := shape(&f, elements[1:]); err != nil {
		f.Malformed = fmt.Errorf("%s: %w", f.Label, err)
	}
	return f
}

// DecodeEvent reads an event object. It wants all seven fields of their types and judges neither id nor
// signature.
func DecodeEvent(raw []byte) (*nostr.Event, error) {
	var w struct {
		ID        *nostr.ID     `json:"id"`
		PubKey    *nostr.PubKey `json:"pubkey"`
		CreatedAt *int64        `json:"created_at"`
		Kind      *nostr.Kind   `json:"kind"`
		Tags      *[]nostr.Tag  `json:"tags"`
		Content   *string       `json:"content"`
		Sig       *string       `json:"sig"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	if w.ID == nil || w.PubKey == nil || w.CreatedAt == nil || w.Kind == nil || w.Tags == nil || w.Content == nil || w.Sig == nil {
		return nil, errors.New("event: a field is missing")
	}
	sig, err := nostr.ParseSig(*w.Sig)
	if err != nil {
		return nil, fmt.Errorf("event: sig: %w", err)
	}
	return &nostr.Event{
		ID: *w.ID, PubKey: *w.PubKey, CreatedAt: *w.CreatedAt, Kind: *w.Kind,
		Tags: *w.Tags, Content: *w.Content, Sig: sig,
	}, nil
}
