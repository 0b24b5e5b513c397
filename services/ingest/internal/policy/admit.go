package policy

import (
	"fmt"
	"slices"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/tenant"
)

// State is what the store knows at one moment of the transaction that asks. Only what the candidates of a
// batch touch is in it.
type State struct {
	// ReadAt is when it was read, in microseconds since the Unix epoch by the database's clock, or a moment later; 0 of what a
	// transaction reads, which says that by itself.
	ReadAt int64
	// Communities by key; a missing one does not exist.
	Communities map[int64]Community
	// Channels by community and h; a missing one does not exist.
	Channels map[ChannelKey]Channel
	// Hosts are the communities of the hosts that requests to vanish name; a missing one is nobody's.
	Hosts map[string]int64
	// RefusedKinds are the candidates' kinds that are not among the only ones that their community takes.
	RefusedKinds map[KindKey]bool
	// Banned are the candidates' parties that are banned from their community, by themselves or with their owner.
	Banned map[MemberKey]bool
	// TimedOut are the candidates' parties that are timed out, by themselves or with their owner, and until when in Unix
	// seconds.
	TimedOut map[MemberKey]int64
	// Members are the candidates' writers that are members of their closed community, or may use it like members because
	// their owners are.
	Members map[MemberKey]bool
	// Owners are the owners of those keys that candidates say are agents (NIP-OA), where they are known.
	Owners map[MemberKey]nostr.PubKey
	// ChannelMembers are the candidates' writers that are members of their private channel.
	ChannelMembers map[ChannelMemberKey]bool
	// Deleted are the candidates that a tombstone of their author covers, or one of their recipients.
	Deleted map[EventKey]bool
	// BannedEvents are the candidates that moderators have removed.
	BannedEvents map[EventKey]bool
	// Vanished are the candidates that one of their owners has asked to vanish with.
	Vanished map[EventKey]bool
	// Stored are the commands, and the candidates with targets, that are stored or were carried out already.
	Stored map[EventKey]bool
	// Targets are the candidates' targets that are stored, unless they have expired or their author has vanished.
	Targets map[EventKey]Target
	// Standings are where the authors of candidates that Stand do to their targets, by the candidate.
	Standings map[EventKey]Standing
	// Referenced are the earlier events that candidates refer to, of channels that want that.
	Referenced map[ReferenceKey]bool
	// RootNamed are the replies whose parent names their root in an e tag.
	RootNamed map[EventKey]bool
}

// Community is what Admit needs to know of a community.
type Community struct {
	// Closed is set when only members may write.
	Closed bool
	// MinPow is the least difficulty of an event in bits (NIP-13), 0 for any.
	MinPow int
	// RegistryOnly is set when kinds that the registry (package kind) does not know are refused.
	RegistryOnly bool
	// Archived is set when the community is served to nobody: nothing tells it from one that does not exist. Deleting is
	// set besides when its rows are being removed, so that none may be added.
	Archived, Deleting bool
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
	// PreviousRequired is set when messages must refer to earlier ones (NIP-29).
	PreviousRequired bool
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

// KindKey names a kind in a community.
type KindKey struct {
	Community int64
	Kind      nostr.Kind
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
	if !ok || community.Archived {
		return NotMember
	}
	switch {
	case c.Vanish != nil:
		return admitVanish(c, st)
	case c.Command != nil:
		return admitCommand(c, st, community)
	case anyOf(c.Parties(), func(p nostr.PubKey) bool { return st.Banned[MemberKey{c.Community, p}] }):
		return Banned
	case c.Event.Kind != nostr.KindReport && st.silenced(c) > 0: // who is timed out may still call for help
		return TimedOut(st.silenced(c))
	case community.Closed && !anyOf(c.Writers(), func(p nostr.PubKey) bool { return st.Members[MemberKey{c.Community, p}] }):
		return NotMember
	}
	if v := admitKind(c, st, community); !v.Accepted() {
		return v
	}
	if v := admitChannel(c, st); !v.Accepted() {
		return hideChannel(c, v)
	}
	if v := admitTargets(c, st); !v.Accepted() {
		return v
	}
	if c.Agency != nil {
		if v := c.admitAgency(st); !v.Accepted() {
			return v
		}
	}
	return admitPresent(c, st)
}

// silenced returns until when one of the candidate's parties is timed out, 0 if none is.
func (st *State) silenced(c *Candidate) int64 {
	var until int64
	for _, p := range c.Parties() {
		until = max(until, st.TimedOut[MemberKey{c.Community, p}])
	}
	return until
}

// admitKind decides whether the community takes such events.
func admitKind(c *Candidate, st *State, community Community) Verdict {
	switch {
	case community.RegistryOnly && !kind.Of(c.Event.Kind).Known:
		return UnknownKind
	case st.RefusedKinds[KindKey{c.Community, c.Event.Kind}]:
		return Verdict{fault.Restricted, fmt.Sprintf("kind %d is not accepted here", c.Event.Kind)}
	}
	return admitWork(c.Event, community.MinPow)
}

// admitPresent refuses what was removed, or was not to come.
func admitPresent(c *Candidate, st *State) Verdict {
	switch {
	case st.Deleted[c.Key()]:
		return Deleted
	case st.BannedEvents[c.Key()]:
		return BannedEvent
	case st.Vanished[c.Key()]:
		return Vanished
	}
	return Verdict{}
}

// admitVanish takes a request to vanish from whoever signed it: neither a ban nor the lack of membership or of
// work is a reason to keep what somebody asks to have removed (NIP-62).
func admitVanish(c *Candidate, st *State) Verdict {
	switch {
	case !c.Vanish.All && !slices.ContainsFunc(c.Vanish.Hosts, func(h string) bool { return st.names(h, c.Community) }):
		return NotHere
	case st.BannedEvents[c.Key()]:
		return BannedEvent
	}
	return Verdict{}
}

// names reports whether a host leads to the community: the exact authority first, as for a connection.
func (st *State) names(host string, community int64) bool {
	for _, h := range tenant.Candidates(host) {
		if id, ok := st.Hosts[h]; ok {
			return id == community
		}
	}
	return false
}

// admitWork demands work that was meant: an id that happens to be good enough although its author set out for less
// is refused (NIP-13).
func admitWork(ev *nostr.Event, need int) Verdict {
	if need == 0 {
		return Verdict{}
	}
	if found := ev.ID.LeadingZeroBits(); found < need {
		return Verdict{fault.Pow, fmt.Sprintf("difficulty %d is less than %d", found, need)}
	}
	if target, ok := ev.CommittedDifficulty(); ok && target < need {
		return Verdict{fault.Pow, fmt.Sprintf("committed difficulty %d is less than %d", target, need)}
	}
	return Verdict{}
}

func admitChannel(c *Candidate, st *State) Verdict {
	if c.Channel == "" {
		return Verdict{}
	}
	if !mayUse(c, st) {
		return NotChannelMember
	}
	if st.Channels[c.ChannelKey()].Archived {
		return channelArchived
	}
	return admitReferences(c, st)
}

// mayUse reports whether the candidate's channel exists and is not hidden from its writers.
func mayUse(c *Candidate, st *State) bool {
	ch, exists := st.Channels[c.ChannelKey()]
	return exists && (!ch.Private || anyOf(c.Writers(), func(p nostr.PubKey) bool {
		return st.ChannelMembers[ChannelMemberKey{c.ChannelKey(), p}]
	}))
}

func anyOf(keys []nostr.PubKey, allowed func(nostr.PubKey) bool) bool {
	for _, k := range keys {
		if allowed(k) {
			return true
		}
	}
	return false
}
