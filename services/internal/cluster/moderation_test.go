package cluster_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

const youAreBanned = "blocked: you are banned from this community"

// against is the p tag of a nostrtest key.
func against(name string) nostrtest.Option {
	return nostrtest.Tag("p", nostrtest.PubKey(name).String())
}

// order publishes a command that must be accepted.
func order(t *testing.T, c *cluster.Client, kind nostr.Kind, opts ...nostrtest.Option) {
	t.Helper()
	verdict := c.Publish(c.Event(append(opts, nostrtest.Kind(kind))...))
	require.True(t, verdict.OK, verdict.Message)
}

// revoked requires that the relay closes a connection for a reason, after it has closed its subscription.
func revoked(t *testing.T, c *cluster.Client, s *cluster.Sub, why string) {
	t.Helper()
	frame := s.NextFrame()
	require.Equal(t, wire.LabelClosed, frame.Label)
	require.Equal(t, why, frame.Message)
	code, reason := c.Ended()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	require.Equal(t, why, reason)
}

// get is a GET of a list for moderators.
func get(t *testing.T, url, host, name, path string, answer any) int {
	t.Helper()
	status, text := cluster.Get(t, url, host, name, path)
	require.NoError(t, json.Unmarshal([]byte(text), answer), text)
	return status
}

// bans are by command and by NIP-86: both close what is open on every gateway, long before gateways would ask again.
func bans(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "bans.example", who(t, "alice"))
	for _, name := range []string{"bob", "carol"} {
		c.PutMember(t, host, who(t, name))
	}
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	carol := cluster.DialHost(t, c.Gateway(1), host, who(t, "carol"))
	open := func() (clients []*cluster.Client, subs []*cluster.Sub) {
		for i := range 2 {
			bob := cluster.DialHost(t, c.Gateway(i), host, who(t, "bob"))
			clients, subs = append(clients, bob), append(subs, bob.Subscribe(by(who(t, "alice"))))
		}
		return clients, subs
	}
	clients, subs := open()
	order(t, alice, nostr.KindBan, against(who(t, "bob")), nostrtest.Tag("reason", "rude"))
	for i := range clients {
		revoked(t, clients[i], subs[i], youAreBanned)
	}
	again := cluster.ConnectHost(t, c.Gateway(1), host, who(t, "bob"))
	verdict := again.Authenticate("ws://" + host)
	require.False(t, verdict.OK)
	require.Equal(t, youAreBanned, verdict.Message)
	code, _ := again.Ended()
	require.Equal(t, websocket.StatusPolicyViolation, code)

	// Membership does not lift a ban. The management API's allowpubkey means both.
	verdict = alice.Publish(alice.Event(nostrtest.Kind(nostr.KindRelayAddMember), against(who(t, "bob"))))
	require.Equal(t, "invalid: target is banned: lift the ban first", verdict.Message)
	target := `["` + nostrtest.PubKey(who(t, "bob")).String() + `"]`
	status, answer := cluster.Manage(t, c.Gateway(0), host, who(t, "alice"), "allowpubkey", target)
	require.Equal(t, http.StatusOK, status, answer)
	clients, subs = open()
	require.Equal(t, "restricted: moderator access required", carol.Publish(carol.Event(nostrtest.Kind(nostr.KindBan), against(who(t, "bob")))).Message)
	status, answer = cluster.Manage(t, c.Gateway(1), host, who(t, "alice"), "banpubkey", target)
	require.Equal(t, http.StatusOK, status, answer)
	for i := range clients {
		revoked(t, clients[i], subs[i], youAreBanned)
	}
	carol.Accept(nostrtest.Content("still here"))
}

// removals are by command and by the operator.
func removals(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "removals.example", who(t, "alice"))
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	for _, remove := range []func(){
		func() { order(t, alice, nostr.KindRelayRemoveMember, against(who(t, "bob"))) },
		func() { c.RemoveMember(t, host, who(t, "bob")) },
	} {
		c.PutMember(t, host, who(t, "bob"))
		var clients []*cluster.Client
		var subs []*cluster.Sub
		for i := range 2 {
			bob := cluster.DialHost(t, c.Gateway(i), host, who(t, "bob"))
			clients, subs = append(clients, bob), append(subs, bob.Subscribe(by(who(t, "alice"))))
		}
		remove()
		for i := range clients {
			revoked(t, clients[i], subs[i], "restricted: not a relay member")
		}
	}
}

// lostHosts takes a host from its community, and wants the sockets closed that were opened by it, and no others.
func lostHosts(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "hosts.example", who(t, "alice"))
	alias := "alias." + host
	c.PutHost(t, host, alias)
	var clients []*cluster.Client
	var subs []*cluster.Sub
	for i := range 2 {
		one := cluster.DialHost(t, c.Gateway(i), alias, who(t, "alice"))
		clients, subs = append(clients, one), append(subs, one.Subscribe(by(who(t, "alice"))))
	}
	stays := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	c.RemoveHost(t, host, alias)
	for i := range clients {
		revoked(t, clients[i], subs[i], "error: this community is not served any more")
	}
	stays.Accept(nostrtest.Content("here"))
}

// timeouts let read, and report, and end by themselves.
func timeouts(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "timeouts.example", who(t, "alice"))
	c.PutMember(t, host, who(t, "bob"))
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	bob := cluster.DialHost(t, c.Gateway(1), host, who(t, "bob"))
	s := bob.Subscribe(by(who(t, "alice")))
	until := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	order(t, alice, nostr.KindTimeout, against(who(t, "bob")), nostrtest.Tag("expiration", until))
	refused := bob.Publish(bob.Event())
	require.False(t, refused.OK)
	require.Equal(t, "restricted: you are timed out until "+until, refused.Message)
	typing := bob.Publish(bob.Event(nostrtest.Kind(nostr.KindPresence), nostrtest.Content("online")))
	require.Equal(t, refused.Message, typing.Message)
	note := alice.Accept(nostrtest.Content("quiet, please"))
	require.Equal(t, note, s.Next())
	bob.Accept(nostrtest.Kind(nostr.KindReport), against(who(t, "alice")), nostrtest.Content("unfair"))

	// The last decision stands: it is over in a moment.
	soon := time.Now().Add(2 * time.Second)
	order(t, alice, nostr.KindTimeout, against(who(t, "bob")), nostrtest.Tag("expiration", strconv.FormatInt(soon.Unix(), 10)))
	require.Eventually(t, func() bool { return bob.Publish(bob.Event(nostrtest.Content(time.Now().String()))).OK }, // nobody tells that it is over
		20*time.Second, 100*time.Millisecond)
	order(t, alice, nostr.KindTimeout, against(who(t, "bob")), nostrtest.Tag("expiration", until), nostrtest.Tag("reason", "again"))
	require.False(t, bob.Publish(bob.Event()).OK)
	order(t, alice, nostr.KindUntimeout, against(who(t, "bob")))
	bob.Accept(nostrtest.Content("better"))
}

// reports are listed over HTTP, decided by command, and what was decided is in the log.
func reports(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "reports.example", who(t, "alice"))
	for _, name := range []string{"bob", "carol"} {
		c.PutMember(t, host, who(t, name))
	}
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	bob := cluster.DialHost(t, c.Gateway(1), host, who(t, "bob"))
	carol := cluster.DialHost(t, c.Gateway(1), host, who(t, "carol"))
	bad := bob.Accept(nostrtest.Content("bad"))
	first := carol.Accept(nostrtest.Kind(nostr.KindReport), against(who(t, "bob")), nostrtest.Tag("e", bad.ID.String(), "spam"))
	second := carol.Accept(nostrtest.Kind(nostr.KindReport), against(who(t, "alice")), nostrtest.Content("bossy"), nostrtest.Tag("h", "nowhere"))

	var refused struct{ Error string }
	for _, path := range []string{"/moderation/reports", "/moderation/audit", "/moderation/restricted"} {
		require.Equal(t, http.StatusForbidden, get(t, c.Gateway(0), host, who(t, "carol"), path, &refused))
		require.Equal(t, "restricted: moderator access required", refused.Error)
		require.Equal(t, http.StatusBadRequest, get(t, c.Gateway(0), host, who(t, "alice"), path+"?limit=501", &refused))
		require.Equal(t, "limit must be 1 to 500", refused.Error)
	}
	list := func(query string) (statuses map[string]string) {
		var answer struct {
			Reports []struct {
				Event          struct{ ID string }
				Status, Action string
			}
		}
		require.Equal(t, http.StatusOK, get(t, c.Gateway(1), host, who(t, "alice"), "/moderation/reports"+query, &answer))
		statuses = map[string]string{}
		for _, r := range answer.Reports {
			statuses[r.Event.ID] = r.Status + " " + r.Action
		}
		return statuses
	}
	require.Equal(t, map[string]string{first.ID.String(): "open ", second.ID.String(): "open "}, list(""))
	require.Len(t, list("?limit=1&status=open"), 1)
	require.Empty(t, list("?status=resolved"))

	s := bob.Subscribe(by(who(t, "alice")))
	order(t, alice, nostr.KindResolveReport, nostrtest.Tag("report", first.ID.String()),
		nostrtest.Tag("status", "resolved"), nostrtest.Tag("action", "ban"), nostrtest.Tag("reason", "spam"))
	revoked(t, bob, s, youAreBanned)
	order(t, alice, nostr.KindResolveReport, nostrtest.Tag("report", second.ID.String()),
		nostrtest.Tag("status", "dismissed"), nostrtest.Tag("action", "dismiss"))
	require.Empty(t, list("?status=open"))
	require.Equal(t, map[string]string{first.ID.String(): "resolved ban", second.ID.String(): "dismissed dismiss"}, list(""))

	// A decision is about what there was to report: who edits it later, or whoever reports it later, is not covered.
	third := carol.Accept(nostrtest.Kind(nostr.KindReport), against(who(t, "bob")), nostrtest.Tag("e", bad.ID.String(), "illegal"), nostrtest.CreatedAt(time.Now().Unix()+60))
	require.Equal(t, map[string]string{third.ID.String(): "open "}, list("?status=open"))
	order(t, alice, nostr.KindResolveReport, nostrtest.Tag("report", third.ID.String()),
		nostrtest.Tag("status", "dismissed"), nostrtest.Tag("action", "dismiss"))
	require.Empty(t, list("?status=open"))

	var restricted struct{ Restricted []map[string]any }
	require.Equal(t, http.StatusOK, get(t, c.Gateway(0), host, who(t, "alice"), "/moderation/restricted", &restricted))
	require.Len(t, restricted.Restricted, 1)
	require.Equal(t, nostrtest.PubKey(who(t, "bob")).String(), restricted.Restricted[0]["pubkey"])
	require.Equal(t, "ban", restricted.Restricted[0]["restriction"])
	require.Equal(t, "spam", restricted.Restricted[0]["reason"])
	var audit struct{ Actions []map[string]any }
	require.Equal(t, http.StatusOK, get(t, c.Gateway(0), host, who(t, "alice"), "/moderation/audit?limit=10", &audit))
	require.Len(t, audit.Actions, 3)
	require.Equal(t, "dismiss", audit.Actions[0]["action"])
	require.Equal(t, "ban", audit.Actions[2]["action"])
	require.Equal(t, first.ID.String(), audit.Actions[2]["report_id"])
	require.Equal(t, nostrtest.PubKey(who(t, "alice")).String(), audit.Actions[2]["actor"])

	// So are changes of the roster by command.
	order(t, alice, nostr.KindRelayRemoveMember, against(who(t, "carol")))
	require.Equal(t, http.StatusOK, get(t, c.Gateway(1), host, who(t, "alice"), "/moderation/audit?limit=1", &audit))
	require.Equal(t, "kick", audit.Actions[0]["action"])
	require.Equal(t, nostrtest.PubKey(who(t, "carol")).String(), audit.Actions[0]["pubkey"])
	require.NotEmpty(t, audit.Actions[0]["command_id"])
}

// TestABanWhileNATSIsAway is told to nobody; when NATS is back, every gateway looks by itself.
func TestABanWhileNATSIsAway(t *testing.T) {
	c := cluster.New(t, cluster.Gateways(2))
	host := c.CreateCommunity(t, "away.example", who(t, "alice"))
	c.PutMember(t, host, who(t, "bob"))
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	var clients []*cluster.Client
	for i := range 2 {
		clients = append(clients, cluster.DialHost(t, c.Gateway(i), host, who(t, "bob")))
	}
	c.NATS().Stop(t)
	order(t, alice, nostr.KindBan, against(who(t, "bob")))
	require.Equal(t, youAreBanned, clients[0].Publish(clients[0].Event()).Message, "it holds all the same")
	c.NATS().Restart(t)
	for _, bob := range clients {
		code, reason := bob.Ended()
		require.Equal(t, websocket.StatusPolicyViolation, code)
		require.Equal(t, youAreBanned, reason)
	}
	alice.Accept(nostrtest.Content("still here"))
}
