package client

import "github.com/apiary-relay/apiary/pkg/nostr"

// recent remembers the last event ids, so that nothing is printed twice after a reconnect. Its memory is
// bounded: the oldest is forgotten first.
type recent struct {
	ids  map[nostr.ID]struct{}
	ring []nostr.ID
	next int
}

func newRecent(size int) *recent {
	return &recent{ids: make(map[nostr.ID]struct{}, size), ring: make([]nostr.ID, size)}
}

// has reports whether id is remembered.
func (r *recent) has(id nostr.ID) bool {
	_, known := r.ids[id]
	return known
}

// add reports whether id is new, and remembers it.
func (r *recent) add(id nostr.ID) bool {
	if r.has(id) {
		return false
	}
	delete(r.ids, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % len(r.ring)
	r.ids[id] = struct{}{}
	return true
}
