package channelmodel

import (
	"maps"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Roles of a channel. A key without one is no member.
const (
	owner  = "owner"
	admin  = "admin"
	member = "member"
)

// Channel is what the model knows of a channel. The zero value is one that does not exist.
type Channel struct {
	// Exists is false before it is made and after it was deleted; all else is zero then.
	Exists bool
	// Private hides it from who is no member, Archived makes it read-only.
	Private, Archived bool
	// Name, About, Topic and Purpose describe it; all but the name may be empty.
	Name, About, Topic, Purpose string
	// Roles holds the role of every member, by key in hexadecimal.
	Roles map[string]string

	codes map[string]string // who has made an invite code, by code
}

// Visible reports whether a key can tell that there is such a channel. Who can may also read it.
func (c *Channel) Visible(key string) bool { return c.Exists && (!c.Private || c.Roles[key] != "") }

// Owners returns how many owners it has.
func (c *Channel) Owners() int {
	n := 0
	for _, role := range c.Roles {
		if role == owner {
			n++
		}
	}
	return n
}

// State returns the tags of what the relay has signed of the channel h, by kind, each list sorted. Tags about roles
// (kind 39003) are left out: they are the same for all channels.
func (c *Channel) State(h string) map[nostr.Kind]nostr.Tags {
	meta := nostr.Tags{{"d", h}, {"name", c.Name}, {"t", "stream"}}
	for _, text := range []nostr.Tag{{"about", c.About}, {"topic", c.Topic}, {"purpose", c.Purpose}} {
		if text[1] != "" {
			meta = append(meta, text)
		}
	}
	if c.Private {
		meta = append(meta, nostr.Tag{"private"}, nostr.Tag{"restricted"}, nostr.Tag{"closed"})
	} else {
		meta = append(meta, nostr.Tag{"public"})
	}
	if c.Archived {
		meta = append(meta, nostr.Tag{"archived", "true"})
	}
	admins, members := nostr.Tags{{"d", h}}, nostr.Tags{{"d", h}}
	for key, role := range c.Roles {
		members = append(members, nostr.Tag{"p", key, "", role})
		if role == owner || role == admin {
			admins = append(admins, nostr.Tag{"p", key, role})
		}
	}
	return map[nostr.Kind]nostr.Tags{
		nostr.KindGroupMetadata: Sorted(meta), nostr.KindGroupAdmins: Sorted(admins), nostr.KindGroupMembers: Sorted(members),
		nostr.KindGroupRoles: {{"d", h}},
	}
}

// Sorted returns the tags in an order of their own, for comparison with State; those about roles are left out.
func Sorted(tags nostr.Tags) nostr.Tags {
	list := slices.DeleteFunc(slices.Clone(tags), func(t nostr.Tag) bool { return t[0] == "role" })
	slices.SortFunc(list, slices.Compare[nostr.Tag])
	return list
}

// clone returns a copy that shares nothing.
func (c *Channel) clone() Channel {
	other := *c
	other.Roles, other.codes = maps.Clone(c.Roles), maps.Clone(c.codes)
	return other
}

func (c *Channel) manages(key string) bool { return c.Roles[key] == owner || c.Roles[key] == admin }

// opens reports whether a code is good: as long as who has made it manages the channel.
func (c *Channel) opens(code string) bool { return c.manages(c.codes[code]) }

// settle forgets the codes of who no longer manages the channel: to be an admin again does not make them good again.
func (c *Channel) settle() {
	maps.DeleteFunc(c.codes, func(_, maker string) bool { return !c.manages(maker) })
}
