package cluster_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// callAPI signs a POST of JSON to the gateway at url, and returns the answer's object.
func callAPI(t *testing.T, url, host, name, path, body string) (status int, answer map[string]any) {
	t.Helper()
	status, text := cluster.HTTP(t, http.MethodPost, url, host, path, http.Header{
		"Authorization": {cluster.Token(t, host, name, path, body)}, "Content-Type": {"application/json"},
	}, body)
	require.NoError(t, json.Unmarshal([]byte(text), &answer), text)
	return status, answer
}

// mint makes an invite code.
func mint(t *testing.T, url, host, name, wish string) string {
	t.Helper()
	status, answer := callAPI(t, url, host, name, "/api/invites", wish)
	require.Equal(t, http.StatusOK, status, answer)
	code, ok := answer["code"].(string)
	require.True(t, ok)
	require.Equal(t, "http://"+host+"/invite/"+code, answer["url"])
	return code
}

// invitation is an invite minted, a key that joins with it, reads and writes, and is removed again.
func invitation(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "invitation.example", who(t, "alice"))
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	roster := alice.Subscribe(nostr.Filter{Kinds: []nostr.Kind{nostr.KindRelayMembers}, Limit: new(0)})
	for path, body := range map[string]string{"/api/invites": `{"max_use":1}`, "/api/invites/claim": `{"max_use":1}`} {
		status, answer := callAPI(t, c.Gateway(0), host, who(t, "alice"), path, body)
		require.Equal(t, http.StatusBadRequest, status)
		require.Equal(t, `unknown field "max_use"`, answer["error"], "or it would be a code without a limit")
	}
	code := mint(t, c.Gateway(0), host, who(t, "alice"), `{"max_uses":1}`)

	// Whoever is no member may prove who it is, ask to join, and nothing else.
	bob := cluster.ConnectHost(t, c.Gateway(1), host, who(t, "bob"))
	require.True(t, bob.Authenticate("ws://"+host).OK)
	require.Equal(t, "restricted: not a relay member", bob.Publish(bob.Event()).Message)
	require.Equal(t, "restricted: not a relay member", bob.Refused(by(who(t, "alice"))))
	join := func(claim string) cluster.Verdict {
		return bob.Publish(bob.Event(nostrtest.Kind(nostr.KindRelayJoinRequest), nostrtest.Tag("-"), nostrtest.Tag("claim", claim)))
	}
	require.Equal(t, "restricted: that is an invalid invite code", join("garbage.code").Message)
	verdict := join(code)
	require.True(t, verdict.OK, verdict.Message)
	require.Equal(t, "info: welcome to this relay", verdict.Message)

	// The list that the relay signs says so, to those who listen as to those who ask.
	list := roster.Next()
	require.Equal(t, nostrtest.PubKey(cluster.RelayKey), list.PubKey)
	require.NoError(t, list.Verify())
	require.Contains(t, list.Tags, nostr.Tag{"-"})
	member := nostr.Tag{"member", nostrtest.PubKey(who(t, "bob")).String(), "member"}
	require.Contains(t, list.Tags, member)
	require.Equal(t, []*nostr.Event{list}, bob.Query(nostr.Filter{Kinds: []nostr.Kind{nostr.KindRelayMembers}}))

	s := bob.Subscribe(by(who(t, "alice")))
	note := alice.Accept(nostrtest.Content("welcome"))
	require.Equal(t, note, s.Next())
	own := bob.Accept(nostrtest.Content("hello"))
	require.Equal(t, []*nostr.Event{own}, alice.Query(by(who(t, "bob"))))

	// The code is used up, and bob may not invite others.
	status, answer := callAPI(t, c.Gateway(1), host, who(t, "carol"), "/api/invites/claim", `{"code":"`+code+`"}`)
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, "invite_exhausted", answer["error"])
	status, answer = callAPI(t, c.Gateway(1), host, who(t, "bob"), "/api/invites", `{}`)
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, "only relay owners and admins can create invites", answer["error"])

	// Once removed, bob is told, and gets nothing any more.
	require.True(t, alice.Publish(alice.Event(nostrtest.Kind(nostr.KindRelayRemoveMember), nostrtest.Tag("p", nostrtest.PubKey(who(t, "bob")).String()))).OK)
	require.NotContains(t, roster.Next().Tags, member)
	alice.Accept(nostrtest.Content("among us"))
	frame := s.NextFrame()
	require.Equal(t, wire.LabelClosed, frame.Label)
	require.Equal(t, "restricted: not a relay member", frame.Message)
	if verdict, err := bob.TryPublish(bob.Event()); err == nil {
		require.Regexp(t, "^restricted: ", verdict.Message)
	}
	if stored, err := bob.TryQuery(by(who(t, "alice"))); err == nil {
		require.Empty(t, stored)
	}
	for frame := range s.Rest() {
		require.NotEqual(t, wire.LabelEvent, frame.Label, "an event after the removal")
	}
}

// inviteRequests are invites that clients ask for by a subscription.
func inviteRequests(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "requests.example", who(t, "alice"))
	c.PutMember(t, host, who(t, "bob"))
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	bob := cluster.DialHost(t, c.Gateway(1), host, who(t, "bob"))
	invites := nostr.Filter{Kinds: []nostr.Kind{nostr.KindRelayInvite}}
	require.Empty(t, bob.Query(invites), "who may not invite gets none")
	made := alice.Query(invites)
	require.Len(t, made, 1)
	require.Equal(t, nostrtest.PubKey(cluster.RelayKey), made[0].PubKey)
	require.NoError(t, made[0].Verify())
	code, ok := made[0].Tags.First("claim")
	require.True(t, ok)
	carol := cluster.ConnectHost(t, c.Gateway(1), host, who(t, "carol"))
	require.True(t, carol.Authenticate("ws://"+host).OK)
	require.True(t, carol.Publish(carol.Event(nostrtest.Kind(nostr.KindRelayJoinRequest), nostrtest.Tag("claim", code))).OK)
	carol.Accept(nostrtest.Content("here I am"))

	// To leave ends it.
	leave := carol.Event(nostrtest.Kind(nostr.KindRelayLeaveRequest), nostrtest.Tag("-"))
	verdict := carol.Publish(leave)
	require.True(t, verdict.OK)
	require.Equal(t, "info: you have left this relay", verdict.Message)
	require.Regexp(t, "^restricted: ", carol.Publish(carol.Event(nostrtest.Content("one more"))).Message)

	// Nobody tries for ever.
	require.Eventually(t, func() bool {
		status, _ := callAPI(t, c.Gateway(1), host, who(t, "mallory"), "/api/invites/claim", `{"code":"guess"}`)
		return status == http.StatusTooManyRequests
	}, time.Minute, time.Millisecond)
}
