package policy

import (
	"cmp"
	"fmt"
	"unicode/utf8"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Reaction is what somebody says of an event (NIP-25). There is at most one of a target, an author and an emoji.
type Reaction struct {
	// Target is the event that it is about.
	Target nostr.ID
	// Emoji is the content, + where there is none; 1 to 64 characters.
	Emoji string
}

const (
	maxReaction = 64 // characters
	like        = "+"
)

// noReactionTarget answers a reaction in a channel to what is missing there, deleted, in another channel or in
// another community.
var noReactionTarget = invalid("reaction target event not found")

// ReactionOf returns what a reaction says and of which event: the one that its last e tag with an id names. It
// returns false for other kinds, and for a reaction that names no event.
func ReactionOf(ev *nostr.Event) (Reaction, bool) {
	if ev.Kind != nostr.KindReaction {
		return Reaction{}, false
	}
	r, named := Reaction{Emoji: cmp.Or(ev.Content, like)}, false
	for t := range ev.Tags.All("e") {
		if id, err := nostr.ParseID(t.Value()); err == nil {
			r.Target, named = id, true
		}
	}
	return r, named
}

// parseReaction reads a reaction. One without an h tag may be about an event of another relay, or about no event
// at all: it is for Settle to find out.
func (c *Candidate) parseReaction() Verdict {
	if n := utf8.RuneCountInString(c.Event.Content); n > maxReaction {
		return invalid(fmt.Sprintf("reaction exceeds %d characters (got %d)", maxReaction, n))
	}
	r, named := ReactionOf(c.Event)
	switch {
	case named:
		c.Reaction = &r
	case c.Channel != "":
		return invalid("reaction must reference a target event via e tag")
	}
	return Verdict{}
}

func (c *Candidate) admitReaction(st *State) Verdict {
	if t, ok := st.target(c.Community, c.Reaction.Target); !ok || t.Channel != c.Channel {
		return noReactionTarget
	}
	return Verdict{}
}
