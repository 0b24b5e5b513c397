package policy

import (
	"encoding/hex"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// Reference is how a previous tag names an earlier event: the first bytes of its id (NIP-29).
type Reference [4]byte

// ReferenceKey names an earlier event in a channel.
type ReferenceKey struct {
	ChannelKey
	Reference
}

// maxReferences is how many earlier events an event may refer to.
const maxReferences = 50

// unreferenced answers an event that would show in any other channel as well, where that is not wanted.
var unreferenced = invalid("messages here must refer to earlier events of the channel, and to no others (previous tag)")

// References are the earlier events that the candidate refers to, each once. It is false when some of what is in its
// previous tags cannot name an event, or when there is too much of it.
func (c *Candidate) References() (refs []Reference, ok bool) {
	for t := range c.Event.Tags.All("previous") {
		for _, text := range t[1:] {
			var r Reference
			if len(text) != hex.EncodedLen(len(r)) || len(refs) == maxReferences {
				return nil, false
			}
			if _, err := hex.Decode(r[:], []byte(text)); err != nil {
				return nil, false
			}
			if !slices.Contains(refs, r) {
				refs = append(refs, r)
			}
		}
	}
	return refs, true
}

// IsMessage reports whether the event is something that is said in a channel and kept: not what is about the channel or
// about another event.
func (c *Candidate) IsMessage() bool {
	rules := kind.Of(c.Event.Kind)
	return c.Channel != "" && c.Command == nil && !c.IsEphemeral() && (rules.Scope == kind.Channel || rules.Scope == kind.Optional)
}

// admitReferences keeps a message out of a channel that it was not written for, if the channel asks for that.
func admitReferences(c *Candidate, st *State) Verdict {
	if !st.Channels[c.ChannelKey()].PreviousRequired || !c.IsMessage() {
		return Verdict{}
	}
	refs, ok := c.References()
	if !ok || len(refs) == 0 {
		return unreferenced
	}
	for _, r := range refs {
		if !st.Referenced[ReferenceKey{c.ChannelKey(), r}] {
			return unreferenced
		}
	}
	return Verdict{}
}
