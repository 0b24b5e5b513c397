package live

import (
	"cmp"

	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// position is a place in a stream; the zero value is before everything. Epochs are creation times, so a
// later incarnation of a stream comes after every position of an earlier one.
type position struct {
	epoch, sequence uint64
	index           uint32
}

func positionOf(m *commonv1.Position) position {
	return position{epoch: m.GetEpoch(), sequence: m.GetSequence(), index: m.GetIndex()}
}

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.epoch, q.epoch), cmp.Compare(p.sequence, q.sequence), cmp.Compare(p.index, q.index))
}

func (p position) proto() *commonv1.Position {
	return &commonv1.Position{Epoch: p.epoch, Sequence: p.sequence, Index: p.index}
}

// The streams as indexes of a cursor.
const (
	events = iota
	ephemeral
	streams
)

// streamIndex returns the index of a stream, false for one we do not know.
func streamIndex(s commonv1.Stream) (int, bool) {
	switch s {
	case commonv1.Stream_STREAM_EVENTS:
		return events, true
	case commonv1.Stream_STREAM_EPHEMERAL:
		return ephemeral, true
	case commonv1.Stream_STREAM_UNSPECIFIED:
		return 0, false
	default:
		return 0, false
	}
}

// cursor is a position in each stream.
type cursor [streams]position

func cursorOf(m *commonv1.Cursor) cursor {
	return cursor{events: positionOf(m.GetEvents()), ephemeral: positionOf(m.GetEphemeral())}
}

func (c cursor) proto() *commonv1.Cursor {
	return &commonv1.Cursor{Events: c[events].proto(), Ephemeral: c[ephemeral].proto()}
}

// raise moves each position up to that of d if it is later.
func (c *cursor) raise(d cursor) {
	for i := range c {
		if d[i].compare(c[i]) > 0 {
			c[i] = d[i]
		}
	}
}
