package gateway_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

// control is the bus as the gateway hears it.
type control struct {
	messages chan bus.Msg
	lost     chan struct{}
}

// controlled has a gateway that only hears of revocations, and checks nothing by itself.
func controlled() (*control, option) {
	c := &control{messages: make(chan bus.Msg), lost: make(chan struct{})}
	return c, func(w *world, cfg *gateway.Config) { w.control, cfg.Revalidate = c, 0 }
}

// Listen implements gateway.Control.
func (c *control) Listen(ctx context.Context, pattern string, handle func(context.Context, bus.Msg), resync func(context.Context)) error {
	if pattern != subject.AllControl {
		return context.Canceled
	}
	for {
		select {
		case m := <-c.messages:
			handle(ctx, m)
		case <-c.lost:
			resync(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *control) revoke(t *testing.T, community int64, r *busv1.Revocation) {
	t.Helper()
	data, err := proto.Marshal(r)
	require.NoError(t, err)
	c.messages <- bus.Msg{Subject: subject.Control(community), Data: data}
}

// handled returns when the gateway is done with all messages before.
func (c *control) handled(community int64) {
	c.messages <- bus.Msg{Subject: subject.Control(community), Data: []byte("nonsense")}
}

func alive(c *client) {
	c.send(`["COUNT","alive",{}]`)
	for c.next().Label != wire.LabelCount { // what was on its way comes first
	}
}

// TestRevocations has messages about keys: they close the sockets of those keys in that community, if search agrees.
func TestRevocations(t *testing.T) {
	c, option := controlled()
	w := newWorld(t, option)
	w.search.set(func() { w.search.onAccess = func([]byte) bool { return true } })
	alice, bob := nostrtest.PubKey("alice"), nostrtest.PubKey("bob")
	banned, twice, both := w.login(openHost, "bob"), w.login(openHost, "bob"), w.login(openHost, "bob", "alice")
	other, elsewhere := w.login(openHost, "alice"), w.login(closedHost, "bob")
	banned.send(`["REQ","s",{"#h":["lobby"]}]`)
	banned.expect(wire.LabelEOSE)
	message := &busv1.Revocation{Target: &busv1.Revocation_Pubkey{Pubkey: bob[:]}, AclVersion: 7}

	c.revoke(t, openCommunity, message) // of a ban that was lifted meanwhile
	c.handled(openCommunity)
	alive(banned)

	w.search.set(func() { w.search.onAccess = func(k []byte) bool { return string(k) != string(bob[:]) } })
	c.revoke(t, openCommunity, &busv1.Revocation{Target: &busv1.Revocation_Pubkey{Pubkey: alice[:]}, AclVersion: 7})
	c.handled(openCommunity)
	alive(banned) // nobody has said anything about bob
	c.revoke(t, openCommunity, message)
	f := banned.expect(wire.LabelClosed)
	require.Equal(t, "s", f.SubID)
	require.Equal(t, "blocked: you are banned from this community", f.Message)
	require.Equal(t, f.Message, banned.expect(wire.LabelNotice).Message)
	code, reason := banned.closed()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	require.Equal(t, "blocked: you are banned from this community", reason)
	code, _ = twice.closed()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	w.search.set(func() { require.EqualValues(t, 7, w.search.leastVersion, "a replica that is behind must not answer") })
	for _, c := range []*client{both, other, elsewhere} {
		alive(c)
	}

	// A banned key is told at once, and cannot stay.
	again := w.dial(openHost)
	again.auth("bob")
	require.Equal(t, "blocked: you are banned from this community", again.expect(wire.LabelOK).Message)
	code, _ = again.closed()
	require.Equal(t, websocket.StatusPolicyViolation, code)
}

// TestArchivedCommunities closes everybody's sockets, also of who has no key yet, if search agrees, and has the host asked
// about again at once.
func TestArchivedCommunities(t *testing.T) {
	c, option := controlled()
	w := newWorld(t, option, with(func(c *gateway.Config) { c.HostTTL = 5 * time.Second }))
	w.search.set(func() { w.search.onAccess = func([]byte) bool { return true } })
	member, stranger, elsewhere := w.login(openHost, "bob"), w.dial(openHost), w.login(closedHost, "bob")
	member.send(`["REQ","s",{"#h":["lobby"]}]`)
	member.expect(wire.LabelEOSE)
	message := &busv1.Revocation{Target: &busv1.Revocation_Community{Community: true}, AclVersion: 7}
	c.revoke(t, openCommunity, message) // of one that was taken back meanwhile
	c.handled(openCommunity)
	alive(member)
	w.search.set(func() {
		w.search.gone = map[int64]bool{openCommunity: true}
		delete(w.search.hosts, openHost)
	})
	c.revoke(t, closedCommunity, message)
	c.handled(closedCommunity)
	alive(elsewhere)
	c.revoke(t, openCommunity, message)
	require.Equal(t, "error: this community is not served any more", member.expect(wire.LabelClosed).Message)
	for _, c := range []*client{member, stranger} {
		code, reason := c.closed()
		require.Equal(t, websocket.StatusPolicyViolation, code)
		require.Equal(t, "error: this community is not served any more", reason)
	}
	w.search.set(func() { require.EqualValues(t, 7, w.search.leastVersion, "a replica that is behind must not answer") })
	status, _, _ := w.request(http.MethodGet, openHost, "/", nil)
	require.Equal(t, http.StatusNotFound, status)

	// Where the message was lost, it is found out when everybody is checked.
	again := w.dial(closedHost)
	w.search.set(func() { w.search.gone[closedCommunity] = true })
	c.lost <- struct{}{}
	for _, c := range []*client{elsewhere, again} {
		code, _ := c.closed()
		require.Equal(t, websocket.StatusPolicyViolation, code)
	}
}

// TestLostRevocations has everybody checked when messages may have been lost, without waiting for the clock.
func TestLostRevocations(t *testing.T) {
	c, option := controlled()
	w := newWorld(t, option, with(func(c *gateway.Config) { c.HostTTL = time.Nanosecond }))
	w.search.set(func() { w.search.onAccess = func([]byte) bool { return true } })
	bob := nostrtest.PubKey("bob")
	banned, stranger, other := w.login(openHost, "bob"), w.dial(openHost), w.login(closedHost, "alice")
	w.search.set(func() {
		w.search.onAccess = func(k []byte) bool { return string(k) != string(bob[:]) }
		w.search.hosts[closedHost].BlockedNetworks = []string{"127.0.0.0/8", "::1/128"}
	})
	c.lost <- struct{}{}
	code, _ := banned.closed()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	_, reason := other.closed()
	require.Equal(t, "blocked: your network is blocked by this community", reason)
	stranger.auth("carol")
	require.True(t, stranger.expect(wire.LabelOK).OK)
}

// TestBlockedNetworksLoseTheirSockets closes those of who has authenticated as of who has not.
func TestBlockedNetworksLoseTheirSockets(t *testing.T) {
	c, option := controlled()
	w := newWorld(t, option)
	w.search.set(func() { w.search.onAccess = func([]byte) bool { return true } })
	one, stranger, elsewhere := w.login(openHost, "bob"), w.dial(openHost), w.login(closedHost, "bob")
	c.revoke(t, openCommunity, &busv1.Revocation{Target: &busv1.Revocation_Network{Network: "192.0.2.0/24"}})
	c.revoke(t, openCommunity, &busv1.Revocation{Target: &busv1.Revocation_Network{Network: "everywhere"}})
	c.handled(openCommunity)
	alive(one)
	for _, network := range []string{"127.0.0.0/8", "::1/128"} {
		c.revoke(t, openCommunity, &busv1.Revocation{Target: &busv1.Revocation_Network{Network: network}})
	}
	for _, c := range []*client{one, stranger} {
		code, reason := c.closed()
		require.Equal(t, websocket.StatusPolicyViolation, code)
		require.Equal(t, "blocked: your network is blocked by this community", reason)
	}
	alive(elsewhere)
}

// TestWhoIsBannedIsGoneAtOnce has a client that does not go when it is told to: nobody sees its key there meanwhile.
func TestWhoIsBannedIsGoneAtOnce(t *testing.T) {
	c, option := controlled()
	w := newWorld(t, option)
	w.search.set(func() { w.search.onAccess = func([]byte) bool { return true } })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, "ws://"+w.addr, &websocket.DialOptions{Host: openHost})
	if resp != nil && resp.Body != nil {
		defer resp.Body.Close()
	}
	require.NoError(t, err)
	defer ws.CloseNow()
	read := func() wire.RelayFrame {
		_, b, err := ws.Read(ctx)
		require.NoError(t, err)
		f, err := wire.DecodeRelay(b)
		require.NoError(t, err)
		return f
	}
	ev := nostrtest.Auth(t, "bob", read().Message, "ws://"+openHost+"/", time.Now().Unix())
	require.NoError(t, ws.Write(ctx, websocket.MessageText, wire.AppendClientAuth(nil, nostrtest.Raw(ev))))
	require.True(t, read().OK)
	bob := nostrtest.PubKey("bob")
	require.False(t, take(t, w.roster.sessions).GetGone())

	w.search.set(func() { w.search.onAccess = func([]byte) bool { return false } })
	told := time.Now()
	c.revoke(t, openCommunity, &busv1.Revocation{Target: &busv1.Revocation_Pubkey{Pubkey: bob[:]}, AclVersion: 7})
	gone := take(t, w.roster.sessions)
	require.True(t, gone.GetGone())
	require.Equal(t, bob[:], gone.GetPubkey())
	require.Less(t, time.Since(told), 4*time.Second, "the closing handshake takes 5")
}
