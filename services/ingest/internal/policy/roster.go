package policy

import (
	"encoding/json"
	"net/url"
	"strings"
	"unicode"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Role is what a member is in its community. The empty role is that of a key which is no member.
type Role string

// The roles of a community.
const (
	RoleOwner  Role = "owner"
	RoleAdmin  Role = "admin"
	RoleMember Role = "member"
)

// Moderates reports whether the role may change the roster, and what the community refuses.
func (r Role) Moderates() bool { return r == RoleOwner || r == RoleAdmin }

// Commands of the roster (NIP-43) as they are asked for, by kind.
type (
	// AddMember is kind 9030. To add a member again changes nothing.
	AddMember struct {
		Target nostr.PubKey
		Role   Role
	}
	// RemoveMember is kind 9031.
	RemoveMember struct{ Target nostr.PubKey }
	// ChangeRole is kind 9032.
	ChangeRole struct {
		Target nostr.PubKey
		Role   Role
	}
	// SetProfile is kind 9033.
	SetProfile struct {
		// Icon is a URL, also one with the image in it (data:); empty for none, and nil to leave it.
		Icon *string
		// Display is set when it also says how clients show threads. To say so takes a moderator.
		Display bool
	}
	// JoinRelay is kind 28934.
	JoinRelay struct {
		// Claim is the invite code, as it was sent, and Receipt that of the JoinPolicy, empty without one.
		Claim, Receipt string
	}
	// LeaveRelay is kind 28936.
	LeaveRelay struct{}
)

// Bounds of an icon in bytes.
const (
	maxIconURL  = 2048
	maxIconData = 96 << 10
)

var (
	notModerator = invalid("actor not authorized: must be admin or owner")
	notAMember   = invalid("target is not a relay member")
)

func parseTarget(c *Candidate) (nostr.PubKey, Verdict) {
	p, _ := c.Event.Tags.First("p")
	key, err := nostr.ParsePubKey(p)
	if err != nil {
		return key, invalid("missing or invalid p tag")
	}
	return key, Verdict{}
}

// parseRole reads the role tag. Nobody is made an owner by a command.
func parseRole(c *Candidate, otherwise Role) (Role, Verdict) {
	role, ok := c.Event.Tags.First("role")
	switch {
	case !ok && otherwise != "":
		return otherwise, Verdict{}
	case Role(role) == RoleAdmin, Role(role) == RoleMember:
		return Role(role), Verdict{}
	case Role(role) == RoleOwner:
		return "", invalid("the owner role cannot be granted")
	}
	return "", invalid("role must be admin or member")
}

func parseAddMember(c *Candidate) (any, Verdict) {
	target, v := parseTarget(c)
	if !v.Accepted() {
		return nil, v
	}
	role, v := parseRole(c, RoleMember)
	return &AddMember{target, role}, v
}

func parseRemoveMember(c *Candidate) (any, Verdict) {
	target, v := parseTarget(c)
	return &RemoveMember{target}, v
}

func parseChangeRole(c *Candidate) (any, Verdict) {
	target, v := parseTarget(c)
	if !v.Accepted() {
		return nil, v
	}
	role, v := parseRole(c, "")
	return &ChangeRole{target, role}, v
}

// parseSetProfile reads what is to be set. A command without a tag clears the icon, as older clients do it. Pages of a channel have no
// threads' replies between the messages, so that is all that can be asked for.
func parseSetProfile(c *Candidate) (any, Verdict) {
	icon, sets := c.Event.Tags.First("icon")
	replies, display := c.Event.Tags.First("thread_replies_in_channel")
	switch {
	case !sets && !display && len(c.Event.Tags) > 0:
		return nil, invalid("missing icon or thread_replies_in_channel tag")
	case !isIcon(icon):
		return nil, invalid("icon must be an http or https URL, or an image as a data URL")
	}
	if display {
		switch strings.ToLower(replies) {
		case "false", "0", "no", "off":
		case "true", "1", "yes", "on":
			return nil, NoRepliesInChannel
		default:
			return nil, invalid("thread_replies_in_channel must be true or false")
		}
	}
	p := &SetProfile{Display: display}
	if sets || !display {
		p.Icon = &icon
	}
	return p, Verdict{}
}

// NoRepliesInChannel answers the wish to have the replies of threads among the messages of their channel.
var NoRepliesInChannel = Verdict{fault.Restricted, "this relay does not show thread replies in channels"}

func isIcon(icon string) bool {
	switch {
	case icon == "":
		return true
	case strings.ContainsFunc(icon, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		return false
	case strings.HasPrefix(icon, "data:"):
		return strings.HasPrefix(icon, "data:image/") && len(icon) <= maxIconData
	}
	u, err := url.Parse(icon)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && len(icon) <= maxIconURL
}

func parseJoinRelay(c *Candidate) (any, Verdict) {
	claim, _ := c.Event.Tags.First("claim")
	receipt, _ := c.Event.Tags.First("policy_receipt")
	return &JoinRelay{claim, receipt}, Verdict{}
}

func parseLeaveRelay(c *Candidate) (any, Verdict) {
	if !isProtected(c.Event.Tags) {
		return nil, invalid(`a leave request must have a "-" tag`)
	}
	return &LeaveRelay{}, Verdict{}
}

// Judge decides on an addition by an actor with a role. Whoever is a member already keeps its role, which the
// store sees.
func (a *AddMember) Judge(actor Role) Verdict {
	switch {
	case !actor.Moderates():
		return notModerator
	case a.Role == RoleAdmin && actor != RoleOwner:
		return invalid("actor not authorized: only an owner can grant the admin role")
	}
	return Verdict{}
}

// Judge decides on a removal by an actor with a role, of a target with a role. Owners remove admins and members,
// admins members.
func (r *RemoveMember) Judge(by nostr.PubKey, actor, target Role) Verdict {
	switch {
	case !actor.Moderates():
		return notModerator
	case by == r.Target:
		return invalid("actor not authorized: cannot remove yourself")
	case target == "":
		return notAMember
	case target == RoleOwner:
		return invalid("actor not authorized: cannot remove an owner")
	case target == RoleAdmin && actor != RoleOwner:
		return invalid("actor not authorized: only an owner can remove an admin")
	}
	return Verdict{}
}

// AdmittedByOwner is what a moderator is told who has removed an agent that stays admitted through its owner (NIP-OA): to keep it out
// takes a ban of the agent, or the removal of its owner.
func AdmittedByOwner(owner nostr.PubKey) Verdict {
	answer, _ := json.Marshal(struct {
		AdmittedBy nostr.PubKey `json:"admitted_by"`
	}{owner})
	return Verdict{Message: "response:" + string(answer)}
}

// Judge decides on a change of role by an actor with a role, of a target with a role.
func (r *ChangeRole) Judge(by nostr.PubKey, actor, target Role) Verdict {
	switch {
	case actor != RoleOwner:
		return invalid("actor not authorized: must be owner")
	case by == r.Target:
		return invalid("actor not authorized: cannot change your own role")
	case target == "":
		return notAMember
	case target == RoleOwner:
		return invalid("actor not authorized: cannot change the role of an owner")
	}
	return Verdict{}
}

// Judge decides on a change of the profile. A community that nobody looks after takes its icon from anybody.
func (p *SetProfile) Judge(actor Role, looksAfter bool) Verdict {
	if (looksAfter || p.Display) && !actor.Moderates() {
		return notModerator
	}
	return Verdict{}
}

// Judge decides whether a member with this role may leave.
func (*LeaveRelay) Judge(actor Role) Verdict {
	switch actor {
	case "":
		return invalid("you are not a relay member")
	case RoleOwner:
		return invalid("relay owner cannot leave")
	default:
		return Verdict{}
	}
}

// Answers to requests to join and to leave (NIP-43).
var (
	Welcome       = Verdict{fault.Accepted, "info: welcome to this relay"}
	Left          = Verdict{fault.Accepted, "info: you have left this relay"}
	AlreadyMember = Verdict{fault.Duplicate, "you are already a member of this relay"}
	InviteInvalid = Verdict{fault.Restricted, "that is an invalid invite code"}
	InviteExpired = Verdict{fault.Restricted, "that invite code is expired"}
	InviteUsedUp  = Verdict{fault.Restricted, "that invite code has been used up"}
)
