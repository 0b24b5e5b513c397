package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

func TestNothingWorksBeforeAuthentication(t *testing.T) {
	w := newWorld(t)
	c := w.dial(openHost)
	ev := nostrtest.Event(t, "alice")
	c.publish(ev)
	f := c.expect(wire.LabelOK)
	require.False(t, f.OK)
	require.Equal(t, ev.ID, f.EventID)
	require.Equal(t, "auth-required: not authenticated", f.Message)
	c.send(`["REQ","s",{}]`)
	f = c.expect(wire.LabelClosed)
	require.Equal(t, "s", f.SubID)
	require.Equal(t, "auth-required: not authenticated", f.Message)
	c.send(`["COUNT","n",{}]`)
	f = c.expect(wire.LabelClosed)
	require.Equal(t, "auth-required: not authenticated", f.Message)
	require.Empty(t, w.ingests[0].received())

	c.auth("alice")
	require.True(t, c.expect(wire.LabelOK).OK)
	c.publish(ev)
	require.True(t, c.expect(wire.LabelOK).OK)
}

func TestFailedAuthenticationIsFinal(t *testing.T) {
	w := newWorld(t)
	c := w.dial(openHost)
	bad := nostrtest.Auth(t, "alice", "another challenge", "ws://"+openHost, time.Now().Unix())
	c.send(string(wire.AppendClientAuth(nil, nostrtest.Raw(bad))))
	f := c.expect(wire.LabelOK)
	require.False(t, f.OK)
	require.Contains(t, f.Message, "auth-required: verification failed")
	c.auth("alice")
	f = c.expect(wire.LabelOK)
	require.False(t, f.OK)
	require.Equal(t, "auth-required: authentication already failed", f.Message)
}

func TestAuthenticationForAnotherRelayFails(t *testing.T) {
	w := newWorld(t)
	c := w.dial(openHost)
	bad := nostrtest.Auth(t, "alice", c.challenge, "ws://"+closedHost, time.Now().Unix())
	c.send(string(wire.AppendClientAuth(nil, nostrtest.Raw(bad))))
	require.False(t, c.expect(wire.LabelOK).OK)
}

func TestAuthenticationHasALimitedTime(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.AuthTimeout = 50 * time.Millisecond }))
	code, reason := w.dial(openHost).closed()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	require.Contains(t, reason, "auth-required")

	w = newWorld(t, with(func(c *gateway.Config) { c.AuthTimeout = time.Second }))
	c := w.login(openHost, "alice")
	late := time.NewTimer(1200 * time.Millisecond)
	defer late.Stop()
	<-late.C
	c.send(`["COUNT","n",{}]`)
	c.expect(wire.LabelCount)
}

func TestClosedCommunitiesAreForMembers(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.Revalidate = 20 * time.Millisecond }))
	member := nostrtest.PubKey("alice")
	w.search.set(func() { w.search.onAccess = func(k []byte) bool { return string(k) == string(member[:]) } })

	c := w.login(closedHost, "alice")
	w.search.set(func() { w.search.onAccess = nil }) // removed while connected
	code, reason := c.closed()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	require.Equal(t, "restricted: not a relay member", reason)
}

// Who is no member proves a key and asks to join (NIP-43); nothing else is possible before that was granted.
func TestGuestsMayJoinAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.search.set(func() { w.search.onAccess = func([]byte) bool { return false } })
	join := func(claim string) *nostr.Event {
		return nostrtest.Event(t, "bob", nostrtest.Kind(nostr.KindRelayJoinRequest), nostrtest.CreatedAt(time.Now().Unix()), nostrtest.Tag("claim", claim))
	}
	w.ingests[0].answer(func(s *ingestv1.Submission) *ingestv1.Verdict {
		if strings.Contains(string(s.GetRaw()), "good") {
			return &ingestv1.Verdict{Ref: s.GetRef(), Message: "info: welcome to this relay"}
		}
		return &ingestv1.Verdict{Ref: s.GetRef(), Reason: fault.Restricted, Message: "that is an invalid invite code"}
	})
	c := w.dial(closedHost)
	c.auth("bob")
	require.True(t, c.expect(wire.LabelOK).OK)
	const refusal = "restricted: not a relay member"
	c.send(`["REQ","s",{}]`)
	require.Equal(t, refusal, c.expect(wire.LabelClosed).Message)
	c.send(`["COUNT","n",{}]`)
	require.Equal(t, refusal, c.expect(wire.LabelClosed).Message)
	c.publish(nostrtest.Event(t, "bob"))
	require.Equal(t, refusal, c.expect(wire.LabelOK).Message)
	require.Empty(t, w.ingests[0].received())
	c.publish(join("bad"))
	require.Equal(t, "restricted: that is an invalid invite code", c.expect(wire.LabelOK).Message)
	c.send(`["REQ","s",{}]`)
	require.Equal(t, refusal, c.expect(wire.LabelClosed).Message)

	c.publish(join("good"))
	require.Equal(t, "info: welcome to this relay", c.expect(wire.LabelOK).Message)
	c.send(`["COUNT","n",{}]`)
	c.expect(wire.LabelCount)

	// Codes are not to be guessed.
	for range 8 {
		other := w.dial(closedHost)
		other.auth("bob")
		require.True(t, other.expect(wire.LabelOK).OK)
		other.publish(join("bad"))
		require.Contains(t, other.expect(wire.LabelOK).Message, "restricted: ")
	}
	last := w.dial(closedHost)
	last.auth("bob")
	require.True(t, last.expect(wire.LabelOK).OK)
	last.publish(join("bad"))
	require.Contains(t, last.expect(wire.LabelOK).Message, "rate-limited: ")
}

// A community that is closed while strangers are connected loses them, but not those with one good key.
func TestACommunityThatBecomesClosed(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.Revalidate = 20 * time.Millisecond }))
	member := nostrtest.PubKey("alice")
	everybody := func([]byte) bool { return true }
	w.search.set(func() { w.search.onAccess = everybody })
	stranger, both := w.login(openHost, "bob"), w.login(openHost, "bob", "alice")
	w.search.set(func() { w.search.onAccess = func(k []byte) bool { return string(k) == string(member[:]) } })
	code, _ := stranger.closed()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	both.send(`["COUNT","n",{}]`)
	both.expect(wire.LabelCount)

	w.search.set(func() { w.search.accessErr = fault.New(fault.Overloaded, "") })
	both.quiet() // unknown is not refused
}

func TestSearchDownIsNotTheClientsFailure(t *testing.T) {
	w := newWorld(t)
	w.search.set(func() {
		w.search.accessErr = fault.New(fault.Overloaded, "")
		w.search.onAccess = func([]byte) bool { return true }
	})
	c := w.dial(closedHost)
	c.auth("alice")
	f := c.expect(wire.LabelOK)
	require.False(t, f.OK)
	require.Contains(t, f.Message, "error: ")
	w.search.set(func() { w.search.accessErr = nil })
	c.auth("alice")
	require.True(t, c.expect(wire.LabelOK).OK)
}

func TestSeveralKeysOnOneConnection(t *testing.T) {
	w := newWorld(t)
	seen := make(chan *ingestv1.Submission, 1)
	w.ingests[0].answer(func(s *ingestv1.Submission) *ingestv1.Verdict {
		seen <- s
		return &ingestv1.Verdict{}
	})
	c := w.login(openHost, "alice", "bob", "alice")
	c.publish(nostrtest.Event(t, "bob"))
	c.expect(wire.LabelOK)
	alice, bob := nostrtest.PubKey("alice"), nostrtest.PubKey("bob")
	require.Equal(t, [][]byte{alice[:], bob[:]}, take(t, seen).GetPrincipal().GetPubkeys())

	for i := range 14 {
		c.auth("more" + string(rune('a'+i)))
		require.True(t, c.expect(wire.LabelOK).OK)
	}
	c.auth("one too many")
	f := c.expect(wire.LabelOK)
	require.False(t, f.OK)
	require.Equal(t, "restricted: too many keys on this connection", f.Message)
}
