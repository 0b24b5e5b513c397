package hub

import "github.com/apiary-relay/apiary/services/gateway/internal/cork"

// Bounds of a piece, several frames in one. A frame over flatLimit is never part of one: its recipients share
// its body instead, which is one copy less.
const (
	flatLimit   = 4 << 10
	pieceBytes  = 32 << 10
	pieceFrames = 64
)

// Run is events that follow each other on their way to the same subscriptions, one at least. Under load that is
// what a fan-out node's message consists of, and then a subscription costs little more for all of them than for one. A Run
// belongs to the goroutine that delivers it.
type Run struct {
	events []*Event
	oldest uint64 // the lowest transaction id of an event that has one; 0 if none has
	state  bool   // one is a channel's state

	lastID string
	last   []cork.Frame // the frames of lastID; nil: there is none
	known  map[string]*shared
}

// shared is the frames for one subscription id. They are put into pieces once a second recipient asks for them.
type shared struct {
	frames []cork.Frame
	joined bool
}

// NewRun returns a run of events, which it keeps.
func NewRun(events ...*Event) *Run {
	r := &Run{}
	for _, ev := range events {
		r.Add(ev)
	}
	return r
}

// Add appends an event, before any Frames.
func (r *Run) Add(ev *Event) {
	r.events = append(r.events, ev)
	if xid := ev.Header.GetCommitXid(); xid != 0 && (r.oldest == 0 || xid < r.oldest) {
		r.oldest = xid
	}
	r.state = r.state || IsChannelState(ev.Header.GetKind())
}

// Events returns the events in order; not to be changed.
func (r *Run) Events() []*Event { return r.events }

// Oldest is the lowest id of a transaction that stored one of the events, 0 if none was stored.
func (r *Run) Oldest() uint64 { return r.oldest }

// HasChannelState reports whether one of the events is a channel's state.
func (r *Run) HasChannelState() bool { return r.state }

// Frames returns the EVENT frames of the run for a subscription id, built once per distinct id; not to be
// changed. prefix is Prefix(subID).
func (r *Run) Frames(subID string, prefix []byte) []cork.Frame {
	if r.last != nil && subID == r.lastID {
		return r.last
	}
	s := r.known[subID]
	switch {
	case s == nil:
		if r.known == nil {
			r.known = make(map[string]*shared)
		}
		s = &shared{frames: make([]cork.Frame, len(r.events))}
		for i, ev := range r.events {
			s.frames[i] = ev.Fresh(prefix)
		}
		r.known[subID] = s
		return s.frames
	case !s.joined:
		s.frames, s.joined = r.join(prefix, s.frames), true
	}
	r.lastID, r.last = subID, s.frames
	return s.frames
}

// join puts the frames of the events, given one by one, into pieces.
func (r *Run) join(prefix []byte, single []cork.Frame) []cork.Frame {
	joined := make([]cork.Frame, 0, 1+len(single)/8)
	for i := 0; i < len(single); {
		end, size := i, 0
		for ; end < len(single) && end-i < pieceFrames; end++ {
			n := single[end].Size()
			if n > flatLimit || size+n > pieceBytes {
				break
			}
			size += n
		}
		if end == i {
			joined = append(joined, single[i])
			i++
			continue
		}
		piece := make([]byte, 0, size)
		for _, ev := range r.events[i:end] {
			piece = cork.AppendText(piece, prefix, ev.body)
		}
		joined = append(joined, cork.Frame{Head: piece, More: end - i - 1})
		i = end
	}
	return joined
}
