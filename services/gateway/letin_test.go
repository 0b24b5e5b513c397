package gateway_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

func without(keys ...string) func([]byte) bool {
	refused := make(map[string]bool, len(keys))
	for _, name := range keys {
		key := nostrtest.PubKey(name)
		refused[string(key[:])] = true
	}
	return func(k []byte) bool { return !refused[string(k)] }
}

// TestABanWhileAKeyIsLetIn has the message about a ban, or the loss of messages, between the answer that the key may come in
// and its entry: its socket is closed all the same, and nobody asks again by the clock.
func TestABanWhileAKeyIsLetIn(t *testing.T) {
	bob := nostrtest.PubKey("bob")
	for name, hear := range map[string]func(*testing.T, *control){
		"told": func(t *testing.T, c *control) {
			t.Helper()
			c.revoke(t, openCommunity, &busv1.Revocation{Target: &busv1.Revocation_Pubkey{Pubkey: bob[:]}, AclVersion: 7})
			c.handled(openCommunity)
		},
		"lost": func(_ *testing.T, c *control) {
			c.lost <- struct{}{}
			c.handled(openCommunity)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, option := controlled()
			w := newWorld(t, option)
			w.search.set(func() {
				w.search.onAccess = without()
				w.search.onDecided = func() {
					w.search.set(func() { w.search.onAccess, w.search.onDecided = without("bob"), nil })
					hear(t, c)
				}
			})
			banned := w.dial(openHost)
			banned.auth("bob")
			require.True(t, banned.expect(wire.LabelOK).OK)
			code, reason := banned.closed()
			require.Equal(t, websocket.StatusPolicyViolation, code)
			require.Equal(t, "blocked: you are banned from this community", reason)
			if name == "told" {
				w.search.set(func() { require.EqualValues(t, 7, w.search.leastVersion, "a replica that is behind must not answer") })
			}
		})
	}
}

// A message about somebody else makes nobody leave who is let in meanwhile.
func TestOthersAreLetInMeanwhile(t *testing.T) {
	c, option := controlled()
	w := newWorld(t, option)
	bob := nostrtest.PubKey("bob")
	w.search.set(func() {
		w.search.onAccess = without("bob")
		w.search.onDecided = func() {
			w.search.set(func() { w.search.onDecided = nil })
			c.revoke(t, openCommunity, &busv1.Revocation{Target: &busv1.Revocation_Pubkey{Pubkey: bob[:]}, AclVersion: 7})
			c.handled(openCommunity)
		}
	})
	alive(w.login(openHost, "alice"))
}

// TestAGuestThatIsRemovedWhileItJoins is told between the answer that it has joined and what the gateway makes of it.
func TestAGuestThatIsRemovedWhileItJoins(t *testing.T) {
	c, option := controlled()
	w := newWorld(t, option)
	bob := nostrtest.PubKey("bob")
	w.search.set(func() { w.search.onAccess = without("bob") })
	w.ingests[0].answer(func(s *ingestv1.Submission) *ingestv1.Verdict {
		c.revoke(t, closedCommunity, &busv1.Revocation{Target: &busv1.Revocation_Pubkey{Pubkey: bob[:]}, AclVersion: 7})
		c.handled(closedCommunity)
		return &ingestv1.Verdict{Ref: s.GetRef()}
	})
	guest := w.login(closedHost, "bob")
	guest.publish(nostrtest.Event(t, "bob", nostrtest.Kind(nostr.KindRelayJoinRequest), nostrtest.CreatedAt(time.Now().Unix()), nostrtest.Tag("claim", "x")))
	require.True(t, guest.expect(wire.LabelOK).OK)
	code, reason := guest.closed()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	require.Equal(t, "restricted: not a relay member", reason)
}

const aliasHost = "alias.example"

// aliased gives the open community another host.
func aliased(w *world) {
	w.search.set(func() {
		open := w.search.hosts[openHost]
		open.Hosts = []string{openHost, aliasHost}
		w.search.hosts[aliasHost] = open
	})
}

var changed = &busv1.Revocation{Target: &busv1.Revocation_Community{Community: true}, AclVersion: 7}

// TestAHostThatIsTakenAway closes the sockets that were opened by it, and no others, when that is told, or when everybody is
// checked. Who is connected by another host authenticates for it no more: what is signed for it may be for its new owner.
func TestAHostThatIsTakenAway(t *testing.T) {
	for name, hear := range map[string]func(*testing.T, *control){
		"told": func(t *testing.T, c *control) {
			t.Helper()
			c.revoke(t, openCommunity, changed)
		},
		"lost": func(_ *testing.T, c *control) { c.lost <- struct{}{} },
	} {
		t.Run(name, func(t *testing.T) {
			c, option := controlled()
			w := newWorld(t, option, with(func(c *gateway.Config) { c.HostTTL = 5 * time.Second }))
			aliased(w)
			member, stranger, stays := w.login(aliasHost, "bob"), w.dial(aliasHost), w.login(openHost, "bob")
			named := func(one *client) bool {
				one.host = aliasHost
				one.auth("carol")
				return one.expect(wire.LabelOK).OK
			}
			require.True(t, named(w.dial(openHost)))
			late := w.dial(openHost)
			w.search.set(func() {
				delete(w.search.hosts, aliasHost)
				w.search.hosts[openHost].Hosts = []string{openHost}
			})
			hear(t, c)
			for _, one := range []*client{member, stranger} {
				code, reason := one.closed()
				require.Equal(t, websocket.StatusPolicyViolation, code)
				require.Equal(t, "error: this community is not served any more", reason)
			}
			alive(stays)
			c.handled(openCommunity)
			require.False(t, named(late))
			status, _, _ := w.request(http.MethodGet, aliasHost, "/", nil)
			require.Equal(t, http.StatusNotFound, status)
		})
	}
}

// TestAReplicaThatIsBehindLetsNobodyIn still sees the host with the community that has lost it, or the community as it was before it
// was archived: those who are connected by it go, and nobody comes in.
func TestAReplicaThatIsBehindLetsNobodyIn(t *testing.T) {
	c, option := controlled()
	w := newWorld(t, option, with(func(c *gateway.Config) { c.HostTTL = 5 * time.Second }))
	aliased(w)
	member, stays := w.login(aliasHost, "bob"), w.login(openHost, "bob")
	w.search.set(func() {
		w.search.behind = map[string]*searchv1.ResolveCommunityResponse{aliasHost: proto.CloneOf(w.search.hosts[aliasHost])}
		delete(w.search.hosts, aliasHost)
	})
	c.revoke(t, openCommunity, changed)
	_, reason := member.closed()
	require.Equal(t, "error: this community is not served any more", reason)
	alive(stays)
	status, _, _ := w.request(http.MethodGet, aliasHost, "/", nil)
	require.Equal(t, http.StatusNotFound, status)
}

// A host that has become another community's is not the one that its sockets were opened by.
func TestAHostThatIsGivenToOthers(t *testing.T) {
	c, option := controlled()
	w := newWorld(t, option, with(func(c *gateway.Config) { c.HostTTL = 5 * time.Second }))
	aliased(w)
	one := w.login(aliasHost, "bob")
	w.search.set(func() {
		w.search.hosts[aliasHost] = &searchv1.ResolveCommunityResponse{Community: closedCommunity, Hosts: []string{aliasHost}, Closed: true}
	})
	c.revoke(t, openCommunity, changed)
	code, _ := one.closed()
	require.Equal(t, websocket.StatusPolicyViolation, code)
}

// TestAHostThatIsTakenWhileSomebodyConnects is told between the answer whose host it is and the connection: the answer is either seen to
// be older, or was given by a database that has lost what was told, and then it opens a socket that is closed at once.
func TestAHostThatIsTakenWhileSomebodyConnects(t *testing.T) {
	for name, version := range map[string]uint64{"older": changed.GetAclVersion() - 1, "not older": changed.GetAclVersion()} {
		t.Run(name, func(t *testing.T) {
			c, option := controlled()
			w := newWorld(t, option, with(func(c *gateway.Config) { c.HostTTL = 5 * time.Second }))
			aliased(w)
			w.search.set(func() {
				w.search.hosts[aliasHost].AclVersion = version
				w.search.onResolved = func() {
					w.search.set(func() {
						w.search.onResolved = nil
						delete(w.search.hosts, aliasHost)
					})
					c.revoke(t, openCommunity, changed)
					c.handled(openCommunity)
				}
			})
			if version < changed.GetAclVersion() {
				status, _, _ := w.request(http.MethodGet, aliasHost, "/", nil)
				require.Equal(t, http.StatusNotFound, status, "nobody is let in")
			} else {
				_, reason := w.dial(aliasHost).closed()
				require.Equal(t, "error: this community is not served any more", reason)
			}
			status, _, _ := w.request(http.MethodGet, aliasHost, "/", nil)
			require.Equal(t, http.StatusNotFound, status, "the late answer is not remembered")
		})
	}
}
