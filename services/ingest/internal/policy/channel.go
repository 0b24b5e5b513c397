package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// ChannelRole is what a member is in its channel. The empty role is that of a key which is no member.
type ChannelRole string

// The roles of a channel.
const (
	ChannelOwner  ChannelRole = "owner"
	ChannelAdmin  ChannelRole = "admin"
	ChannelMember ChannelRole = "member"
	ChannelGuest  ChannelRole = "guest"
	ChannelBot    ChannelRole = "bot"
)

// Manages reports whether the role may change the channel and its members.
func (r ChannelRole) Manages() bool { return r == ChannelOwner || r == ChannelAdmin }

// ChannelType is what a channel is for.
type ChannelType string

// The types of a channel. A Direct channel is a conversation of those who are in it from its beginning.
const (
	Stream   ChannelType = "stream"
	Forum    ChannelType = "forum"
	Direct   ChannelType = "dm"
	Workflow ChannelType = "workflow"
)

// Names of a channel's visibility.
const (
	VisibilityOpen    = "open"
	VisibilityPrivate = "private"
)

// ChannelSpec describes a channel.
type ChannelSpec struct {
	// Name, About, Picture, Banner, Topic and Purpose are shown to members; all may be empty.
	Name, About, Picture, Banner, Topic, Purpose string
	// Type is what it is for.
	Type ChannelType
	// Private hides the channel from everybody who is not a member.
	Private bool
	// TTL is after how many seconds without a message the channel is archived, 0 for never.
	TTL int32
	// PreviousRequired is set when messages must refer to earlier ones (NIP-29).
	PreviousRequired bool
}

// Commands of channels (NIP-29) as they are asked for, by kind.
type (
	// CreateChannel is kind 9007. Its author becomes the owner.
	CreateChannel struct {
		ChannelSpec
		// Named is set when the relay chose the id, and has to tell it.
		Named bool
	}
	// EditChannel is kind 9002: what is nil stays.
	EditChannel struct {
		Name, About, Picture, Banner, Topic, Purpose *string
		Private, Archived, PreviousRequired          *bool
		// TTL is as in ChannelSpec.
		TTL *int32
	}
	// DeleteChannel is kind 9008.
	DeleteChannel struct{}
)

// Bounds of what describes a channel, in bytes.
const (
	maxChannelName = 256
	maxChannelText = 4096
	maxChannelURL  = 2048
)

// channelTexts are the tags that describe a channel.
var channelTexts = []struct {
	tag string
	max int
	set func(*EditChannel, *string)
}{
	{"name", maxChannelName, func(e *EditChannel, v *string) { e.Name = v }},
	{"about", maxChannelText, func(e *EditChannel, v *string) { e.About = v }},
	{"picture", maxChannelURL, func(e *EditChannel, v *string) { e.Picture = v }},
	{"banner", maxChannelURL, func(e *EditChannel, v *string) { e.Banner = v }},
	{"topic", maxChannelText, func(e *EditChannel, v *string) { e.Topic = v }},
	{"purpose", maxChannelText, func(e *EditChannel, v *string) { e.Purpose = v }},
}

// parseFields reads the tags that describe a channel.
func parseFields(tags nostr.Tags) (*EditChannel, Verdict) {
	if tags.Count("parent")+tags.Count("child") > 0 {
		return nil, unsupported("channels have no subgroups")
	}
	edit := &EditChannel{}
	for _, f := range channelTexts {
		v, ok := tags.First(f.tag)
		switch {
		case !ok:
			continue
		case len(v) > f.max:
			return nil, invalid(fmt.Sprintf("channel %s exceeds %d bytes", f.tag, f.max))
		case strings.ContainsRune(v, 0): // Postgres has no such text
			return nil, invalid("channel " + f.tag + " contains a NUL character")
		}
		if f.tag == "name" {
			// Clients show names with a # before them, and some send what they show.
			if v = strings.TrimSpace(strings.TrimLeft(v, "#")); v == "" {
				return nil, invalid("channel name is required")
			}
		}
		f.set(edit, &v)
	}
	for _, read := range []func(*EditChannel, nostr.Tags) Verdict{
		(*EditChannel).parseVisibility, (*EditChannel).parseTTL, (*EditChannel).parseFlags,
	} {
		if v := read(edit, tags); !v.Accepted() {
			return nil, v
		}
	}
	return edit, Verdict{}
}

// parseVisibility reads what channels of this family have, and the flags of NIP-29.
func (e *EditChannel) parseVisibility(tags nostr.Tags) Verdict {
	visibility, ok := tags.First("visibility")
	private, public := tags.Count("private") > 0, tags.Count("public") > 0
	switch {
	case ok && visibility != VisibilityOpen && visibility != VisibilityPrivate:
		return invalid("visibility must be open or private")
	case ok:
		private, public = private || visibility == VisibilityPrivate, public || visibility == VisibilityOpen
	}
	if private && public {
		return invalid("a channel cannot be both private and public")
	}
	if private || public {
		e.Private = &private
	}
	return Verdict{}
}

func (e *EditChannel) parseTTL(tags nostr.Tags) Verdict {
	text, ok := tags.First("ttl")
	if !ok {
		return Verdict{}
	}
	var ttl int32
	if text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || n > math.MaxInt32 {
			return invalid("ttl must be a positive number of seconds, or empty for none")
		}
		ttl = int32(n)
	}
	e.TTL = &ttl
	return Verdict{}
}

func (e *EditChannel) parseFlags(tags nostr.Tags) Verdict {
	for _, f := range []struct {
		tag string
		dst **bool
	}{{"archived", &e.Archived}, {"previous_required", &e.PreviousRequired}} {
		text, ok := tags.First(f.tag)
		if !ok {
			continue
		}
		on := text == "true"
		if !on && text != "false" {
			return invalid(f.tag + " must be true or false")
		}
		*f.dst = &on
	}
	return Verdict{}
}

func parseCreateChannel(c *Candidate) (any, Verdict) {
	fields, v := parseFields(c.Event.Tags)
	if !v.Accepted() {
		return nil, v
	}
	spec := ChannelSpec{Type: Stream}
	if text, ok := c.Event.Tags.First("channel_type"); ok {
		switch spec.Type = ChannelType(text); spec.Type {
		case Stream, Forum, Workflow:
		case Direct:
			return nil, invalid("a dm is opened with kind 41010")
		default:
			return nil, invalid("channel_type must be stream, forum or workflow")
		}
	}
	fields.apply(&spec)
	_, has := c.Event.Channel()
	return &CreateChannel{ChannelSpec: spec, Named: !has}, Verdict{}
}

// newChannelID returns the id of a channel whose creator has not chosen one: a UUID that is made of the event's id, so
// that the same event sent twice means the same channel.
func newChannelID(id nostr.ID) string {
	u := id[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // version 8, the custom one
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Answer returns what the creator is told.
func (c *CreateChannel) Answer(h string) Verdict {
	if !c.Named {
		return Verdict{}
	}
	return Verdict{Message: `response:{"channel_id":"` + h + `"}`}
}

func parseEditChannel(c *Candidate) (any, Verdict) {
	edit, v := parseFields(c.Event.Tags)
	if !v.Accepted() {
		return nil, v
	}
	if !edit.managed() && edit.Topic == nil && edit.Purpose == nil {
		return nil, invalid("an edit must have at least one of name, about, picture, banner, archived, topic, purpose, visibility, ttl")
	}
	return edit, Verdict{}
}

func parseDeleteChannel(*Candidate) (any, Verdict) { return &DeleteChannel{}, Verdict{} }

// managed reports whether the edit changes more than what is being talked about.
func (e *EditChannel) managed() bool {
	return e.Name != nil || e.About != nil || e.Picture != nil || e.Banner != nil || e.Private != nil || e.Archived != nil ||
		e.PreviousRequired != nil || e.TTL != nil
}

// unarchives reports whether the edit is one that an archived channel takes.
func (e *EditChannel) unarchives() bool { return e.Archived != nil && !*e.Archived }

// Apply returns what the edit makes of a description.
func (e *EditChannel) Apply(s ChannelSpec) ChannelSpec {
	e.apply(&s)
	return s
}

func (e *EditChannel) apply(s *ChannelSpec) {
	set(&s.Name, e.Name)
	set(&s.About, e.About)
	set(&s.Picture, e.Picture)
	set(&s.Banner, e.Banner)
	set(&s.Topic, e.Topic)
	set(&s.Purpose, e.Purpose)
	set(&s.Private, e.Private)
	set(&s.TTL, e.TTL)
	set(&s.PreviousRequired, e.PreviousRequired)
}

func set[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// Group is what has to be known of a channel to decide on a command in it.
type Group struct {
	// Exists is false when there is no such channel; all else is zero then.
	Exists bool
	// Private and Archived are as in Channel.
	Private, Archived bool
	// Type is what the channel is for.
	Type ChannelType
	// Actor is the role of who sent the command, Target of whom it is about; empty for who is no member.
	Actor, Target ChannelRole
	// Owners is how many owners the channel has, Members how many members, owners included.
	Owners, Members int
	// OwnsOwner is set when the actor owns an agent that is an owner of the channel (NIP-OA), OwnsTarget when it owns who
	// the command is about.
	OwnsOwner, OwnsTarget bool
}

// governs reports whether the actor decides what the channel is: it manages it, or its agent owns it. Its agent's channels
// it sees only as far as it is in them.
func (g *Group) governs() bool { return g.Actor.Manages() || g.OwnsOwner }

// reach refuses what an actor cannot see, in the same words as what does not exist, and then what is archived.
func (g *Group) reach(unarchives bool) Verdict {
	switch {
	case g.hidden():
		return NotChannelMember
	case g.Archived && !unarchives:
		return channelArchived
	}
	return Verdict{}
}

// hidden reports whether the channel is not there as far as the actor can tell.
func (g *Group) hidden() bool { return !g.Exists || (g.Private && g.Actor == "") }

var (
	channelArchived = invalid("channel is archived")
	notInChannel    = invalid("actor is not an active member")
	notManager      = invalid("actor not authorized")
	immutable       = invalid("the members of a dm do not change")
)

// ChannelExists answers who would create a channel that another event has created.
var ChannelExists = Verdict{fault.Exists, "channel already exists"}

// Judge decides on a creation.
func (*CreateChannel) Judge(g Group) Verdict {
	if g.Exists {
		return ChannelExists
	}
	return Verdict{}
}

// Judge decides on an edit. What a channel is about at the moment, every member may say.
func (e *EditChannel) Judge(g Group) Verdict {
	if v := g.reach(e.unarchives()); !v.Accepted() {
		return v
	}
	switch {
	case g.Actor == "" && !g.OwnsOwner:
		return invalid("not a member")
	case e.managed() && !g.governs():
		return notManager
	case g.Type == Direct && e.Private != nil && !*e.Private:
		return invalid("a dm is private")
	}
	return Verdict{}
}

// Judge decides on a deletion of the channel.
func (*DeleteChannel) Judge(g Group) Verdict {
	if v := g.reach(false); !v.Accepted() {
		return v
	}
	if g.Actor != ChannelOwner && !g.OwnsOwner {
		return invalid("only owner can delete group")
	}
	return Verdict{}
}
