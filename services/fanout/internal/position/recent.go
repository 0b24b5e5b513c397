package position

import "github.com/apiary-relay/apiary/pkg/nostr"

// Key names an event: an id is one event's only inside a community, because a client may give the same
// event to several.
type Key struct {
	Community int64
	ID        nostr.ID
	// DueAt is the header's due_at: a reminder comes once when it is written and once when it is due, and both count.
	DueAt int64
}

// Recent remembers where the last so many events of a partition were first seen. Both streams share
// one Recent, because an event's kind sends it to one of them.
type Recent struct {
	first map[Key]Position
	ring  []Key // in order of arrival; full once len == cap
	next  int   // the slot to overwrite when full
}

// NewRecent returns a memory of limit events, at least one.
func NewRecent(limit int) *Recent {
	limit = max(limit, 1)
	return &Recent{first: make(map[Key]Position), ring: make([]Key, 0, limit)}
}

// Add remembers that an event was seen at p and returns true, or returns false if it is remembered already.
// The oldest is forgotten when there is no room.
func (r *Recent) Add(key Key, p Position) bool {
	if _, seen := r.first[key]; seen {
		return false
	}
	if len(r.ring) < cap(r.ring) {
		r.ring = append(r.ring, key)
	} else {
		delete(r.first, r.ring[r.next])
		r.ring[r.next] = key
		r.next = (r.next + 1) % len(r.ring)
	}
	r.first[key] = p
	return true
}

// First returns where an event was first seen, and whether it is remembered.
func (r *Recent) First(key Key) (Position, bool) {
	p, ok := r.first[key]
	return p, ok
}
