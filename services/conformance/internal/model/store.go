package model

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Store holds every event that a relay accepted, in any order, and knows what remains of them.
type Store struct {
	events    []*nostr.Event
	remaining []*nostr.Event // computed since the last Add, or nil
}

// Add adds events, each once.
func (s *Store) Add(events ...*nostr.Event) {
	s.remaining = nil
	for _, e := range events {
		if !slices.ContainsFunc(s.events, func(known *nostr.Event) bool { return known.ID == e.ID }) {
			s.events = append(s.events, e)
		}
	}
}

// Order is the order of a stored answer: the newest first, of those with the same time the lowest id first.
func Order(a, b *nostr.Event) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), bytes.Compare(a.ID[:], b.ID[:]))
}

// Remaining returns what a relay still has to serve, in order: not ephemeral, not replaced by a newer
// version, not deleted by its author. The caller must not change the list.
func (s *Store) Remaining() []*nostr.Event {
	if s.remaining != nil {
		return s.remaining
	}
	remaining := []*nostr.Event{}
	for _, e := range s.events {
		if !e.Kind.IsEphemeral() && !s.replaced(e) && !s.deleted(e) {
			remaining = append(remaining, e)
		}
	}
	slices.SortFunc(remaining, Order)
	s.remaining = remaining
	return remaining
}

// Answer returns the stored answer to one filter, of at most most events, or the filter's limit if that is
// less.
func (s *Store) Answer(f *Filter, most int) []*nostr.Event {
	if f.Limit != nil {
		most = min(most, *f.Limit)
	}
	var answer []*nostr.Event
	for _, e := range s.Remaining() {
		if len(answer) < most && f.Match(e) {
			answer = append(answer, e)
		}
	}
	return answer
}

// address names the events of which only the newest counts, empty for events that all count.
func address(e *nostr.Event) string {
	switch {
	case e.Kind.IsReplaceable():
		return fmt.Sprintf("%d:%s:", e.Kind, e.PubKey)
	case e.Kind.IsAddressable():
		d, _ := e.Tags.First("d")
		return fmt.Sprintf("%d:%s:%s", e.Kind, e.PubKey, d)
	}
	return ""
}

func (s *Store) replaced(e *nostr.Event) bool {
	at := address(e)
	return at != "" && slices.ContainsFunc(s.events, func(other *nostr.Event) bool {
		return address(other) == at && Order(other, e) < 0
	})
}

// deleted reports whether its author asked for the event's deletion (NIP-09): by id, or by address up to the
// time of the request.
func (s *Store) deleted(e *nostr.Event) bool {
	if e.Kind == nostr.KindDeletion {
		return false
	}
	return slices.ContainsFunc(s.events, func(request *nostr.Event) bool {
		if request.Kind != nostr.KindDeletion || request.PubKey != e.PubKey {
			return false
		}
		for _, tag := range request.Tags {
			switch {
			case tag.Key() == "e" && tag.Value() == e.ID.String():
				return true
			case tag.Key() == "a" && address(e) != "" && tag.Value() == address(e) && e.CreatedAt <= request.CreatedAt:
				return true
			}
		}
		return false
	})
}
