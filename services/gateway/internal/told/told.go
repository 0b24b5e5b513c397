// Package told remembers what the gateway has heard of revocations, for whoever is being let in meanwhile.
//
// A key that authenticates, or a client that connects, is asked about first and is found among the sessions only
// afterwards. What is heard in between finds no session yet, and came too late to be in the answer. So whoever lets in takes a mark
// (Log.Now) before it asks, enters the session, and looks then whether something was told since (Log.Since); whoever
// hears notes it first (Log.Note) and looks at the sessions then. One of the two sees the other. Sessions that are in doubt
// are looked at again (Doubts).
//
// All of it is safe for concurrent use, and does not block.
package told

import "sync"

// maxCommunities is of how many communities a Log remembers at least what was told last, and twice as many at most. When
// older ones are forgotten everybody who is being let in is in doubt.
const maxCommunities = 16 << 10

// Log is what was told of each community.
type Log struct {
	mu            sync.Mutex
	seq           uint64 // of the last message
	floor         uint64 // what is not remembered was told by then
	recent, older map[int64]word
}

// word is the last message about a community, and the greatest access version that one of them named.
type word struct{ seq, version uint64 }

// NewLog returns an empty log.
func NewLog() *Log { return &Log{recent: make(map[int64]word)} }

// Now returns a mark for Since.
func (l *Log) Now() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq
}

// Note records a message about a community, which names an access version, or 0.
func (l *Log) Note(community int64, version uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	last, ok := l.recent[community]
	if !ok {
		last = l.older[community]
		if len(l.recent) >= maxCommunities {
			l.older, l.recent, l.floor = l.recent, make(map[int64]word), l.seq
		}
	}
	l.recent[community] = word{l.seq, max(last.version, version)}
}

// NoteAll records that messages about any community may have been lost.
func (l *Log) NoteAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	l.floor = l.seq
}

// Since reports whether something was told of a community since a mark, or may have been.
func (l *Log) Since(community int64, mark uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.lastLocked(community).seq, l.floor) > mark
}

// Version returns the greatest access version of a community that was told, 0 if none is remembered. A state that is older
// does not answer who may use it.
func (l *Log) Version(community int64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastLocked(community).version
}

// lastLocked is called with mu held.
func (l *Log) lastLocked(community int64) word {
	if last, ok := l.recent[community]; ok {
		return last
	}
	return l.older[community]
}

// Doubts are sessions that have to be looked at again, each once.
type Doubts[T comparable] struct {
	wake chan struct{}

	mu  sync.Mutex
	set map[T]struct{}
}

// NewDoubts returns an empty set.
func NewDoubts[T comparable]() *Doubts[T] {
	return &Doubts[T]{wake: make(chan struct{}, 1), set: make(map[T]struct{})}
}

// Add puts a session into the set.
func (d *Doubts[T]) Add(one T) {
	d.mu.Lock()
	d.set[one] = struct{}{}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Wake has an element when there is something to Take.
func (d *Doubts[T]) Wake() <-chan struct{} { return d.wake }

// Take returns what is in the set, and empties it.
func (d *Doubts[T]) Take() []T {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]T, 0, len(d.set))
	for one := range d.set {
		all = append(all, one)
	}
	clear(d.set)
	return all
}
