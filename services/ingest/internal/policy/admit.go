package policy

import "github.com/apiary-relay/apiary/pkg/nostr"

// State is what the store knows at one moment of the transaction that asks. Only what the candidates of a
// batch touch is in it.
type State struct {
	// Communities by key; a missing one does not exist.
	Communities map[int64]Community
	// Channels by community and h; a missing one does not exist.
	Channels map[ChannelKey]Channel
	// Members are the candidates' writers that are members of their closed community.
	Members map[MemberKey]bool
	// ChannelMembers are the candidates' writers that are members of their private channel.
	ChannelMembers map[ChannelMemberKey]bool
	// Deleted are the candidates that a tombstone of their author covers, or one of their recipients.
	Deleted map[EventKey]bool
	// Stored are the create requests that are stored already.
	Stored map[EventKey]bool
}

// Community is what Admit needs to know of a community.
type Community struct {
	// Closed is set when only members may write.
	Closed bool
	// ACLVersion is its access version.
	ACLVersion uint64
}

// Channel is what Admit needs to know of a channel.
type Channel struct {
	// ID is its surrogate key.
	ID int64
	// Private is set when only members may write.
	Private bool
	// Archived is set when nobody may write.
	Archived bool
	// ACLVersion is its access version.
	ACLVersion uint64
}

// ChannelKey names a channel.
type ChannelKey struct {
	Community int64
	H         string
}

// MemberKey names a member of a community.
type MemberKey struct {
	Community int64
	PubKey    nostr.PubKey
}

// ChannelMemberKey names a member of a channel.
type ChannelMemberKey struct {
	ChannelKey
	PubKey nostr.PubKey
}

// EventKey names an event.
type EventKey struct {
	Community int64
	ID        nostr.ID
}

// Key names the candidate's event.
func (c *Candidate) Key() EventKey { return EventKey{c.Community, c.Event.ID} }

// ChannelKey names the candidate's channel.
func (c *Candidate) ChannelKey() ChannelKey { return ChannelKey{c.Community, c.Channel} }

// Admit decides what depends on the state. What is hidden from the writer is judged as if it did not
// exist, and before anything that would tell more.
func Admit(c *Candidate, st *State) Verdict {
	community, ok := st.Communities[c.Community]
	if !ok || (community.Closed && !anyOf(c.Writers(), func(p nostr.PubKey) bool {
		return st.Members[MemberKey{c.Community, p}]
	})) {
		return NotMember
	}
	if v := admitChannel(c, st); !v.Accepted() {
		return v
	}
	if st.Deleted[c.Key()] {
		return Deleted
	}
	return Verdict{}
}

func admitChannel(c *Candidate, st *State) Verdict {
	if c.Channel == "" {
		return Verdict{}
	}
	ch, exists := st.Channels[c.ChannelKey()]
	if c.Create != nil {
		switch {
		case st.Stored[c.Key()]:
			return Duplicate // the channel exists because of this very event
		case exists:
			return invalid("channel already exists")
		}
		return Verdict{}
	}
	if !exists || (ch.Private && !anyOf(c.Writers(), func(p nostr.PubKey) bool {
		return st.ChannelMembers[ChannelMemberKey{c.ChannelKey(), p}]
	})) {
		return NotChannelMember
	}
	if ch.Archived {
		return invalid("channel is archived")
	}
	return Verdict{}
}

func anyOf(keys []nostr.PubKey, allowed func(nostr.PubKey) bool) bool {
	for _, k := range keys {
		if allowed(k) {
			return true
		}
	}
	return false
}
