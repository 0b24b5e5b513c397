package policy

import (
	"github.com/apiary-relay/apiary/pkg/fault"
)

// Verdict is the answer to one submission. The zero Verdict accepts it.
type Verdict struct {
	// Reason is UNSPECIFIED for an accepted event.
	Reason fault.Reason
	// Message is public text without a prefix.
	Message string
}

// Accepted reports whether the event was stored, or passed on if it is ephemeral, by this submission.
func (v Verdict) Accepted() bool { return v.Reason == fault.Accepted }

// The verdicts that more than one place gives.
var (
	// Duplicate answers an event that is stored already.
	Duplicate = Verdict{fault.Duplicate, "already have this event"}
	// Superseded answers a replaceable or addressable event that lost against a stored version.
	Superseded = Verdict{fault.Duplicate, "a newer version is stored"}
	// Overloaded answers when a dependency is down; the same event may be sent again.
	Overloaded = Verdict{fault.Overloaded, "cannot store events at the moment, try again"}
	// Undelivered answers an ephemeral event that could not be passed on; it may be sent again.
	Undelivered = Verdict{fault.Overloaded, "cannot deliver events at the moment, try again"}
	// TooMuchFollows answers what would have the relay sign more than it can pass on together.
	TooMuchFollows = Verdict{fault.Invalid, "what the relay would have to sign because of this is too large"}
	// Draining answers what comes in while the process shuts down.
	Draining = Verdict{fault.Overloaded, "shutting down, try again"}
	// Deleted answers an event whose author asked for its deletion (NIP-09).
	Deleted = Verdict{fault.Blocked, "event was deleted by its author"}
	// Protected answers an event that only its author may publish (NIP-70).
	Protected = Verdict{fault.AuthRequired, "this event may only be published by its author"}
	// Banned answers a write by a key that moderators have banned (NIP-86).
	Banned = Verdict{fault.Blocked, "you are banned from this community"}
	// BannedEvent answers an event that moderators have removed (NIP-86).
	BannedEvent = Verdict{fault.Blocked, "event was removed by a moderator"}
	// Vanished answers an event of a key that asked to vanish, from before it did (NIP-62).
	Vanished = Verdict{fault.Blocked, "this key asked to vanish"}
	// NotHere answers a request to vanish from other relays (NIP-62).
	NotHere = Verdict{fault.Invalid, "the request to vanish does not name this relay"}
	// DeletesTooMuch answers a deletion request whose targets are too much for one transaction.
	DeletesTooMuch = Verdict{fault.Restricted, "deletion covers too many bytes of events, split it"}
	// ReactionExists answers a second reaction of one author to one event with one emoji.
	ReactionExists = Verdict{fault.Exists, "reaction already exists"}
	// NotChannelMember answers a write to a channel that is missing or hidden from the author: the two
	// must not be told apart.
	NotChannelMember = Verdict{fault.Restricted, "not a channel member"}
	// NotMember answers a write to a closed community by an outsider.
	NotMember = Verdict{fault.Restricted, "not a relay member"}
)

func invalid(msg string) Verdict {
	return Verdict{fault.Invalid, msg}
}

func unsupported(msg string) Verdict {
	return Verdict{fault.Unsupported, msg}
}
