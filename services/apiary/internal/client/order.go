package client

import (
	"cmp"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// maxSteps bounds how far answers to answers are followed.
const maxSteps = 100

// inOrder sorts messages as a conversation goes: the oldest first, and of one second an answer, a reaction or an edit
// after what it is about. Relays give those of one second in the order of their ids, which says nothing to people.
func inOrder(messages []message) {
	byID := make(map[nostr.ID]*nostr.Event, len(messages))
	for _, m := range messages {
		byID[m.event.ID] = m.event
	}
	steps := make(map[nostr.ID]int, len(messages))
	for _, m := range messages {
		steps[m.event.ID] = stepsFrom(m.event, byID)
	}
	slices.SortStableFunc(messages, func(a, b message) int {
		return cmp.Or(cmp.Compare(a.event.CreatedAt, b.event.CreatedAt), cmp.Compare(steps[a.event.ID], steps[b.event.ID]))
	})
}

// stepsFrom counts the events of one second that lead to an event, each about the one before. An id is a hash of what
// it is about, so there is no circle.
func stepsFrom(event *nostr.Event, byID map[nostr.ID]*nostr.Event) (steps int) {
	for steps < maxSteps {
		var about *nostr.Event
		for tag := range event.Tags.All("e") {
			id, err := nostr.ParseID(tag.Value())
			if target := byID[id]; err == nil && target != nil && target.CreatedAt == event.CreatedAt {
				about = target // of an answer in a thread the last e tag is the parent
			}
		}
		if about == nil {
			return steps
		}
		event = about
		steps++
	}
	return steps
}
