package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Commands of moderators as they are asked for, by kind.
type (
	// Ban is kind 9040: the key may neither read nor write, and is no longer a member.
	Ban struct {
		Target nostr.PubKey
		Reason string
		// Until is when the ban ends by itself, in Unix seconds; 0 is never.
		Until int64
	}
	// Unban is kind 9041. A key that is not banned stays so.
	Unban struct {
		Target nostr.PubKey
		Reason string
	}
	// Timeout is kind 9042: the key may read and not write.
	Timeout struct {
		Target nostr.PubKey
		Reason string
		// Until is when the timeout ends by itself, in Unix seconds.
		Until int64
	}
	// Untimeout is kind 9043. A key that is not timed out stays so.
	Untimeout struct {
		Target nostr.PubKey
		Reason string
	}
	// ResolveReport is kind 9044: what is done about a report (NIP-56), which is done with it.
	ResolveReport struct {
		Report nostr.ID
		Status ReportStatus
		Action ReportAction
		Reason string
		// Until is when a ban or timeout ends, in Unix seconds; 0 is never.
		Until int64
	}
)

// ReportStatus is what became of a report.
type ReportStatus string

// What became of a report. A report that was escalated waits for somebody else's decision.
const (
	ReportResolved  ReportStatus = "resolved"
	ReportDismissed ReportStatus = "dismissed"
	ReportEscalated ReportStatus = "escalated"
)

// ReportAction is what is done because of a report.
type ReportAction string

// What is done because of a report: to the event that it names, or to that event's author.
const (
	ReportDelete   ReportAction = "delete"
	ReportKick     ReportAction = "kick"
	ReportBan      ReportAction = "ban"
	ReportTimeout  ReportAction = "timeout"
	ReportDismiss  ReportAction = "dismiss"
	ReportEscalate ReportAction = "escalate"
)

const (
	// maxModerationReason is the length of a reason in bytes.
	maxModerationReason = 1024
	// maxTimeout is how long a timeout may last. Whoever is to be silent for longer is banned.
	maxTimeout = 365 * 24 * time.Hour
	// lastMoment is the last second that has four digits of a year.
	lastMoment = 253402300799
)

// Answers to moderators.
var (
	// ModeratorsOnly answers what only owners and admins may do.
	ModeratorsOnly = Verdict{fault.Restricted, "moderator access required"}
	// OwnerIsSafe answers a measure against an owner.
	OwnerIsSafe = Verdict{fault.Restricted, "an owner cannot be removed, banned or timed out"}
	// AdminIsSafe answers a measure of an admin against an admin.
	AdminIsSafe = Verdict{fault.Restricted, "only an owner can remove, ban or time out an admin"}
	// TargetBanned answers the addition of a banned key.
	TargetBanned = invalid("target is banned: lift the ban first")
	// OwnerBanned answers the addition of a key whose own ban would be lifted with it, and that is banned with its owner.
	OwnerBanned = invalid("target is banned with its owner: lift that ban first")
	// NoReport answers a decision about a report that the community does not have.
	NoReport = invalid("report not found")
	// ReportsNoEvent answers a wish to delete what a report does not name.
	ReportsNoEvent = invalid("the report names no event")
	// ReportsNobody answers a measure against a key that cannot be told from a report.
	ReportsNobody = invalid("the report names nobody")
)

// TimedOut answers a write by a key that moderators have silenced until a moment in Unix seconds.
func TimedOut(until int64) Verdict {
	return Verdict{fault.Restricted, fmt.Sprintf("you are timed out until %d", until)}
}

// JudgeMeasure decides whether an actor with a role may remove, ban or time out a target with a role. Nobody does so to
// an owner, and only owners to admins; so nobody does it to itself either.
func JudgeMeasure(actor, target Role) Verdict {
	switch {
	case !actor.Moderates():
		return ModeratorsOnly
	case target == RoleOwner:
		return OwnerIsSafe
	case target == RoleAdmin && actor != RoleOwner:
		return AdminIsSafe
	}
	return Verdict{}
}

func parseBan(c *Candidate) (any, Verdict) {
	target, reason, v := parseMeasure(c)
	if !v.Accepted() {
		return nil, v
	}
	until, v := parseUntil(c)
	return &Ban{target, reason, until}, v
}

func parseUnban(c *Candidate) (any, Verdict) {
	target, reason, v := parseMeasure(c)
	return &Unban{target, reason}, v
}

func parseTimeout(c *Candidate) (any, Verdict) {
	target, reason, v := parseMeasure(c)
	if !v.Accepted() {
		return nil, v
	}
	until, v := parseTimeoutEnd(c)
	return &Timeout{target, reason, until}, v
}

func parseUntimeout(c *Candidate) (any, Verdict) {
	target, reason, v := parseMeasure(c)
	return &Untimeout{target, reason}, v
}

func parseResolveReport(c *Candidate) (any, Verdict) {
	text, _ := c.Event.Tags.First("report")
	report, err := nostr.ParseID(text)
	if err != nil {
		return nil, invalid("missing or invalid report tag")
	}
	reason, v := parseReason(c)
	if !v.Accepted() {
		return nil, v
	}
	r := &ResolveReport{Report: report, Reason: reason}
	status, _ := c.Event.Tags.First("status")
	if r.Status = ReportStatus(status); r.Status != ReportResolved && r.Status != ReportDismissed {
		return nil, invalid("status must be resolved or dismissed")
	}
	action, _ := c.Event.Tags.First("action")
	r.Action = ReportAction(action)
	switch {
	case !slices.Contains([]ReportAction{ReportDelete, ReportKick, ReportBan, ReportTimeout, ReportDismiss, ReportEscalate}, r.Action):
		return nil, invalid("action must be delete, kick, ban, timeout, dismiss or escalate")
	case r.Status == ReportDismissed && r.Action != ReportDismiss:
		return nil, invalid("a dismissed report has the action dismiss")
	case r.Action == ReportTimeout:
		r.Until, v = parseTimeoutEnd(c)
	case r.Action == ReportBan:
		r.Until, v = parseUntil(c)
	case r.Action == ReportEscalate:
		r.Status = ReportEscalated
	}
	return r, v
}

func parseMeasure(c *Candidate) (nostr.PubKey, string, Verdict) {
	target, v := parseTarget(c)
	if !v.Accepted() {
		return target, "", v
	}
	reason, v := parseReason(c)
	return target, reason, v
}

func parseReason(c *Candidate) (string, Verdict) {
	reason, _ := c.Event.Tags.First("reason")
	if len(reason) > maxModerationReason || strings.ContainsRune(reason, 0) {
		return "", invalid(fmt.Sprintf("reason must be text of at most %d bytes", maxModerationReason))
	}
	return reason, Verdict{}
}

// parseUntil reads when a measure ends; that it has not yet, the rule of NIP-40 has seen to, which reads the same tag.
func parseUntil(c *Candidate) (int64, Verdict) {
	if c.ExpiresAt > lastMoment {
		return 0, invalid("expiration is too far away")
	}
	return c.ExpiresAt, Verdict{}
}

func parseTimeoutEnd(c *Candidate) (int64, Verdict) {
	switch {
	case c.ExpiresAt == 0:
		return 0, invalid("missing expiration tag")
	case c.ExpiresAt > c.Event.CreatedAt+int64(maxTimeout/time.Second):
		return 0, invalid("a timeout lasts at most 365 days")
	}
	return c.ExpiresAt, Verdict{}
}
