package policy

import (
	"encoding/json"
	"strconv"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Commands about the members of channels (NIP-29) as they are asked for, by kind.
type (
	// PutUser is kind 9000.
	PutUser struct {
		Target nostr.PubKey
		// Role is what the target becomes; empty to leave a member what it is, and to make a newcomer a member.
		Role ChannelRole
	}
	// RemoveUser is kind 9001.
	RemoveUser struct{ Target nostr.PubKey }
	// JoinChannel is kind 9021.
	JoinChannel struct {
		// Code is the invite code, empty without one.
		Code string
	}
	// LeaveChannel is kind 9022.
	LeaveChannel struct{}
)

// MaxChannelMembers is how many members a channel may have.
const MaxChannelMembers = 10_000

func parsePutUser(c *Candidate) (any, Verdict) {
	target, v := parseUser(c)
	if !v.Accepted() {
		return nil, v
	}
	put := &PutUser{Target: target}
	role, ok := c.Event.Tags.First("role")
	for t := range c.Event.Tags.All("p") { // NIP-29 has the roles after the key
		if !ok && len(t) > 2 {
			role, ok = t[2], true
		}
	}
	if !ok || role == "" {
		return put, Verdict{}
	}
	switch put.Role = ChannelRole(role); put.Role {
	case ChannelOwner, ChannelAdmin, ChannelMember, ChannelGuest, ChannelBot:
		return put, Verdict{}
	}
	return nil, invalid("invalid role: " + strconv.QuoteToASCII(role[:min(len(role), 64)]))
}

func parseRemoveUser(c *Candidate) (any, Verdict) {
	target, v := parseUser(c)
	return &RemoveUser{target}, v
}

// parseUser reads whom a command is about. To act on one of several would look as if it had been done to all.
func parseUser(c *Candidate) (nostr.PubKey, Verdict) {
	if c.Event.Tags.Count("p") > 1 {
		return nostr.PubKey{}, invalid("one p tag at a time")
	}
	return parseTarget(c)
}

func parseJoinChannel(c *Candidate) (any, Verdict) {
	code, _ := c.Event.Tags.First("code")
	return &JoinChannel{code}, Verdict{}
}

func parseLeaveChannel(*Candidate) (any, Verdict) { return &LeaveChannel{}, Verdict{} }

// AddPolicy is who may add an agent to channels: its own kind 10100 says so.
type AddPolicy string

// The policies. An agent that says nothing may be added by anyone.
const (
	AddAnyone    AddPolicy = "anyone"
	AddOwnerOnly AddPolicy = "owner_only"
	AddNobody    AddPolicy = "nobody"
)

// Newcomer is what has to be known of a key to add it to a channel.
type Newcomer struct {
	// Admitted is set when it may use the community.
	Admitted bool
	// Policy is who may add it.
	Policy AddPolicy
	// Owner is whose agent it is (NIP-OA), nil if that is not known.
	Owner *nostr.PubKey
}

// Judge decides on an addition or a change of role, as far as it does not depend on the newcomer. Everybody who
// may write to an open channel may bring others; nobody gives more than it has.
func (p *PutUser) Judge(g Group, self bool) Verdict {
	if v := g.reach(false); !v.Accepted() {
		return v
	}
	switch {
	case g.Type == Direct && g.Target == "":
		return immutable
	case g.Target == "" && g.Private && !g.Actor.Manages():
		return invalid("only owners/admins may add private-channel members")
	case g.Target == "" && p.Role.Manages() && !g.Actor.Manages():
		return invalid("only owners/admins may make others owners/admins")
	case g.Target == "" && g.Members >= MaxChannelMembers:
		return Verdict{fault.Restricted, "the channel has as many members as it may have"}
	case g.Target == "":
		return p.judgeOwnership(g)
	case p.Role == "" || p.Role == g.Target:
		return p.judgeAgain(g, self)
	case !g.Actor.Manages():
		return invalid("only owners/admins may change an active member's role")
	case g.Target == ChannelOwner && g.Owners == 1:
		return invalid("cannot demote the last owner — transfer ownership first")
	}
	return p.judgeOwnership(g)
}

// judgeAgain decides on an addition that changes nothing: it tells the actor that the target is a member.
func (*PutUser) judgeAgain(g Group, self bool) Verdict {
	if g.Private && !self && !g.Actor.Manages() {
		return invalid("only owners/admins may add private-channel members")
	}
	return Verdict{}
}

// judgeOwnership keeps a channel with its owners.
func (p *PutUser) judgeOwnership(g Group) Verdict {
	if (p.Role == ChannelOwner || g.Target == ChannelOwner) && g.Actor != ChannelOwner {
		return invalid("only owners may say who is an owner")
	}
	return Verdict{}
}

// Judge decides whether an actor may bring a key into a channel. Whoever adds itself needs no policy.
func (n Newcomer) Judge(actor, key nostr.PubKey) Verdict {
	switch {
	case !n.Admitted:
		return invalid("target is not a relay member")
	case actor == key:
		return Verdict{}
	case n.Policy == AddNobody:
		return invalid("policy:nobody — this agent has disabled external channel additions")
	case n.Policy == AddOwnerOnly && n.Owner == nil:
		return invalid("policy:owner_only — this agent has no owner set")
	case n.Policy == AddOwnerOnly && *n.Owner != actor:
		return invalid("policy:owner_only — only the agent owner (" + n.Owner.String() + ") can add this agent")
	}
	return Verdict{}
}

// Judge decides on a removal.
func (*RemoveUser) Judge(g Group, self bool) Verdict {
	if self {
		return judgeLeaving(g)
	}
	if v := g.reach(false); !v.Accepted() {
		return v
	}
	owns := g.OwnsTarget && g.Actor != "" // whoever is not in a channel acts on nobody in it
	switch {
	case !g.Actor.Manages() && !owns:
		return notManager
	case g.Target == "":
		return invalid("target is not an active member")
	case g.Type == Direct:
		return immutable
	case g.Target == ChannelOwner && g.Owners == 1:
		return invalid("cannot remove the last owner")
	case g.Target == ChannelOwner && g.Actor != ChannelOwner && !owns:
		return invalid("only owners may say who is an owner")
	}
	return Verdict{}
}

// Judge decides whether a member may leave.
func (*LeaveChannel) Judge(g Group) Verdict { return judgeLeaving(g) }

func judgeLeaving(g Group) Verdict {
	if v := g.reach(false); !v.Accepted() {
		return v
	}
	switch {
	case g.Actor == "":
		return notInChannel
	case g.Type == Direct:
		return immutable
	case g.Actor == ChannelOwner && g.Owners == 1:
		return invalid("cannot remove the last owner")
	}
	return Verdict{}
}

// Answers to requests to join.
var (
	// JoinRefused answers for a channel that is private, and for one that does not exist: the two must not be told
	// apart.
	JoinRefused = Verdict{fault.Restricted, "there is no such channel, or it is private and needs an invite code"}
	// InChannel answers who is a member.
	InChannel = Verdict{fault.Exists, "you are already a member of this channel"}
)

// Judge decides on a request to join. A channel that is private opens to who has a code of it.
func (*JoinChannel) Judge(g Group, codeIsGood bool) Verdict {
	switch {
	case !g.Exists, g.hidden() && !codeIsGood:
		return JoinRefused
	case g.Actor != "":
		return InChannel
	case g.Archived:
		return channelArchived
	case g.Type == Direct:
		return immutable
	case g.Members >= MaxChannelMembers:
		return Verdict{fault.Restricted, "the channel has as many members as it may have"}
	}
	return Verdict{}
}

// ParseAddPolicy reads who may add an agent from what its profile holds: JSON with the member channel_add_policy.
// What is not understood was not accepted as a profile (see checkAgentProfile), and means anyone.
func ParseAddPolicy(profile string) AddPolicy {
	var p struct {
		Policy AddPolicy `json:"channel_add_policy"`
	}
	if json.Unmarshal([]byte(profile), &p) != nil || p.Policy == "" {
		return AddAnyone
	}
	return p.Policy
}

// checkAgentProfile refuses a profile (kind 10100) whose wish would not be understood.
func checkAgentProfile(content string) Verdict {
	if !json.Valid([]byte(content)) {
		return invalid("kind:10100 content must be valid JSON")
	}
	switch ParseAddPolicy(content) {
	case AddAnyone, AddOwnerOnly, AddNobody:
		return Verdict{}
	}
	return invalid("channel_add_policy must be anyone, owner_only or nobody")
}
