package cluster_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

func crossModeration(t *testing.T, x *crossing) {
	t.Helper()
	report := x.bob[0].Accept(nostrtest.Kind(nostr.KindReport), against(x.name("alice")), nostrtest.Tag("e", x.same.ID.String(), "spam"))
	reports := func(side int) int {
		var answer struct{ Reports []any }
		require.Equal(t, http.StatusOK, get(t, x.c.Gateway(1), x.hosts[side], x.name("alice"), "/moderation/reports?status=open", &answer))
		return len(answer.Reports)
	}
	require.Equal(t, []int{1, 0}, []int{reports(0), reports(1)})
	filter := nostr.Filter{Kinds: []nostr.Kind{nostr.KindReport}}
	require.Equal(t, []*nostr.Event{report}, x.alice[0].Query(filter))
	require.Empty(t, x.alice[1].Query(filter))
	resolve := func(id nostr.ID) []nostrtest.Option {
		return []nostrtest.Option{
			nostrtest.Kind(nostr.KindResolveReport), nostrtest.Tag("report", id.String()), nostrtest.Tag("status", "resolved"), nostrtest.Tag("action", "dismiss"),
		}
	}
	missing := x.alice[1].Publish(x.alice[1].Event(resolve(nostr.ID{1})...))
	require.False(t, missing.OK)
	require.Equal(t, missing, x.alice[1].Publish(x.alice[1].Event(resolve(report.ID)...)))
	require.Equal(t, 1, reports(0))
	x.alice[0].Accept(resolve(report.ID)...)
	require.Zero(t, reports(0))
	audit := func(side int) int {
		var answer struct{ Actions []any }
		require.Equal(t, http.StatusOK, get(t, x.c.Gateway(0), x.hosts[side], x.name("alice"), "/moderation/audit", &answer))
		return len(answer.Actions)
	}
	require.NotZero(t, audit(0))
	require.Zero(t, audit(1))

	// Who moderates one community is nobody in the other.
	order(t, x.alice[0], nostr.KindRelayChangeRole, against(x.name("bob")), nostrtest.Tag("role", "admin"))
	for side, want := range []int{http.StatusOK, http.StatusForbidden} {
		status, answer := cluster.Manage(t, x.c.Gateway(0), x.hosts[side], x.name("bob"), "blockip", `["203.0.113.0/24"]`)
		require.Equal(t, want, status, answer)
	}
	for side, want := range []string{`{"result":[{"ip":"203.0.113.0/24"}]}`, `{"result":[]}`} {
		status, answer := cluster.Manage(t, x.c.Gateway(1), x.hosts[side], x.name("alice"), "listblockedips", `[]`)
		require.Equal(t, http.StatusOK, status, answer)
		require.JSONEq(t, want, answer)
	}
}

func crossBans(t *testing.T, x *crossing) {
	t.Helper()
	for _, tt := range []struct {
		name string
		ban  func(name string)
	}{
		{"erin", func(name string) { order(t, x.alice[0], nostr.KindBan, against(name)) }},
		{"frank", func(name string) {
			status, answer := cluster.Manage(t, x.c.Gateway(0), x.hosts[0], x.name("alice"), "banpubkey", `["`+nostrtest.PubKey(name).String()+`"]`)
			require.Equal(t, http.StatusOK, status, answer)
		}},
	} {
		victim := x.join(tt.name)
		heard := victim[1].Subscribe(by(x.name("alice")))
		tt.ban(x.name(tt.name))
		_, reason := victim[0].Ended()
		require.Equal(t, youAreBanned, reason)
		require.False(t, cluster.ConnectHost(t, x.c.Gateway(0), x.hosts[0], x.name(tt.name)).Authenticate("ws://"+x.hosts[0]).OK)
		victim[1].Accept(x.chat("no harm done")...)
		require.Equal(t, x.alice[1].Accept(nostrtest.Content("indeed, "+tt.name)), heard.Next())
	}
	banned := func(side int) string {
		status, answer := cluster.Manage(t, x.c.Gateway(1), x.hosts[side], x.name("alice"), "listbannedpubkeys", `[]`)
		require.Equal(t, http.StatusOK, status, answer)
		return answer
	}
	require.Contains(t, banned(0), nostrtest.PubKey(x.name("frank")).String())
	require.JSONEq(t, `{"result":[]}`, banned(1))
	// To lift here what was decided there changes nothing there.
	x.alice[1].Publish(x.alice[1].Event(nostrtest.Kind(nostr.KindUnban), against(x.name("erin"))))
	require.Contains(t, banned(0), nostrtest.PubKey(x.name("erin")).String())

	// Silence is of one side, too.
	grace := x.join("grace")
	order(t, x.alice[0], nostr.KindTimeout, against(x.name("grace")),
		nostrtest.Tag("expiration", strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)))
	require.False(t, grace[0].Publish(grace[0].Event()).OK)
	grace[1].Accept(nostrtest.Content("I speak"))
}

func crossInvites(t *testing.T, x *crossing) {
	t.Helper()
	code := mint(t, x.c.Gateway(0), x.hosts[0], x.name("alice"), `{}`)
	status, answer := claim(t, x.c.Gateway(1), x.hosts[1], x.name("heidi"), code)
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, map[string]any{"error": "invite_invalid"}, answer)
	ask := func(side int) cluster.Verdict {
		heidi := cluster.ConnectHost(t, x.c.Gateway(1), x.hosts[side], x.name("heidi"))
		require.True(t, heidi.Authenticate("ws://"+x.hosts[side]).OK)
		return heidi.Publish(heidi.Event(nostrtest.Kind(nostr.KindRelayJoinRequest), nostrtest.Tag("claim", code)))
	}
	require.False(t, ask(1).OK)
	require.True(t, ask(0).OK)
	require.False(t, ask(1).OK, "a member there is no member here")

	// Codes of channels.
	x.alice[0].Accept(nostrtest.Kind(nostr.KindCreateInvite), nostrtest.Channel(x.h), nostrtest.Tag("code", "open sesame"))
	x.c.PutMember(t, x.hosts[1], x.name("heidi"))
	for side, want := range []bool{true, false} {
		heidi := cluster.DialHost(t, x.c.Gateway(1), x.hosts[side], x.name("heidi"))
		verdict := heidi.Publish(heidi.Event(nostrtest.Kind(nostr.KindJoinRequest), nostrtest.Channel(x.h), nostrtest.Tag("code", "open sesame")))
		require.Equal(t, want, verdict.OK, verdict.Message)
		require.Equal(t, want, len(heidi.Query(x.messages())) > 0)
	}
}

func crossNames(t *testing.T, x *crossing) {
	t.Helper()
	// The same profile in both, which claims a name at one of them.
	x.both(x.bob, nostrtest.Kind(nostr.KindMetadata), nostrtest.Content(`{"nip05":"bob@`+x.hosts[0]+`"}`))
	// What comes later at the other is found, so that what came before would be.
	x.alice[1].Accept(nostrtest.Kind(nostr.KindMetadata), nostrtest.Content(`{"nip05":"alice@`+x.hosts[1]+`"}`))
	const nobody = `{"names":{},"relays":{}}`
	for side, name := range []string{"bob", "alice"} {
		require.Eventually(t, func() bool { return named(t, x.c.Gateway(0), x.hosts[side], name) != nobody }, time.Minute, 20*time.Millisecond)
		require.JSONEq(t, nobody, named(t, x.c.Gateway(1), x.hosts[1-side], name))
	}
}

func crossRosters(t *testing.T, x *crossing) {
	t.Helper()
	ivan := nostrtest.PubKey(x.name("ivan")).String()
	x.c.PutMember(t, x.hosts[0], x.name("ivan"))
	roster := func(side int) nostr.Tags {
		found := x.alice[side].Query(nostr.Filter{Kinds: []nostr.Kind{nostr.KindRelayMembers}})
		require.Len(t, found, 1)
		return found[0].Tags
	}
	member := nostr.Tag{"member", ivan, "member"}
	require.Contains(t, roster(0), member)
	require.NotContains(t, roster(1), member)
	stranger := cluster.ConnectHost(t, x.c.Gateway(1), x.hosts[1], x.name("ivan"))
	require.True(t, stranger.Authenticate("ws://"+x.hosts[1]).OK)
	require.Equal(t, "restricted: not a relay member", stranger.Refused(by(x.name("alice"))))
	require.Equal(t, "restricted: not a relay member", stranger.Publish(stranger.Event()).Message)
	friend := cluster.DialHost(t, x.c.Gateway(1), x.hosts[0], x.name("ivan"))
	require.Empty(t, friend.Query(x.messages()), "of the community, not of its channel")
	friend.Accept(nostrtest.Content("hello"))

	// Bob is removed from one and stays in the other.
	heard := x.bob[1].Subscribe(by(x.name("alice")))
	order(t, x.alice[0], nostr.KindRelayRemoveMember, against(x.name("bob")))
	_, reason := x.bob[0].Ended()
	require.Equal(t, "restricted: not a relay member", reason)
	require.Equal(t, x.alice[1].Accept(nostrtest.Content("bob?")), heard.Next())
	x.bob[1].Accept(nostrtest.Content("here"))
}
