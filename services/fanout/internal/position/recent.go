package position

import "github.com/apiary-relay/apiary/pkg/nostr"

// Recent remembers where the last so many event ids of a partition were first seen. Both streams share
// one Recent, because an event's kind sends it to one of them.
type Recent struct {
	first map[nostr.ID]Position
	ring  []nostr.ID // in order of arrival; full once len == cap
	next  int        // the slot to overwrite when full
}

// NewRecent returns a memory of limit ids, at least one.
func NewRecent(limit int) *Recent {
	limit = max(limit, 1)
	return &Recent{first: make(map[nostr.ID]Position), ring: make([]nostr.ID, 0, limit)}
}

// Add remembers that id was seen at p and returns true, or returns false if it is remembered already.
// The oldest id is forgotten when there is no room.
func (r *Recent) Add(id nostr.ID, p Position) bool {
	if _, seen := r.first[id]; seen {
		return false
	}
	if len(r.ring) < cap(r.ring) {
		r.ring = append(r.ring, id)
	} else {
		delete(r.first, r.ring[r.next])
		r.ring[r.next] = id
		r.next = (r.next + 1) % len(r.ring)
	}
	r.first[id] = p
	return true
}

// First returns where id was first seen, and whether it is remembered.
func (r *Recent) First(id nostr.ID) (Position, bool) {
	p, ok := r.first[id]
	return p, ok
}
