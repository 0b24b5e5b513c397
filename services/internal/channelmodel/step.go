package channelmodel

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Step is one command: what is sent, and what comes of it.
type Step struct {
	// Actor is the key that sends it.
	Actor string
	// Kind and Tags are the command's; the tag of the channel is left to who sends it.
	Kind nostr.Kind
	Tags nostr.Tags
	// Allowed is whether the relay carries it out.
	Allowed bool
	// After is the channel afterwards: as before if the command is not allowed.
	After Channel
	// Signed are the kinds of the channel's state that the relay signs anew because of it, in ascending order.
	Signed []nostr.Kind
}

var (
	signsMetadata = []nostr.Kind{nostr.KindGroupMetadata}
	signsMembers  = []nostr.Kind{nostr.KindGroupAdmins, nostr.KindGroupMembers}
	signsAll      = []nostr.Kind{nostr.KindGroupMetadata, nostr.KindGroupAdmins, nostr.KindGroupMembers, nostr.KindGroupRoles}
)

// Pick draws one of a list, each as likely as the others: rapid's own choice prefers the first ones so much that
// the last ones hardly come.
func Pick[T any](t *rapid.T, label string, list ...T) T {
	const bits = 10
	n := 0
	for _, bit := range rapid.SliceOfN(rapid.Bool(), bits, bits).Draw(t, label) {
		n <<= 1
		if bit {
			n++
		}
	}
	return list[n*len(list)>>bits]
}

// commands are what may be tried, as often as they are drawn.
var commands = []struct {
	often int
	draw  func(c *Channel, t *rapid.T, actor, target string) Step
}{
	{1, func(c *Channel, t *rapid.T, actor, _ string) Step {
		return c.Create(actor, Pick(t, "private", false, true))
	}},
	{6, func(c *Channel, t *rapid.T, actor, target string) Step {
		return c.Put(actor, target, Pick(t, "role", "", owner, admin, member, "guest", "bot"))
	}},
	{3, func(c *Channel, _ *rapid.T, actor, target string) Step { return c.Remove(actor, target) }},
	{1, func(c *Channel, _ *rapid.T, actor, _ string) Step { return c.Leave(actor) }},
	{2, func(c *Channel, t *rapid.T, actor, _ string) Step { return c.Join(actor, pickCode(t)) }},
	{2, func(c *Channel, t *rapid.T, actor, _ string) Step { return c.Invite(actor, pickCode(t)) }},
	{2, func(c *Channel, t *rapid.T, actor, _ string) Step {
		return c.Edit(actor, Pick(t, "tag", "topic", "purpose", "about"), Pick(t, "text", "", "bees", "honey"))
	}},
	{2, func(c *Channel, t *rapid.T, actor, _ string) Step {
		return c.Edit(actor, "visibility", Pick(t, "visibility", "open", "private"))
	}},
	{2, func(c *Channel, t *rapid.T, actor, _ string) Step {
		return c.Edit(actor, "archived", Pick(t, "archived", "false", "false", "true"))
	}},
	{2, func(c *Channel, _ *rapid.T, actor, _ string) Step { return c.Say(actor) }},
	{1, func(c *Channel, _ *rapid.T, actor, _ string) Step { return c.Delete(actor) }},
}

func pickCode(t *rapid.T) string { return Pick(t, "code", "open sesame", "open barley") }

// Draw draws what one of the keys may try with the channel, about another where that makes sense. Often it is somebody
// who manages the channel, and about a member: otherwise most would come to nothing.
func (c *Channel) Draw(t *rapid.T, keys []string) Step {
	choose := func(label string, first func(key string) bool) string {
		some := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !first(key) })
		if len(some) == 0 || Pick(t, "any", false, false, true) {
			some = keys
		}
		return Pick(t, label, some...)
	}
	actor := choose("actor", c.manages)
	target := choose("target", func(key string) bool { return c.Roles[key] != "" && key != actor })
	switch {
	case !c.Exists && Pick(t, "create", true, false):
		return commands[0].draw(c, t, actor, target)
	case len(c.Roles) == 1 && Pick(t, "fill", true, false):
		return commands[1].draw(c, t, actor, choose("newcomer", func(key string) bool { return c.Roles[key] == "" }))
	}
	var indexes []int
	for i, command := range commands {
		for range command.often {
			indexes = append(indexes, i)
		}
	}
	return commands[Pick(t, "command", indexes...)].draw(c, t, actor, target)
}

// step makes a step of which do is the effect.
func (c *Channel) step(actor string, kind nostr.Kind, tags nostr.Tags, allowed bool, signed []nostr.Kind, do func(*Channel)) Step {
	s := Step{Actor: actor, Kind: kind, Tags: tags, Allowed: allowed, After: c.clone()}
	if allowed {
		s.Signed = signed
		do(&s.After)
		s.After.settle()
	}
	return s
}

// Create makes the channel (kind 9007); the actor owns it.
func (c *Channel) Create(actor string, private bool) Step {
	tags := nostr.Tags{{"name", "#Hall"}}
	if private {
		tags = append(tags, nostr.Tag{"private"})
	}
	return c.step(actor, nostr.KindCreateGroup, tags, !c.Exists, signsAll, func(after *Channel) {
		*after = Channel{Exists: true, Private: private, Name: "Hall", Roles: map[string]string{actor: owner}, codes: map[string]string{}}
	})
}

// Put makes the target a member, or changes its role (kind 9000). Without a role it stays what it is.
func (c *Channel) Put(actor, target, role string) Step {
	tags := nostr.Tags{{"p", target}}
	if role != "" {
		tags = append(tags, nostr.Tag{"role", role})
	}
	was, becomes := c.Roles[target], role
	switch {
	case becomes == "" && was == "":
		becomes = member
	case becomes == "":
		becomes = was
	}
	signed := signsMembers
	if was == becomes {
		signed = nil
	}
	allowed := c.Visible(actor) && !c.Archived && c.mayPut(actor, target, was, becomes)
	return c.step(actor, nostr.KindPutUser, tags, allowed, signed, func(after *Channel) { after.Roles[target] = becomes })
}

// mayPut reports whether an actor who sees the channel may make the target what it becomes.
func (c *Channel) mayPut(actor, target, was, becomes string) bool {
	switch {
	case was == becomes: // which tells the actor that it is
		return !c.Private || c.manages(actor) || actor == target
	case c.Roles[actor] == owner:
		return was != owner || c.Owners() > 1
	case c.Roles[actor] == admin:
		return was != owner && becomes != owner
	}
	return was == "" && !c.Private && becomes != owner && becomes != admin
}

// Remove takes the target out (kind 9001).
func (c *Channel) Remove(actor, target string) Step {
	return c.without(nostr.KindRemoveUser, nostr.Tags{{"p", target}}, actor, target)
}

// Leave takes the actor out (kind 9022).
func (c *Channel) Leave(actor string) Step {
	return c.without(nostr.KindLeaveRequest, nil, actor, actor)
}

func (c *Channel) without(kind nostr.Kind, tags nostr.Tags, actor, target string) Step {
	was := c.Roles[target]
	allowed := c.Visible(actor) && !c.Archived && was != "" && (was != owner || c.Owners() > 1) &&
		(actor == target || c.Roles[actor] == owner || (c.Roles[actor] == admin && was != owner))
	return c.step(actor, kind, tags, allowed, signsMembers, func(after *Channel) { delete(after.Roles, target) })
}

// Join makes the actor a member (kind 9021): of what is open, or with a code.
func (c *Channel) Join(actor, code string) Step {
	allowed := c.Exists && (!c.Private || c.opens(code)) && !c.Archived && c.Roles[actor] == ""
	return c.step(actor, nostr.KindJoinRequest, nostr.Tags{{"code", code}}, allowed, signsMembers, func(after *Channel) { after.Roles[actor] = member })
}

// Invite makes a code (kind 9009).
func (c *Channel) Invite(actor, code string) Step {
	allowed := c.Exists && !c.Archived && c.manages(actor)
	return c.step(actor, nostr.KindCreateInvite, nostr.Tags{{"code", code}}, allowed, nil, func(after *Channel) { after.codes[code] = actor })
}

// Edit changes what the tag says (kind 9002): topic, purpose, about, visibility or archived.
func (c *Channel) Edit(actor, tag, value string) Step {
	allowed := c.Exists && !c.Archived && c.manages(actor)
	switch {
	case tag == "topic", tag == "purpose":
		allowed = c.Exists && !c.Archived && c.Roles[actor] != ""
	case tag == "archived" && value == "false":
		allowed = c.Exists && c.manages(actor)
	}
	return c.step(actor, nostr.KindEditMetadata, nostr.Tags{{tag, value}}, allowed, signsMetadata, func(after *Channel) {
		switch tag {
		case "topic":
			after.Topic = value
		case "purpose":
			after.Purpose = value
		case "about":
			after.About = value
		case "visibility":
			after.Private = value == "private"
		case "archived":
			after.Archived = value == "true"
		}
	})
}

// Say writes a message (kind 9).
func (c *Channel) Say(actor string) Step {
	return c.step(actor, nostr.KindChat, nil, c.Visible(actor) && !c.Archived, nil, func(*Channel) {})
}

// Delete ends the channel (kind 9008).
func (c *Channel) Delete(actor string) Step {
	allowed := c.Exists && !c.Archived && c.Roles[actor] == owner
	return c.step(actor, nostr.KindDeleteGroup, nil, allowed, nil, func(after *Channel) { *after = Channel{} })
}
