package policy

import (
	"cmp"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Command is an event by which a client asks the relay to change something: a roster, a channel, a ban. It is
// carried out in the transaction that accepts it, together with what the relay signs because of it. It holds its
// channel exclusively, or its whole community if its kind is in no channel.
type Command struct {
	// Asks is what is asked for, as the kind's parse function read it; its type chooses what the store does.
	Asks any
	// Outsiders is set when a closed community takes it from keys that are not members.
	Outsiders bool
	// Signs is set when it cannot be carried out without the relay's own key.
	Signs bool
	// Governs is set when it is taken from keys that are timed out, so that a moderator can lift its own timeout.
	Governs bool
	// Conversations is set when it holds the conversations of its community exclusively, instead of the community: who is
	// in which, and what each has hidden.
	Conversations bool
	// FollowUps is how many bytes of a message on the bus the events may have that the relay signs because of it;
	// FollowUpBytes unless the kind's row says less.
	FollowUps int
}

// commandRule is what is known of a kind of command, besides what package kind says of all.
type commandRule struct {
	Command // without Asks
	// fresh is set when created_at must be within CommandWindow of now. What is not stored must be, since its id
	// is not remembered for longer.
	fresh bool
	// parse reads what is asked for. It sets nothing of the candidate.
	parse func(*Candidate) (any, Verdict)
}

// CommandWindow is how far created_at of a command that must be fresh may be from now, either way.
const CommandWindow = 120 * time.Second

// CommandMemory is for how long after its created_at the id of a command that is not stored is remembered: until
// the window has passed by the clock of every replica.
const CommandMemory = CommandWindow + time.Minute

// What a batch reserves of a message on the bus for all events that the relay signs because of one command or other
// change, each with its EnvelopeOverhead.
const (
	// FollowUpBytes is enough for any.
	FollowUpBytes = 384 << 10
	// RosterBytes is enough for a change of one member: the lists that are signed at once are short (ShortRoster).
	RosterBytes = 32 << 10
	// HiddenBytes is enough for the list of what one key has hidden (MaxHidden), and for a new conversation.
	HiddenBytes = 64 << 10
	// quietBytes is for commands because of which nothing is signed but the summary of a thread.
	quietBytes = SummaryBytes + EnvelopeOverhead
)

// ShortRoster is up to how many members the list of a channel's or a community's members is signed in the transaction
// that changes it. A longer one is signed in the background, once for all that changes in a few seconds.
const ShortRoster = 128

// commands are the kinds that are carried out. Whoever adds one adds a row here, its parse function, and what the
// store does (store.execute).
var commands = map[nostr.Kind]commandRule{
	nostr.KindRelayAddMember:    {Command: Command{Signs: true, Governs: true, FollowUps: RosterBytes}, fresh: true, parse: parseAddMember},
	nostr.KindRelayRemoveMember: {Command: Command{Signs: true, Governs: true}, fresh: true, parse: parseRemoveMember},
	nostr.KindRelayChangeRole:   {Command: Command{Signs: true, Governs: true, FollowUps: RosterBytes}, fresh: true, parse: parseChangeRole},
	nostr.KindRelaySetProfile:   {Command: Command{Governs: true, FollowUps: quietBytes}, fresh: true, parse: parseSetProfile},
	nostr.KindRelayJoinRequest:  {Command: Command{Signs: true, Outsiders: true, FollowUps: RosterBytes}, fresh: true, parse: parseJoinRelay},
	nostr.KindRelayLeaveRequest: {Command: Command{Signs: true}, fresh: true, parse: parseLeaveRelay},

	// Members that are removed are only announced with a key; moderation works without one.
	nostr.KindBan:           {Command: Command{Governs: true}, fresh: true, parse: parseBan},
	nostr.KindUnban:         {Command: Command{Governs: true, FollowUps: quietBytes}, fresh: true, parse: parseUnban},
	nostr.KindTimeout:       {Command: Command{Governs: true, FollowUps: quietBytes}, fresh: true, parse: parseTimeout},
	nostr.KindUntimeout:     {Command: Command{Governs: true, FollowUps: quietBytes}, fresh: true, parse: parseUntimeout},
	nostr.KindResolveReport: {Command: Command{Governs: true}, fresh: true, parse: parseResolveReport},

	// Channels work without a relay key: what would be signed is left out.
	nostr.KindPutUser:      {Command: Command{FollowUps: RosterBytes}, parse: parsePutUser},
	nostr.KindRemoveUser:   {Command: Command{FollowUps: RosterBytes}, parse: parseRemoveUser},
	nostr.KindEditMetadata: {parse: parseEditChannel},
	nostr.KindDeleteEvent:  {Command: Command{FollowUps: quietBytes}, parse: parseDeleteEvent},
	nostr.KindCreateGroup:  {parse: parseCreateChannel},
	nostr.KindDeleteGroup:  {parse: parseDeleteChannel},
	nostr.KindCreateInvite: {Command: Command{FollowUps: quietBytes}, fresh: true, parse: parseChannelInvite},
	nostr.KindJoinRequest:  {Command: Command{FollowUps: RosterBytes}, parse: parseJoinChannel},
	nostr.KindLeaveRequest: {Command: Command{FollowUps: RosterBytes}, parse: parseLeaveChannel},

	// What somebody has hidden is told by an event of the relay's and not otherwise.
	nostr.KindOpenConversation:  {Command: Command{Conversations: true, FollowUps: HiddenBytes}, parse: parseOpenConversation},
	nostr.KindAddToConversation: {Command: Command{Conversations: true, FollowUps: HiddenBytes}, parse: parseAddToConversation},
	nostr.KindHideConversation:  {Command: Command{Conversations: true, Signs: true, FollowUps: HiddenBytes}, parse: parseHideConversation},
}

// isCarriedOut reports whether the relay does what events of a kind ask for.
func isCarriedOut(k nostr.Kind) bool {
	_, ok := commands[k]
	return ok
}

// parseCommand reads a command; it accepts what is none.
func (c *Candidate) parseCommand(now time.Time) Verdict {
	rule, ok := commands[c.Event.Kind]
	if !ok {
		return Verdict{}
	}
	if rule.fresh {
		if v := checkTime(c.Event.CreatedAt, CommandWindow, now); !v.Accepted() {
			return v
		}
	}
	if c.ExpiresAt != 0 && c.IsStored() {
		return invalid("the record of a channel cannot expire")
	}
	asks, v := rule.parse(c)
	if !v.Accepted() {
		return v
	}
	command := rule.Command
	command.Asks = asks
	command.FollowUps = cmp.Or(rule.FollowUps, FollowUpBytes)
	c.Command = &command
	return Verdict{}
}

// admitCommand decides what is the same for every command; what it asks for is decided where it is carried out. A
// repeat is recognised before the rights of its author, which the first one may have changed.
func admitCommand(c *Candidate, st *State, community Community) Verdict {
	switch {
	case st.Stored[c.Key()]:
		return Processed
	case anyOf(c.Parties(), func(p nostr.PubKey) bool { return st.Banned[MemberKey{c.Community, p}] }):
		return Banned
	case !c.Command.Governs && st.silenced(c) > 0:
		return TimedOut(st.silenced(c))
	case community.Closed && !c.Command.Outsiders && !st.Members[MemberKey{c.Community, c.Event.PubKey}]:
		return NotMember
	}
	if !c.IsStored() {
		return Verdict{}
	}
	if v := admitKind(c, st, community); !v.Accepted() {
		return v
	}
	return admitPresent(c, st)
}

// Answer returns what is said to the author of a candidate with verdict v: who sends a creation again, since its first
// answer was lost, is told the channel's id like then.
func (c *Candidate) Answer(v Verdict) Verdict {
	if c.Command == nil || v != Processed {
		return v
	}
	if create, ok := c.Command.Asks.(*CreateChannel); ok && create.Named {
		return create.Answer(c.Channel)
	}
	return v
}

// Processed answers a command that was carried out before.
var Processed = Verdict{fault.Duplicate, "already processed"}

// NoKey answers a command that the relay would have to sign something for.
var NoKey = Verdict{fault.Restricted, "this relay has no key to sign with, so it does not take this command"}
