package cluster_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// pubkey makes a p tag.
func pubkey(name string) nostrtest.Option { return nostrtest.Tag("p", nostrtest.PubKey(name).String()) }

// hall is a channel with its owner's connection.
type hall struct {
	*testing.T
	c     *cluster.Cluster
	h     string
	owner *cluster.Client
}

func newHall(t *testing.T, c *cluster.Cluster, opts ...nostrtest.Option) *hall {
	t.Helper()
	h := &hall{T: t, c: c, h: channelID(t), owner: cluster.Dial(t, c.Gateway(0), who(t, "owner"))}
	h.must(h.owner, nostr.KindCreateGroup, append(opts, nostrtest.Tag("name", "Hall"))...)
	return h
}

// chat filters on the channel's messages.
func (h *hall) chat() nostr.Filter {
	f := in(h.h)
	f.Kinds = []nostr.Kind{nostr.KindChat}
	return f
}

func (h *hall) must(by *cluster.Client, kind nostr.Kind, opts ...nostrtest.Option) *nostr.Event {
	h.Helper()
	return by.Accept(append(opts, nostrtest.Kind(kind), nostrtest.Channel(h.h))...)
}

func (h *hall) refuse(message string, by *cluster.Client, kind nostr.Kind, opts ...nostrtest.Option) {
	h.Helper()
	verdict := by.Publish(by.Event(append(opts, nostrtest.Kind(kind), nostrtest.Channel(h.h))...))
	require.False(h, verdict.OK)
	require.Contains(h, verdict.Message, message)
}

// dial connects a key that no other case uses.
func (h *hall) dial(name string) *cluster.Client {
	h.Helper()
	return cluster.Dial(h.T, h.c.Gateway(1), who(h.T, name))
}

// agent connects a key whose profile says who may add it.
func (h *hall) agent(name, policy string) *cluster.Client {
	h.Helper()
	agent := h.dial(name)
	agent.Accept(nostrtest.Kind(nostr.KindAgentProfile), nostrtest.Content(`{"channel_add_policy":"`+policy+`"}`))
	return agent
}

// state returns what a client finds of the channel's relay-signed state, without #h.
func (h *hall) state(by *cluster.Client, kind nostr.Kind) *nostr.Event {
	h.Helper()
	found := by.Query(nostr.Filter{Kinds: []nostr.Kind{kind}, Tags: []nostr.TagCondition{{Name: 'd', Values: []string{h.h}}}})
	if len(found) == 0 {
		return nil
	}
	require.Len(h, found, 1)
	require.Equal(h, nostrtest.PubKey(cluster.RelayKey), found[0].PubKey)
	return found[0]
}

// notices subscribes to what tells a key of its own membership.
func notices(by *cluster.Client, name string) *cluster.Sub {
	return by.Subscribe(nostr.Filter{
		Kinds: []nostr.Kind{nostr.KindMemberAdded, nostr.KindMemberRemoved},
		Tags:  []nostr.TagCondition{{Name: 'p', Values: []string{nostrtest.PubKey(name).String()}}},
	})
}

func (h *hall) requireNotice(ev *nostr.Event, kind nostr.Kind, name, typ string) {
	h.Helper()
	require.Equal(h, kind, ev.Kind)
	p, _ := ev.Tags.First("p")
	channel, _ := ev.Tags.First("h")
	require.Equal(h, []string{nostrtest.PubKey(name).String(), h.h}, []string{p, channel})
	var content map[string]string
	require.NoError(h, json.Unmarshal([]byte(ev.Content), &content))
	require.Equal(h, map[string]string{"type": typ, "channel_id": h.h, "actor": nostrtest.PubKey(who(h.T, "owner")).String()}, content)
}

func putUserDefaultPolicy(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	h.dial("agent")
	h.must(h.owner, nostr.KindPutUser, pubkey(who(t, "agent")), nostrtest.Tag("role", "bot"))
}

func unarchiveNotifies(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	s := notices(h.owner, who(t, "owner"))
	h.must(h.owner, nostr.KindEditMetadata, nostrtest.Tag("archived", "true"))
	h.refuse("archived", h.owner, nostr.KindChat)
	h.must(h.owner, nostr.KindEditMetadata, nostrtest.Tag("archived", "false"))
	h.requireNotice(s.Next(), nostr.KindMemberAdded, who(t, "owner"), "member_added")
	h.must(h.owner, nostr.KindChat)
}

func putUserNobody(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	h.agent("agent", "nobody")
	h.refuse("policy:nobody", h.owner, nostr.KindPutUser, pubkey(who(t, "agent")))
}

func putUserSelf(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	agent := h.agent("agent", "nobody")
	h.must(agent, nostr.KindPutUser, pubkey(who(t, "agent")))
}

func putUserOwnerOnly(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	h.agent("agent", "owner_only")
	h.refuse("policy:owner_only — this agent has no owner", h.owner, nostr.KindPutUser, pubkey(who(t, "agent")))
}

func standardClient(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	bob := h.dial("bob")
	meta := h.state(bob, nostr.KindGroupMetadata)
	name, _ := meta.Tags.First("name")
	require.Equal(t, "Hall", name)
	require.NotNil(t, h.state(bob, nostr.KindGroupAdmins))
	require.NotNil(t, h.state(bob, nostr.KindGroupMembers))
	require.NotNil(t, h.state(bob, nostr.KindGroupRoles))

	// A channel's state has a d tag and no h tag: filters without #h see it, live as stored, and those with it do not.
	everywhere := bob.Subscribe(nostr.Filter{Kinds: []nostr.Kind{nostr.KindGroupMetadata}, Tags: []nostr.TagCondition{{Name: 'd', Values: []string{h.h}}}})
	inside := in(h.h)
	inside.Kinds = []nostr.Kind{nostr.KindGroupMetadata, nostr.KindChat}
	require.Empty(t, bob.Query(inside))
	here := bob.Subscribe(inside)
	h.must(h.owner, nostr.KindEditMetadata, nostrtest.Tag("topic", "bees"))
	topic, _ := everywhere.Next().Tags.First("topic")
	require.Equal(t, "bees", topic)
	message := h.must(bob, nostr.KindChat, nostrtest.Content("hello"))
	require.Equal(t, message, here.Next())
	like := bob.Accept(nostrtest.Kind(nostr.KindReaction), to(message), nostrtest.Content("+"))
	bob.Accept(nostrtest.Kind(nostr.KindDeletion), to(like))
	require.False(t, bob.Publish(bob.Event(nostrtest.Kind(nostr.KindChat))).OK, "a message without a channel")
	h.must(bob, nostr.KindJoinRequest)
	require.Regexp(t, "^duplicate: ", bob.Publish(bob.Event(nostrtest.Kind(nostr.KindJoinRequest), nostrtest.Channel(h.h), nostrtest.Content("again"))).Message)
	require.Equal(t, 2, h.state(bob, nostr.KindGroupMembers).Tags.Count("p"))
	own := bob.Query(nostr.Filter{Kinds: []nostr.Kind{nostr.KindPutUser, nostr.KindRemoveUser}, Tags: []nostr.TagCondition{
		{Name: 'h', Values: []string{h.h}}, {Name: 'p', Values: []string{nostrtest.PubKey(who(t, "bob")).String()}},
	}})
	require.Len(t, own, 1, "how clients check their own membership")
	h.must(bob, nostr.KindLeaveRequest)
	require.Equal(t, 1, h.state(bob, nostr.KindGroupMembers).Tags.Count("p"))
}

func notificationsAreTheRelays(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	h.refuse("relay-signed", h.owner, nostr.KindMemberAdded, pubkey(who(t, "owner")))
}

func notifiedOnAdd(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	agent := h.dial("agent")
	s := notices(agent, who(t, "agent"))
	h.must(h.owner, nostr.KindPutUser, pubkey(who(t, "agent")))
	h.requireNotice(s.Next(), nostr.KindMemberAdded, who(t, "agent"), "member_added")
}

func notifiedOnRemove(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c)
	agent := h.dial("agent")
	h.must(h.owner, nostr.KindPutUser, pubkey(who(t, "agent")))
	s := notices(agent, who(t, "agent"))
	h.must(h.owner, nostr.KindRemoveUser, pubkey(who(t, "agent")))
	h.requireNotice(s.Next(), nostr.KindMemberRemoved, who(t, "agent"), "member_removed")
}

// crowded makes a private hall with a member who is neither owner nor admin.
func crowded(t *testing.T, c *cluster.Cluster) (h *hall, bob *cluster.Client) {
	t.Helper()
	h = newHall(t, c, nostrtest.Tag("private"))
	bob = h.dial("bob")
	h.must(h.owner, nostr.KindPutUser, pubkey(who(t, "bob")))
	return h, bob
}

func privateMemberCannotInvite(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h, bob := crowded(t, c)
	h.refuse("owners/admins", bob, nostr.KindPutUser, pubkey(who(t, "carol")))
	h.must(bob, nostr.KindPutUser, pubkey(who(t, "bob")))
	require.Equal(t, 2, h.state(bob, nostr.KindGroupMembers).Tags.Count("p"))
}

func privateMemberCannotGrantAdmin(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h, bob := crowded(t, c)
	h.refuse("owners/admins", bob, nostr.KindPutUser, pubkey(who(t, "carol")), nostrtest.Tag("role", "admin"))
	h.refuse("owners/admins", bob, nostr.KindPutUser, pubkey(who(t, "bob")), nostrtest.Tag("role", "admin"))
	require.Equal(t, 1, h.state(bob, nostr.KindGroupAdmins).Tags.Count("p"))
}

func privateAdminCanInvite(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c, nostrtest.Tag("private"))
	admin := h.dial("admin")
	h.must(h.owner, nostr.KindPutUser, pubkey(who(t, "admin")), nostrtest.Tag("role", "admin"))
	h.must(admin, nostr.KindPutUser, pubkey(who(t, "carol")))
}

func privateOutsiderCannotInvite(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c, nostrtest.Tag("private"))
	eve := h.dial("eve")
	h.refuse("not a channel member", eve, nostr.KindPutUser, pubkey(who(t, "carol")))
	// What is hidden and what is missing get the same bytes, whatever is asked.
	for _, kind := range []nostr.Kind{9000, 9001, 9002, 9005, 9008, 9009, 9021, 9022} {
		ask := func(channel string) cluster.Verdict {
			return eve.Publish(eve.Event(nostrtest.Kind(kind), nostrtest.Channel(channel), pubkey(who(t, "eve")),
				nostrtest.Tag("name", "x"), nostrtest.Tag("e", meaningless), nostrtest.Tag("code", "open sesame")))
		}
		hidden, missing := ask(h.h), ask("no-such-channel")
		require.False(t, hidden.OK, "kind %d", kind)
		require.Equal(t, missing, hidden, "kind %d", kind)
	}
	for _, kind := range []nostr.Kind{nostr.KindGroupMetadata, nostr.KindGroupAdmins, nostr.KindGroupMembers, nostr.KindGroupRoles} {
		require.Nil(t, h.state(eve, kind))
		require.NotNil(t, h.state(h.owner, kind))
	}
}

const meaningless = "00000000000000000000000000000000000000000000000000000000000000ab"

// lostChannels removes a member, makes a channel private and deletes one, and wants live delivery to end there, and to say so.
func lostChannels(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c, nostrtest.Tag("private"))
	bob, eve := h.dial("bob"), h.dial("eve")
	h.must(h.owner, nostr.KindPutUser, pubkey(who(t, "bob")))
	chat := h.chat()
	own, removed, outside := h.owner.Subscribe(chat), bob.Subscribe(chat), eve.Subscribe(chat)
	before := h.must(h.owner, nostr.KindChat, nostrtest.Content("before"))
	require.Equal(t, before, removed.Next())
	require.Equal(t, before, own.Next())
	closed := func(s *cluster.Sub) {
		t.Helper()
		frame := s.NextFrame()
		require.Equal(t, wire.LabelClosed, frame.Label)
		require.Equal(t, "restricted: channel access revoked", frame.Message)
	}
	h.must(h.owner, nostr.KindRemoveUser, pubkey(who(t, "bob")))
	closed(removed)
	after := h.must(h.owner, nostr.KindChat, nostrtest.Content("after"))
	require.Equal(t, after, own.Next())
	require.Empty(t, bob.Query(chat))
	h.refuse("not a channel member", bob, nostr.KindChat)

	h.must(h.owner, nostr.KindEditMetadata, nostrtest.Tag("visibility", "open"))
	open := bob.Subscribe(chat)
	message := h.must(h.owner, nostr.KindChat, nostrtest.Content("open"))
	require.Equal(t, message, open.Next())
	require.Equal(t, message, own.Next())
	require.Equal(t, message, outside.Next(), "who waited outside sees what has become open")
	h.must(h.owner, nostr.KindEditMetadata, nostrtest.Tag("visibility", "private"))
	closed(open)
	closed(outside)
	h.must(h.owner, nostr.KindDeleteGroup)
	closed(own)
	require.Empty(t, h.owner.Query(chat))
}

func invitesOpenChannels(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	h := newHall(t, c, nostrtest.Tag("private"))
	bob, carol := h.dial("bob"), h.dial("carol")
	h.must(h.owner, nostr.KindCreateInvite, nostrtest.Tag("code", "open sesame"))
	h.refuse("restricted: ", bob, nostr.KindJoinRequest, nostrtest.Tag("code", "open barley"))
	h.must(bob, nostr.KindJoinRequest, nostrtest.Tag("code", "open sesame"))
	h.must(bob, nostr.KindChat)
	h.must(h.owner, nostr.KindPutUser, pubkey(who(t, "carol")))
	codes := nostr.Filter{Kinds: []nostr.Kind{nostr.KindCreateInvite, nostr.KindJoinRequest}, Tags: in(h.h).Tags}
	require.Empty(t, carol.Query(codes), "codes are not shown to members")
}

func channelsGetIDs(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	create := alice.Event(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Tag("name", "Hall"))
	verdict := alice.Publish(create)
	require.True(t, verdict.OK)
	var response struct {
		Channel string `json:"channel_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(verdict.Message, "response:")), &response))
	alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(response.Channel))
	created := in(response.Channel)
	created.Kinds = []nostr.Kind{nostr.KindCreateGroup}
	require.Equal(t, []*nostr.Event{create}, alice.Query(created), "it is in its channel, without an h tag")
}

// The list of a channel's members comes with each change while it is short, and then once for many; the newest version
// says who is there, and who came is told at once.
func longLists(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const short, crowd = 128, 150
	h := newHall(t, c)
	lists := h.dial("watcher").Subscribe(nostr.Filter{
		Kinds: []nostr.Kind{nostr.KindGroupMembers}, Tags: []nostr.TagCondition{{Name: 'd', Values: []string{h.h}}},
	})
	require.Len(t, lists.Stored, 1)
	for i := range crowd - 1 {
		h.must(h.owner, nostr.KindPutUser, pubkey(who(t, strconv.Itoa(i))))
	}
	require.Len(t, h.owner.Query(nostr.Filter{Kinds: []nostr.Kind{nostr.KindSystemMessage}, Tags: in(h.h).Tags}), crowd)
	var last int64
	long := 0
	for n := 0; n < crowd; {
		list := lists.Next()
		require.Greater(t, list.CreatedAt, last)
		last = list.CreatedAt
		require.Greater(t, list.Tags.Count("p"), n)
		if n = list.Tags.Count("p"); n > short+1 {
			long++
		}
	}
	require.Less(t, long, (crowd-short)/2)
}
