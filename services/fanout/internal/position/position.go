package position

import (
	"cmp"
	"math"

	"github.com/apiary-relay/apiary/pkg/bus/subject"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// Stream is one of the two streams that carry envelopes.
type Stream uint8

// The streams. Their values index arrays of length Streams.
const (
	Events Stream = iota
	Ephemeral
	Streams
)

// Name returns the stream's name on the bus.
func (s Stream) Name() string {
	if s == Ephemeral {
		return subject.StreamEphemeral
	}
	return subject.StreamEvents
}

// Subject returns the subject of a partition on the stream.
func (s Stream) Subject(partition uint32) string {
	if s == Ephemeral {
		return subject.Ephemeral(partition)
	}
	return subject.Events(partition)
}

// Proto returns the stream's name on the wire.
func (s Stream) Proto() commonv1.Stream {
	if s == Ephemeral {
		return commonv1.Stream_STREAM_EPHEMERAL
	}
	return commonv1.Stream_STREAM_EVENTS
}

// Whole is the Index of a position after the whole message, however many envelopes it holds.
const Whole = math.MaxUint32

// Position is a place in one stream: after envelope Index of message Sequence in the incarnation Epoch
// of the stream. The zero value is before everything.
type Position struct {
	Epoch    uint64
	Sequence uint64
	Index    uint32
}

// After returns the position after the whole message.
func After(epoch, sequence uint64) Position {
	return Position{Epoch: epoch, Sequence: sequence, Index: Whole}
}

// Compare orders positions as the stream delivers. Epochs are creation times, so a later incarnation of
// the stream is after every position of an earlier one.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Sequence, q.Sequence), cmp.Compare(p.Index, q.Index))
}

// IsAfter reports whether p is behind nothing that q has passed: p > q.
func (p Position) IsAfter(q Position) bool { return p.Compare(q) > 0 }

// Next returns the sequence of the first message that may hold an envelope after p.
func (p Position) Next() uint64 {
	if p.Index == Whole {
		return p.Sequence + 1
	}
	return p.Sequence
}

// Proto returns the position for the wire.
func (p Position) Proto() *commonv1.Position {
	return &commonv1.Position{Epoch: p.Epoch, Sequence: p.Sequence, Index: p.Index}
}

// FromProto reads a position; nil is the zero position.
func FromProto(m *commonv1.Position) Position {
	return Position{Epoch: m.GetEpoch(), Sequence: m.GetSequence(), Index: m.GetIndex()}
}

// Cursor is a place in both streams of one partition, indexed by Stream.
type Cursor [Streams]Position

// Proto returns the cursor for the wire.
func (c Cursor) Proto() *commonv1.Cursor {
	return &commonv1.Cursor{Events: c[Events].Proto(), Ephemeral: c[Ephemeral].Proto()}
}

// CursorFromProto reads a cursor. A stream that it does not name gets the position in missing.
func CursorFromProto(m *commonv1.Cursor, missing Cursor) Cursor {
	c := missing
	if m.GetEvents() != nil {
		c[Events] = FromProto(m.GetEvents())
	}
	if m.GetEphemeral() != nil {
		c[Ephemeral] = FromProto(m.GetEphemeral())
	}
	return c
}
