package cases

import (
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// The kinds of NIP-29.
const (
	kindPutUser     nostr.Kind = 9_000
	kindRemoveUser  nostr.Kind = 9_001
	kindEditGroup   nostr.Kind = 9_002
	kindDeleteEvent nostr.Kind = 9_005
	kindCreateGroup nostr.Kind = 9_007
	kindDeleteGroup nostr.Kind = 9_008
	kindInviteCode  nostr.Kind = 9_009
	kindJoinGroup   nostr.Kind = 9_021
	kindLeaveGroup  nostr.Kind = 9_022
	kindGroup       nostr.Kind = 39_000
	kindGroupAdmins nostr.Kind = 39_001
	kindGroupChat   nostr.Kind = 9
)

// groupState are the kinds of events that only the relay makes.
var groupState = []nostr.Kind{39_000, 39_001, 39_002, 39_003}

// group is a group that a case has made. Its id is told by nobody else's.
type group struct {
	*suite.T
	id    string
	owner *suite.User
}

// newGroup makes a group with some tags besides its name.
func newGroup(t *suite.T, tags ...nostr.Tag) *group {
	g := &group{T: t, owner: t.User()}
	g.id = g.owner.Hex[:24]
	create := g.owner.Event(t.Now(), kindCreateGroup, "", append(tags, tag("h", g.id), tag("name", "Conformance"))...)
	if v := g.owner.Offer(create); !v.OK {
		t.NotClaimed("the relay lets this key make no group: %s", v)
	}
	return g
}

// event makes an event of the group.
func (g *group) event(by *suite.User, kind nostr.Kind, content string, tags ...nostr.Tag) *nostr.Event {
	return by.Event(g.Now(), kind, content, append(tags, tag("h", g.id))...)
}

// join makes somebody a member, or ends the case where that is not to be had.
func (g *group) join(user *suite.User) {
	if v := user.Offer(g.event(user, kindJoinGroup, "")); !v.OK {
		g.NotClaimed("the relay does not let in who asks: %s", v)
	}
}

// of filters on kinds of the group.
func (g *group) of(kinds ...nostr.Kind) filter {
	f := tagged("h", g.id)
	f.Kinds = kinds
	return f
}

// state filters on what the relay says of the group.
func (g *group) state(kinds ...nostr.Kind) filter {
	f := tagged("d", g.id)
	f.Kinds = kinds
	return f
}

var nip29 = []suite.Case{
	{ID: "state-by-relay", Title: "what the relay serves as the state of a group is signed by itself, once of each kind", Required: true, Run: func(t *suite.T) {
		g := newGroup(t)
		seen := map[nostr.Kind]bool{}
		for _, e := range g.owner.Query(g.state(groupState...)) {
			t.Check(t.Relay().Info != nil && e.PubKey.String() == t.Relay().Info.Self, "signed by self", "%s", e.AppendJSON(nil))
			t.Check(!seen[e.Kind], "one event of a kind", "another one: %s", e.AppendJSON(nil))
			seen[e.Kind] = true
		}
	}},
	{ID: "state-forged", Title: "nobody else's word on a group is served as its state", Required: true, Run: func(t *suite.T) {
		g := newGroup(t)
		forged := g.owner.Event(t.Now(), kindGroup, "", tag("d", g.id), tag("name", "Forged"))
		g.owner.Offer(forged)
		t.Check(!g.owner.Has(forged), "not served", "it is")
	}},
	{ID: "state-shown", Title: "a new group has metadata with its name, and its maker among the admins", Run: func(t *suite.T) {
		g := newGroup(t)
		t.Eventually("kinds 39000 and 39001", func() (string, bool) {
			named, listed := false, false
			for _, e := range g.owner.Query(g.state(kindGroup, kindGroupAdmins)) {
				name, _ := e.Tags.First("name")
				named = named || (e.Kind == kindGroup && name == "Conformance")
				for p := range e.Tags.All("p") {
					listed = listed || (e.Kind == kindGroupAdmins && p.Value() == g.owner.Hex)
				}
			}
			return "not both", named && listed
		})
	}},
	{ID: "join-again", Title: "a join request of a member is refused with duplicate:", Required: true, Run: func(t *suite.T) {
		g, bob := newGroup(t), t.User()
		g.join(bob)
		again := g.event(bob, kindJoinGroup, "again")
		v := bob.Offer(again)
		t.Check(!v.OK && strings.HasPrefix(v.Message, "duplicate:"), "OK false duplicate:", "%s", v)
	}},
	{ID: "join-tells", Title: "who joined finds an event 9000 about itself in the group", Run: func(t *suite.T) {
		g, bob := newGroup(t), t.User()
		g.join(bob)
		f := g.of(kindPutUser)
		f.Tags["p"] = []string{bob.Hex}
		t.Eventually("kind 9000 with the p tag", func() (string, bool) { return "none", len(bob.Query(f)) > 0 })
	}},
	{ID: "leave-tells", Title: "who left finds an event 9001 about itself in the group", Run: func(t *suite.T) {
		g, bob := newGroup(t), t.User()
		g.join(bob)
		bob.Accept(g.event(bob, kindLeaveGroup, ""))
		f := g.of(kindRemoveUser)
		f.Tags["p"] = []string{bob.Hex}
		t.Eventually("kind 9001 with the p tag", func() (string, bool) { return "none", len(bob.Query(f)) > 0 })
	}},
	{ID: "moderation-needs-a-role", Title: "who has no role in a group does not edit or delete it, or remove its members", Run: func(t *suite.T) {
		g, eve := newGroup(t), t.User()
		for _, e := range []*nostr.Event{
			g.event(eve, kindEditGroup, "", tag("name", "Taken")),
			g.event(eve, kindRemoveUser, "", tag("p", g.owner.Hex)),
			g.event(eve, kindPutUser, "", tag("p", eve.Hex, "admin")),
			g.event(eve, kindDeleteGroup, ""),
		} {
			eve.Refuse(e)
		}
	}},
	{ID: "private", Title: "messages of a private group are not shown to others", Run: func(t *suite.T) {
		g, eve := newGroup(t, tag("private")), t.User()
		message := g.event(g.owner, kindGroupChat, "secret")
		g.owner.Accept(message)
		t.Check(!eve.Has(message), "nothing", "the message")
	}},
	{ID: "invite", Title: "an invite code opens a closed group, another one does not", Run: func(t *suite.T) {
		g, bob := newGroup(t, tag("private"), tag("closed")), t.User()
		code := g.owner.Hex[24:48]
		if v := g.owner.Offer(g.event(g.owner, kindInviteCode, "", tag("code", code))); !v.OK {
			t.NotClaimed("the relay takes no invite: %s", v)
		}
		bob.Refuse(g.event(bob, kindJoinGroup, "", tag("code", bob.Hex[:24])))
		bob.Accept(g.event(bob, kindJoinGroup, "", tag("code", code)))
	}},
	{ID: "delete-event", Title: "an admin deletes an event of another member", Run: func(t *suite.T) {
		g, bob := newGroup(t), t.User()
		g.join(bob)
		message := g.event(bob, kindGroupChat, "to be deleted")
		bob.Accept(message)
		g.owner.Accept(g.event(g.owner, kindDeleteEvent, "", tag("e", message.ID.String())))
		t.Check(!bob.Has(message), "nothing", "the message")
	}},
	{ID: "subgroups-cycle", Title: "a group does not become its own parent", Required: true, Run: func(t *suite.T) {
		g := newGroup(t)
		g.owner.Refuse(g.event(g.owner, kindEditGroup, "", tag("name", "Conformance"), tag("parent", g.id)))
	}},
	{ID: "subgroups-missing-parent", Title: "a group gets no parent that does not exist", Required: true, Run: func(t *suite.T) {
		g := newGroup(t)
		g.owner.Refuse(g.event(g.owner, kindEditGroup, "", tag("name", "Conformance"), tag("parent", g.owner.Hex[30:60])))
	}},
}
