package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

func TestChannelCommandsAreRead(t *testing.T) {
	alice := nostrtest.PubKey("alice")
	tag, p := nostrtest.Tag, nostrtest.Tag("p", alice.String())
	text, yes, no := func(s string) *string { return &s }, true, false
	ttl := func(n int32) *int32 { return &n }
	for _, c := range []struct {
		name string
		kind nostr.Kind
		opts []nostrtest.Option
		want any
		msg  string
	}{
		{"bare", 9007, nil, &policy.CreateChannel{ChannelSpec: policy.ChannelSpec{Type: policy.Stream}}, ""},
		{
			"described", 9007,
			[]nostrtest.Option{tag("name", "N"), tag("about", "A"), tag("picture", "P"), tag("banner", "B"), tag("ttl", "60")},
			&policy.CreateChannel{ChannelSpec: policy.ChannelSpec{Type: policy.Stream, Name: "N", About: "A", Picture: "P", Banner: "B", TTL: 60}}, "",
		},
		{"named as it is shown", 9007, []nostrtest.Option{tag("name", "#general")}, &policy.CreateChannel{ChannelSpec: policy.ChannelSpec{Type: policy.Stream, Name: "general"}}, ""},
		{"named with nothing", 9007, []nostrtest.Option{tag("name", "#")}, nil, "channel name is required"},
		{"private", 9007, []nostrtest.Option{tag("private")}, &policy.CreateChannel{ChannelSpec: policy.ChannelSpec{Type: policy.Stream, Private: true}}, ""},
		{"private by visibility", 9007, []nostrtest.Option{tag("visibility", "private")}, &policy.CreateChannel{ChannelSpec: policy.ChannelSpec{Type: policy.Stream, Private: true}}, ""},
		{"open by visibility", 9007, []nostrtest.Option{tag("visibility", "open")}, &policy.CreateChannel{ChannelSpec: policy.ChannelSpec{Type: policy.Stream}}, ""},
		{"both", 9007, []nostrtest.Option{tag("private"), tag("visibility", "open")}, nil, "a channel cannot be both private and public"},
		{"a forum", 9007, []nostrtest.Option{tag("channel_type", "forum")}, &policy.CreateChannel{ChannelSpec: policy.ChannelSpec{Type: policy.Forum}}, ""},
		{"a conversation", 9007, []nostrtest.Option{tag("channel_type", "dm")}, nil, "a dm is opened with kind 41010"},
		{"an odd type", 9007, []nostrtest.Option{tag("channel_type", "x")}, nil, "channel_type must be stream, forum or workflow"},

		{"nothing to edit", 9002, nil, nil, "an edit must have at least one of name, about, picture, banner, archived, topic, purpose, visibility, ttl"},
		{
			"an edit", 9002,
			[]nostrtest.Option{tag("topic", "t"), tag("purpose", ""), tag("archived", "true"), tag("public"), tag("ttl", ""), tag("previous_required", "false")},
			&policy.EditChannel{Topic: text("t"), Purpose: text(""), Archived: &yes, Private: &no, TTL: ttl(0), PreviousRequired: &no}, "",
		},
		{"an odd archived", 9002, []nostrtest.Option{tag("archived", "yes")}, nil, "archived must be true or false"},
		{"an odd visibility", 9002, []nostrtest.Option{tag("visibility", "secret")}, nil, "visibility must be open or private"},
		{"a negative ttl", 9002, []nostrtest.Option{tag("ttl", "-1")}, nil, "ttl must be a positive number of seconds, or empty for none"},
		{"a ttl beyond all", 9002, []nostrtest.Option{tag("ttl", "2147483648")}, nil, "ttl must be a positive number of seconds, or empty for none"},
		{"a subgroup", 9002, []nostrtest.Option{tag("name", "x"), tag("parent", "y")}, nil, "channels have no subgroups"},
		{"a deletion of the channel", 9008, nil, &policy.DeleteChannel{}, ""},

		{"put", 9000, []nostrtest.Option{p}, &policy.PutUser{Target: alice}, ""},
		{"put with a role", 9000, []nostrtest.Option{p, tag("role", "bot")}, &policy.PutUser{Target: alice, Role: policy.ChannelBot}, ""},
		{"put with a role as NIP-29 has it", 9000, []nostrtest.Option{tag("p", alice.String(), "admin")}, &policy.PutUser{Target: alice, Role: policy.ChannelAdmin}, ""},
		{"put with an odd role", 9000, []nostrtest.Option{p, tag("role", "king")}, nil, `invalid role: "king"`},
		{"put nobody", 9000, nil, nil, "missing or invalid p tag"},
		{"put two", 9000, []nostrtest.Option{p, p}, nil, "one p tag at a time"},
		{"remove", 9001, []nostrtest.Option{p}, &policy.RemoveUser{Target: alice}, ""},
		{"join", 9021, []nostrtest.Option{tag("code", "secret")}, &policy.JoinChannel{Code: "secret"}, ""},
		{"leave", 9022, nil, &policy.LeaveChannel{}, ""},
		{"delete", 9005, []nostrtest.Option{tag("e", nostr.ID{1}.String())}, &policy.DeleteEvent{Target: nostr.ID{1}}, ""},
		{"delete nothing", 9005, nil, nil, "deletion events must reference exactly one target via e tag"},
		{"delete what cannot be", 9005, []nostrtest.Option{tag("e", "x")}, nil, "missing or invalid e tag"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev := nostrtest.Event(t, "bob", append(c.opts, nostrtest.Kind(c.kind), nostrtest.Tag("h", "c"))...)
			got, v := policy.Check(submission("bob"), ev, limits, now)
			if c.msg != "" {
				require.Equal(t, c.msg, v.Message)
				require.Contains(t, []fault.Reason{fault.Invalid, fault.Unsupported}, v.Reason)
				return
			}
			require.Equal(t, policy.Verdict{}, v)
			require.Equal(t, c.want, got.Command.Asks)
			require.False(t, got.Whole(), "it holds its channel alone")
		})
	}
}

func TestAgentProfiles(t *testing.T) {
	for content, want := range map[string]string{
		`{}`: "", `{"channel_add_policy":"nobody"}`: "", `{"channel_add_policy":"owner_only","x":1}`: "",
		`{`:                                "kind:10100 content must be valid JSON",
		`{"channel_add_policy":"friends"}`: "channel_add_policy must be anyone, owner_only or nobody",
	} {
		_, v := policy.Check(submission("alice"), nostrtest.Event(t, "alice", nostrtest.Kind(10100), nostrtest.Content(content)), limits, now)
		require.Equal(t, want, v.Message, content)
	}
}

// To who may not see a channel, it does not exist, whatever is asked of it.
func TestHiddenChannelsDoNotExist(t *testing.T) {
	missing, hidden := policy.Group{}, policy.Group{Exists: true, Private: true, Archived: true, Type: policy.Stream, Owners: 1, Members: 1, Target: policy.ChannelOwner}
	alice := nostrtest.PubKey("alice")
	name := "name"
	for what, judge := range map[string]func(policy.Group) policy.Verdict{
		"edit":       (&policy.EditChannel{Name: &name}).Judge,
		"delete":     (&policy.DeleteChannel{}).Judge,
		"put":        func(g policy.Group) policy.Verdict { return (&policy.PutUser{}).Judge(g, false) },
		"add itself": func(g policy.Group) policy.Verdict { return (&policy.PutUser{}).Judge(g, true) },
		"remove":     func(g policy.Group) policy.Verdict { return (&policy.RemoveUser{}).Judge(g, false) },
		"leave":      (&policy.LeaveChannel{}).Judge,
		"join":       func(g policy.Group) policy.Verdict { return (&policy.JoinChannel{Code: "x"}).Judge(g, false) },
		"delete an event": func(g policy.Group) policy.Verdict {
			return (&policy.DeleteEvent{}).Judge(g, alice, &policy.Found{Author: alice, Kind: 9})
		},
	} {
		v := judge(hidden)
		require.False(t, v.Accepted(), what)
		require.Equal(t, judge(missing), v, what)
	}
}

// Whoever may not delete an event of a channel is not told why.
func TestWhatMayNotBeDeletedIsMissing(t *testing.T) {
	alice, bob := nostrtest.PubKey("alice"), nostrtest.PubKey("bob")
	record := func(author nostr.PubKey) *policy.Found { return &policy.Found{Author: author, Kind: nostr.KindPutUser} }
	for role, found := range map[policy.ChannelRole][]*policy.Found{
		"":                   {record(alice), record(bob), {Author: bob, Kind: 9}, {Author: bob, Kind: 4}},
		policy.ChannelMember: {record(alice), record(bob), {Author: bob, Kind: 9}, {Author: bob, Kind: 4}},
		policy.ChannelAdmin:  {record(alice), record(bob), {Author: bob, Kind: 4}},
		policy.ChannelOwner:  {record(alice), {Author: bob, Kind: nostr.KindGroupMetadata}, {Author: bob, Kind: 4, Owned: true}},
	} {
		g := policy.Group{Exists: true, Type: policy.Stream, Owners: 1, Members: 2, Actor: role}
		missing := (&policy.DeleteEvent{}).Judge(g, alice, nil)
		require.False(t, missing.Accepted())
		for _, f := range found {
			require.Equal(t, missing, (&policy.DeleteEvent{}).Judge(g, alice, f), "%s: %+v", role, f)
		}
	}
}
