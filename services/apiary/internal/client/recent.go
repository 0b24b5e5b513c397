package client

import (
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// dueMargin is how far ahead of its time a reminder counts as due, because clocks differ.
const dueMargin = 5 * time.Second

// sighting is what is printed once: an event, and a reminder (NIP-ER) once more when it is due.
type sighting struct {
	id  nostr.ID
	due bool
}

func sightingOf(event *nostr.Event, now time.Time) sighting {
	s := sighting{id: event.ID}
	if event.Kind == nostr.KindReminder {
		at, ok, err := event.NotBefore()
		s.due = err == nil && ok && at <= now.Add(dueMargin).Unix()
	}
	return s
}

// recent remembers the last sightings, so that nothing is printed twice after a reconnect. Its memory is
// bounded: the oldest is forgotten first.
type recent struct {
	ids  map[sighting]struct{}
	ring []sighting
	next int
}

func newRecent(size int) *recent {
	return &recent{ids: make(map[sighting]struct{}, size), ring: make([]sighting, size)}
}

// has reports whether s is remembered.
func (r *recent) has(s sighting) bool {
	_, known := r.ids[s]
	return known
}

// add reports whether s is new, and remembers it.
func (r *recent) add(s sighting) bool {
	if r.has(s) {
		return false
	}
	delete(r.ids, r.ring[r.next])
	r.ring[r.next] = s
	r.next = (r.next + 1) % len(r.ring)
	r.ids[s] = struct{}{}
	return true
}
