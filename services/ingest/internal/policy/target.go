package policy

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// Target is a stored event that a candidate is about.
type Target struct {
	// Kind and PubKey are those of the event.
	Kind   nostr.Kind
	PubKey nostr.PubKey
	// Channel is the h value of the channel that it is in, empty for none.
	Channel string
	// Root and Depth are its place in a thread if it is a reply; otherwise the depth is 0.
	Root  nostr.ID
	Depth int
}

// Standing is where the author of an event stands to another event, besides being its author.
type Standing struct {
	// OwnsAuthor is set for the owner of the agent that has written it (NIP-OA).
	OwnsAuthor bool
	// Named is set for who is named in one of its p tags, and OwnsNamed for the owner of an agent that is.
	Named, OwnsNamed bool
}

// Targets are the events of which the State has to know whether they are stored, for the candidate to be judged. A
// deletion's are not among them: it may name what is not there.
func (c *Candidate) Targets() []nostr.ID {
	switch {
	case c.Reaction != nil:
		return []nostr.ID{c.Reaction.Target}
	case c.Reply != nil && !c.Reply.Root.IsZero() && c.Reply.Root != c.Reply.Parent:
		return []nostr.ID{c.Reply.Parent, c.Reply.Root}
	case c.Reply != nil:
		return []nostr.ID{c.Reply.Parent}
	case c.Reference != nil:
		return []nostr.ID{*c.Reference}
	}
	return nil
}

// FollowsTarget reports whether the candidate belongs to the channel of its target, whichever that is.
func (c *Candidate) FollowsTarget() bool { return c.Reaction != nil && c.Channel == "" }

// Settle returns the candidate in its place: a reply in its thread, and what follows its target in the channel of
// that. If the author of a reaction may not read the target, or there is none here, the candidate is what it would
// be without one, an event of no channel: the two make no difference, now or later.
func Settle(c *Candidate, st *State) *Candidate {
	settled := *c
	if c.Reply != nil {
		reply, _ := c.place(st)
		settled.Reply = &reply
	}
	if !c.FollowsTarget() {
		return &settled
	}
	t, ok := st.target(c.Community, c.Reaction.Target)
	if ok {
		settled.Channel = t.Channel
		ok = t.Channel == "" || mayUse(&settled, st)
	}
	if !ok {
		settled.Channel, settled.Reaction = "", nil
	}
	return &settled
}

// target returns a stored event, unless it is of a kind that is not for everybody in its channel: of those nobody
// is told whether they are there.
func (st *State) target(community int64, id nostr.ID) (Target, bool) {
	t, ok := st.Targets[EventKey{community, id}]
	return t, ok && kind.Of(t.Kind).Readers == kind.Everybody
}

// admitTargets decides whether the candidate's targets allow it. What is stored already passes: its target may have
// gone since, and it is a duplicate.
func admitTargets(c *Candidate, st *State) Verdict {
	switch {
	case st.Stored[c.Key()]:
		return Verdict{}
	case c.Reaction != nil:
		return c.admitReaction(st)
	case c.Reply != nil:
		_, v := c.place(st)
		return v
	case c.Reference != nil:
		return c.admitReference(st)
	}
	return Verdict{}
}
