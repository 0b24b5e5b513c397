package policy

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// DeleteEvent is kind 9005: an author, the owner of the agent that is the author, or an admin removes an event of the channel (NIP-29).
type DeleteEvent struct{ Target nostr.ID }

func parseDeleteEvent(c *Candidate) (any, Verdict) {
	if c.Event.Tags.Count("e")+c.Event.Tags.Count("a") != 1 {
		return nil, invalid("deletion events must reference exactly one target via e tag")
	}
	e, _ := c.Event.Tags.First("e")
	id, err := nostr.ParseID(e)
	if err != nil {
		return nil, invalid("missing or invalid e tag")
	}
	return &DeleteEvent{id}, Verdict{}
}

// Found is the event that a deletion is about.
type Found struct {
	// Author and Kind are the event's.
	Author nostr.PubKey
	Kind   nostr.Kind
	// Owned is set when the actor owns the agent that has written it (NIP-OA).
	Owned bool
}

// notDeletable answers whoever may not delete an event, also for one that is missing: why is not said.
var notDeletable = invalid("target event not found or not yours to delete")

// Judge decides on a deletion by an actor of what was found, nil if there is no such event in the channel. What is not for
// everybody there is missing, except for its author. The record of what was done in the channel stays.
func (*DeleteEvent) Judge(g Group, actor nostr.PubKey, found *Found) Verdict {
	if v := g.reach(false); !v.Accepted() {
		return v
	}
	if found == nil {
		return notDeletable
	}
	rules := kind.Of(found.Kind)
	switch {
	case rules.Sender == kind.Command, rules.Sender == kind.Relay:
		return notDeletable
	case found.Author == actor:
		return Verdict{}
	case rules.Readers == kind.Everybody && (found.Owned || g.Actor.Manages()):
		return Verdict{}
	}
	return notDeletable
}
