package policy

import (
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
)

// Submission is what a caller offers: an event's bytes and who stands behind them.
type Submission struct {
	// Community is the tenant that the Host header chose; never 0.
	Community int64
	// Raw is the event's JSON object as it arrived. It is kept as long as the candidate.
	Raw []byte
	// Principal are the authenticated keys, 1 to MaxPrincipal.
	Principal []nostr.PubKey
	// Traceparent is the W3C trace context that travels with the event, empty when it is not sampled.
	Traceparent string
	// Gateway identifies the gateway with the connection that it came over, empty if there is none.
	Gateway string
}

// Client is who sends events to a community. What one sends keeps its order, and clients take turns. A guest that asks to join is
// another one than the members that share its connection.
type Client struct {
	Community int64
	Key       nostr.PubKey
}

// Client identifies who sent the event: by the first key of its principal.
func (s *Submission) Client() Client { return Client{s.Community, s.Principal[0]} }

// MaxPrincipal is how many keys one principal may have.
const MaxPrincipal = 16

// Candidate is an event that passed Check.
type Candidate struct {
	Submission
	// Event is the verified event.
	Event *nostr.Event
	// Channel is the value of the h tag, a possible channel id; empty for the global topic.
	Channel string
	// ExpiresAt is when the event expires in Unix seconds (NIP-40), 0 for never.
	ExpiresAt int64
	// DueAt is when a reminder is to be passed on once more, in Unix seconds (NIP-ER); 0 for never.
	DueAt int64
	// Deletion is set for kind 5.
	Deletion *Deletion
	// Vanish is set for kind 62.
	Vanish *Vanish
	// Command is set for the kinds of commands.
	Command *Command
	// Reaction is set for kind 7 if it names a target.
	Reaction *Reaction
	// Reply is set for a message that answers another one.
	Reply *Reply
	// Reference is the event of its channel that an edit, a vote, a pin, a bookmark or a reminder is about.
	Reference *nostr.ID
	// Agency is set for what goes between an agent and its owner.
	Agency *Agency
}

// Vanish is a request to vanish (NIP-62): of everything that its author made up to its created_at, and of
// every gift wrap to the author.
type Vanish struct {
	// All is set when every relay is meant.
	All bool
	// Hosts are the relays that are named, normalised, each once.
	Hosts []string
}

// Deletion is what a deletion request asks for (NIP-09). It binds only events of its own author and gift wraps
// for it, so addresses of others are left out.
type Deletion struct {
	// IDs are the targets of e tags, each once.
	IDs []nostr.ID
	// Addresses are the author's own targets of a tags, each once.
	Addresses []Coordinate
}

// Coordinate is an address without its author: what an a tag names.
type Coordinate struct {
	// Kind is a replaceable or addressable kind.
	Kind nostr.Kind
	// D is the d tag's value, empty for replaceable kinds.
	D string
}

// Addressed reports whether at most one version of the event is kept, and under which coordinate.
func (c *Candidate) Addressed() (Coordinate, bool) { return CoordinateOf(c.Event) }

// CoordinateOf returns under which coordinate a replaceable or addressable event is kept; false for
// other kinds.
func CoordinateOf(ev *nostr.Event) (Coordinate, bool) {
	switch {
	case ev.Kind.IsReplaceable():
		return Coordinate{Kind: ev.Kind}, true
	case ev.Kind.IsAddressable():
		return Coordinate{Kind: ev.Kind, D: ev.DTag()}, true
	}
	return Coordinate{}, false
}

// Writers are the keys whose rights count for this event: the author's, except that a gift wrap is
// signed by a throw-away key (NIP-59), so there the principal's.
func (c *Candidate) Writers() []nostr.PubKey {
	if c.Event.Kind.IsGiftWrap() {
		return c.Principal
	}
	return []nostr.PubKey{c.Event.PubKey}
}

// Parties are the keys of which none may be banned: the writers and the author.
func (c *Candidate) Parties() []nostr.PubKey {
	writers := c.Writers()
	if slices.Contains(writers, c.Event.PubKey) {
		return writers
	}
	return append(slices.Clip(writers), c.Event.PubKey)
}

// Owners are the keys whose request to vanish takes the event with it: its author, and of a gift wrap whom it
// is for. A request to vanish itself stays, as the record of what was asked.
func (c *Candidate) Owners() []nostr.PubKey {
	if c.Vanish != nil {
		return nil
	}
	owners := []nostr.PubKey{c.Event.PubKey}
	if c.Event.Kind.IsGiftWrap() {
		for t := range c.Event.Tags.All("p") {
			if p, err := nostr.ParsePubKey(t.Value()); err == nil && !slices.Contains(owners, p) {
				owners = append(owners, p)
			}
		}
	}
	return owners
}

// maxRecipients is how many recipients of a gift wrap may ask for its deletion beforehand; NIP-59 knows one.
const maxRecipients = 16

// Deleters are the keys whose deletion requests bind this event: the author's (NIP-09), and those of a gift
// wrap's recipients, because its author has thrown the key away (NIP-59).
func (c *Candidate) Deleters() []nostr.PubKey {
	keys := []nostr.PubKey{c.Event.PubKey}
	if c.Event.Kind != nostr.KindGiftWrap {
		return keys
	}
	for t := range c.Event.Tags.All("p") {
		if len(keys) > maxRecipients {
			break
		}
		if key, err := nostr.ParsePubKey(t.Value()); err == nil && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// EnvelopeOverhead is an upper estimate of an envelope's header and framing in bytes.
const EnvelopeOverhead = 384

// Size is what the candidate adds to an outbox row and to a message on the bus, in bytes; an upper
// estimate.
func (c *Candidate) Size() int {
	size := len(c.Raw) + EnvelopeOverhead
	if c.Command != nil {
		size += c.Command.FollowUps
	}
	if c.Vanish != nil {
		size += HiddenBytes
	}
	if c.Reply != nil {
		size += SummaryBytes + EnvelopeOverhead
	}
	if c.Deletion != nil {
		size += c.Deletion.Summaries() * (SummaryBytes + EnvelopeOverhead)
	}
	return size
}

// IsEphemeral reports whether the event is passed on without the database. A command never is, whatever the range
// of its kind.
func (c *Candidate) IsEphemeral() bool { return c.Event.Kind.IsEphemeral() && c.Command == nil }

// IsStored reports whether the event is kept and passed on when a transaction accepts it. Of a command that is not,
// only the id is remembered, for as long as it could be sent again.
func (c *Candidate) IsStored() bool { return kind.Of(c.Event.Kind).Class != kind.Unstored }

// IsAnnouncement reports whether the event announces its author's status to the community. What is said in a channel
// stays there.
func (c *Candidate) IsAnnouncement() bool {
	return c.Event.Kind == nostr.KindPresence && c.Channel == ""
}

// Whole reports whether the event holds its whole community, so that it is alone with it in a batch.
func (c *Candidate) Whole() bool {
	return c.Vanish != nil || (c.Command != nil && c.Channel == "" && !c.Command.Conversations)
}

// What stands for more than one channel where these are held together is no channel's id.
const (
	// conversations stands for all conversations of a community.
	conversations = ":dm"
	// creations stands for the channels that are being made in a community.
	creations = ":new"
)

// Creates names what an event that would make a channel holds exclusively besides it, so that channels are counted one after
// the other. It is not alone with it in a batch, which makes its channels in order.
func (c *Candidate) Creates() (ChannelKey, bool) {
	if c.Command == nil {
		return ChannelKey{}, false
	}
	_, ok := c.Command.Asks.(*CreateChannel)
	return ChannelKey{c.Community, creations}, ok
}

// Holds names the channel that the event holds exclusively, so that it is alone with it in a batch; or what it holds as
// if it were one. It is false for what holds none, or its whole community.
func (c *Candidate) Holds() (ChannelKey, bool) {
	switch {
	case c.Command == nil || c.Whole():
		return ChannelKey{}, false
	case c.Command.Conversations:
		return ChannelKey{c.Community, conversations}, true
	}
	return c.ChannelKey(), true
}
