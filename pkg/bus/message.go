package bus

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers branch on.
var (
	// ErrDisconnected says that the server is away just now; try again later.
	ErrDisconnected = errors.New("bus is disconnected")
	// ErrUnacknowledged says that no acknowledgement came in time: the message may be stored or not.
	ErrUnacknowledged = errors.New("bus did not acknowledge in time")
	// ErrTooLarge says that a payload is larger than the server takes (MaxPayload).
	ErrTooLarge = errors.New("message is too large for the bus")
	// ErrRevision says that something else was written to a key than its writer knows of.
	ErrRevision = errors.New("the key was written meanwhile")
	// ErrNoStream says that no stream takes this subject, or that the stream is missing.
	ErrNoStream = errors.New("no such stream")
	// ErrStop, returned by a handler, ends consumption without an error.
	ErrStop = errors.New("stop consuming")
)

// Msg is one message taken from the bus. Data belongs to the receiver.
type Msg struct {
	// Subject is where it was published.
	Subject string
	// Data is the payload.
	Data []byte
	// Epoch and Sequence are its position in the stream; both are 0 outside JetStream.
	Epoch    uint64
	Sequence uint64
	// Published is when the stream stored it.
	Published time.Time
	// Pending is how many later messages of this subject were already waiting.
	Pending uint64
}

// Ack says that a stream has stored a message.
type Ack struct {
	// Stream and Sequence say where.
	Stream   string
	Sequence uint64
	// Duplicate is true when a message with this id was stored before (within the stream's window).
	Duplicate bool
}

// State is what a stream holds.
type State struct {
	// Epoch identifies the stream's incarnation: its creation time in Unix nanoseconds.
	Epoch uint64
	// FirstSeq is the sequence of the oldest message; LastSeq + 1 when the stream is empty.
	FirstSeq uint64
	// LastSeq is the last sequence ever given; 0 when there was none.
	LastSeq uint64
	// Messages and Bytes are what it holds now.
	Messages uint64
	Bytes    uint64
}

// Gap says that messages may have been lost to a consumer: those of its subject with sequences From to
// To, inclusive, that it has not handled. A stream counts all its subjects together, so there may have been
// none of this subject among them. None of them comes any more.
type Gap struct {
	// Stream and Subject are what was consumed.
	Stream  string
	Subject string
	// Epoch is the stream's incarnation.
	Epoch uint64
	// From and To are the first and last sequence in question.
	From uint64
	To   uint64
}

// Recreated says that the stream is not the one consumed before: its sequences start again. What the old
// one held after Last is lost to the consumer, which goes on from the beginning of the new one.
type Recreated struct {
	// Stream and Subject are what was consumed.
	Stream  string
	Subject string
	// OldEpoch and NewEpoch are the incarnations; they are equal when a server lost the end of its data.
	OldEpoch uint64
	NewEpoch uint64
	// Last is the last sequence handled in the old one, Next the first to come from the new one.
	Last uint64
	Next uint64
}

// GapError is returned where a gap has no other way to be told.
type GapError struct{ Gap Gap }

// Error says what is missing.
func (e *GapError) Error() string {
	return fmt.Sprintf("stream %s no longer holds sequences %d to %d wanted for %s", e.Gap.Stream, e.Gap.From, e.Gap.To, e.Gap.Subject)
}

// RecreatedError is returned where a new incarnation has no other way to be told.
type RecreatedError struct{ Recreated Recreated }

// Error says that positions have lost their meaning.
func (e *RecreatedError) Error() string {
	return fmt.Sprintf("stream %s was made anew while %s was consumed", e.Recreated.Stream, e.Recreated.Subject)
}
