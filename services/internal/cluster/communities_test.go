package cluster_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// operate calls the operators' API, which must answer with a status, and returns the answer.
func operate(t *testing.T, c *cluster.Cluster, gateway, status int, method, path, body string) map[string]any {
	t.Helper()
	got, text := cluster.Operate(t, c.Gateway(gateway), method, "/operator/communities"+path, body)
	require.Equal(t, status, got, text)
	var answer map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &answer), text)
	return answer
}

// hexOf is the public key of a name that no other case uses.
func hexOf(t *testing.T, name string) string {
	t.Helper()
	return nostrtest.PubKey(who(t, name)).String()
}

// plain makes a request without a signature.
func plain(t *testing.T, url, host, path string, accept ...string) (int, string) {
	t.Helper()
	return cluster.HTTP(t, http.MethodGet, url, host, path, http.Header{"Accept": accept}, "")
}

func unmappedHost(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "mapped.example", who(t, "alice"))
	const unmapped = "unmapped.example"
	want := ""
	for _, path := range []string{"/", "/query", "/invite/x", "/.well-known/nostr.json?name=alice", "/moderation/audit", "/operator/communities"} {
		status, body := plain(t, c.Gateway(0), unmapped, path)
		require.Equal(t, http.StatusNotFound, status, path)
		require.NotContains(t, body, unmapped)
		if want == "" {
			want = body
		}
		require.Equal(t, want, body, path)
		if path == "/" {
			status, _ = plain(t, c.Gateway(0), host, path)
			require.Equal(t, http.StatusOK, status)
		}
	}
	require.Equal(t, http.StatusNotFound, handshake(t, c.Gateway(1), unmapped))
	require.Equal(t, http.StatusSwitchingProtocols, handshake(t, c.Gateway(1), host))
}

// handshake returns the status that an upgrade to WebSocket gets.
func handshake(t *testing.T, url, host string) int {
	t.Helper()
	socket, response, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Host: host}) //nolint:bodyclose // the library says that it needs no closing
	if err == nil {
		require.NoError(t, socket.CloseNow())
	}
	require.NotNil(t, response, "%v", err)
	return response.StatusCode
}

func suppliedCommunity(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := c.CreateCommunity(t, "override-a.example", who(t, "alice"))
	b := c.CreateCommunity(t, "override-b.example", who(t, "alice"))
	channel := channelID(t)
	inB := cluster.DialHost(t, c.Gateway(0), b, who(t, "alice"))
	inB.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(channel))
	inA := cluster.DialHost(t, c.Gateway(1), a, who(t, "alice"))
	event := inB.Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(channel),
		nostrtest.Tag("community", b), nostrtest.Tag("relay", "ws://"+b), nostrtest.Content("for b"))
	refused := inA.Publish(event)
	require.False(t, refused.OK)
	require.Equal(t, "restricted: not a channel member", refused.Message)
	require.True(t, inB.Publish(event).OK)
	require.Empty(t, inA.Query(in(channel)))
	require.Contains(t, ids(inB.Query(in(channel))), event.ID.String())

	// Nor by a header, or by a URL that is signed for the other host.
	body := `[{"ids":["` + event.ID.String() + `"]}]`
	status, answer := cluster.HTTP(t, http.MethodPost, c.Gateway(0), a, "/query?community="+b, http.Header{
		"Authorization": {cluster.Token(t, a, who(t, "alice"), "/query?community="+b, body)}, "X-Forwarded-Host": {b}, "X-Community": {b},
	}, body)
	require.Equal(t, http.StatusOK, status, answer)
	require.JSONEq(t, `[]`, answer)
	status, _ = cluster.HTTP(t, http.MethodPost, c.Gateway(0), a, "/query", http.Header{
		"Authorization": {cluster.Token(t, b, who(t, "alice"), "/query", body)},
	}, body)
	require.Equal(t, http.StatusUnauthorized, status)
}

func informationIsNoOracle(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := c.CreateCommunity(t, "oracle-a.example", who(t, "alice"))
	b := c.CreateCommunity(t, "oracle-b.example", who(t, "bob"))
	gone := c.CreateCommunity(t, "oracle-gone.example", who(t, "alice"))
	operate(t, c, 0, http.StatusOK, http.MethodPost, "/archive", fmt.Sprintf(`{"host":%q,"owner_pubkey":%q}`, gone, hexOf(t, "alice")))
	information := func(host, path string) (doc map[string]any) {
		status, body := plain(t, c.Gateway(1), host, path, "application/nostr+json")
		require.Equal(t, http.StatusOK, status, host)
		require.NoError(t, json.Unmarshal([]byte(body), &doc), body)
		return doc
	}
	// What a community says of itself, and whoever asks for its host is told.
	own := func(doc map[string]any) map[string]any {
		said := map[string]any{}
		for _, field := range []string{"name", "description", "icon", "pubkey"} {
			said[field] = doc[field]
			delete(doc, field)
		}
		limits, ok := doc["limitation"].(map[string]any)
		require.True(t, ok)
		delete(limits, "min_pow_difficulty")
		delete(limits, "restricted_writes")
		return said
	}
	inA, inB, unknown, archived := information(a, "/"), information(b, "/"), information("oracle-nobody.example", "/"), information(gone, "/info")
	saidA, saidB, saidNobody, saidGone := own(inA), own(inB), own(unknown), own(archived)
	require.Equal(t, a, saidA["name"])
	require.Equal(t, b, saidB["name"])
	require.Equal(t, map[string]any{"name": "", "description": "", "icon": nil, "pubkey": saidNobody["pubkey"]}, saidNobody)
	require.Equal(t, saidNobody, saidGone, "an archived community says nothing")
	require.Equal(t, inA, inB)
	require.Equal(t, inA, unknown)
	require.Equal(t, inA, archived)
}

func archiveInA(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	channel := channelID(t)
	hosts := []string{c.CreateCommunity(t, "archive-a.example", who(t, "alice")), c.CreateCommunity(t, "archive-b.example", who(t, "alice"))}
	var alice []*cluster.Client
	var events []*nostr.Event
	for i, host := range hosts {
		client := cluster.DialHost(t, c.Gateway(i), host, who(t, "alice"))
		client.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(channel))
		events = append(events, client.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(channel), nostrtest.Content(host)))
		alice = append(alice, client)
	}
	say := func(i int) cluster.Verdict {
		return alice[i].Publish(alice[i].Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(channel), nostrtest.Content("more")))
	}
	// A channel of one id in both: archived in one, it is as before in the other.
	alice[0].Accept(nostrtest.Kind(nostr.KindEditMetadata), nostrtest.Channel(channel), nostrtest.Tag("archived", "true"))
	require.False(t, say(0).OK)
	require.True(t, say(1).OK)

	// The whole community likewise.
	live := alice[1].Subscribe(in(channel))
	operate(t, c, 1, http.StatusOK, http.MethodPost, "/archive", fmt.Sprintf(`{"host":%q,"owner_pubkey":%q}`, hosts[0], hexOf(t, "alice")))
	code, reason := alice[0].Ended()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	require.Equal(t, "error: this community is not served any more", reason)
	require.Equal(t, alice[1].Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(channel), nostrtest.Content("still here")), live.Next())
	require.Contains(t, ids(alice[1].Query(in(channel))), events[1].ID.String())
	require.Equal(t, http.StatusSwitchingProtocols, handshake(t, c.Gateway(0), hosts[1]))
	require.Equal(t, http.StatusNotFound, handshake(t, c.Gateway(0), hosts[0]))
}

// operators make communities, find them again and give them away, and nobody else does.
func operators(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	owner, next := hexOf(t, "owner"), hexOf(t, "next")
	const host = "operated.example"
	free := operate(t, c, 0, http.StatusOK, http.MethodGet, "/availability?host=Operated.Example:443", "")
	require.Equal(t, map[string]any{
		"host": "Operated.Example:443", "normalized_host": host, "available": true, "community_id": nil, "retired": false,
	}, free)
	// What a community is to be called has to be said as it will be found, so that nobody takes two spellings for two hosts.
	for _, other := range []string{"Operated.example", "operated.example.", "operated.example:443", " operated.example"} {
		operate(t, c, 0, http.StatusBadRequest, http.MethodPost, "", fmt.Sprintf(`{"host":%q,"initial_owner_pubkey":%q}`, other, owner))
		operate(t, c, 0, http.StatusBadRequest, http.MethodPost, "", fmt.Sprintf(`{"host":%q,"initial_owner_pubkey":%q,"aliases":[%q]}`, host, owner, other))
		operate(t, c, 0, http.StatusBadRequest, http.MethodPost, "/aliases", fmt.Sprintf(`{"host":%q,"alias":%q}`, host, other))
	}
	create := fmt.Sprintf(`{"host":%q,"initial_owner_pubkey":%q,"create_only":true,"aliases":["www.operated.example"],"name":"Operated","description":"By hand."}`, host, owner)
	made := operate(t, c, 0, http.StatusOK, http.MethodPost, "", create)
	id := made["community_id"]
	require.Regexp(t, `^[0-9a-f-]{36}$`, id)
	require.Equal(t, []any{host, "created", owner}, []any{made["host"], made["status"], made["owner_pubkey"]})
	require.Equal(t, map[string]any{"error": "community already exists", "code": "already_exists"},
		operate(t, c, 1, http.StatusConflict, http.MethodPost, "", create))
	taken := operate(t, c, 1, http.StatusOK, http.MethodGet, "/availability?host="+host, "")
	require.Equal(t, []any{false, id}, []any{taken["available"], taken["community_id"]})
	list := operate(t, c, 1, http.StatusOK, http.MethodGet, "?owner_pubkey="+owner, "")
	require.Equal(t, owner, list["owner_pubkey"])
	require.InDelta(t, 100, list["max_communities_per_owner"], 0)
	entries, ok := list["communities"].([]any)
	require.True(t, ok)
	require.Len(t, entries, 1)
	entry, ok := entries[0].(map[string]any)
	require.True(t, ok)
	require.Equal(t, []any{id, host, nil}, []any{entry["community_id"], entry["host"], entry["archived_at"]})

	// It is served under all of its hosts, and shows what it was given.
	alice := cluster.DialHost(t, c.Gateway(0), "www.operated.example", who(t, "owner"))
	event := alice.Accept(nostrtest.Content("hello"))
	require.Len(t, cluster.DialHost(t, c.Gateway(1), host, who(t, "owner")).Query(nostr.Filter{IDs: []nostr.ID{event.ID}}), 1)
	_, doc := plain(t, c.Gateway(0), host, "/info")
	require.Contains(t, doc, "By hand.")

	// Others may not, and a request is done once, for this origin only.
	url := c.Gateway(0)
	status, answer := cluster.OperateAs(t, url, who(t, "owner"), http.MethodGet, "/operator/communities?owner_pubkey="+owner, "")
	require.Equal(t, http.StatusForbidden, status)
	require.JSONEq(t, `{"error":"actor not authorized: not a relay operator","code":"forbidden"}`, answer)
	status, answer = plain(t, url, cluster.OperatorHost, "/operator/communities?owner_pubkey="+owner)
	require.Equal(t, http.StatusUnauthorized, status, answer)
	status, _ = plain(t, url, cluster.OperatorHost, "/")
	require.Equal(t, http.StatusNotFound, status, "there is nothing else at this origin")
	status, _ = plain(t, url, host, "/operator/communities")
	require.Equal(t, http.StatusNotFound, status, "nor is it anywhere else")
	elsewhere := http.Header{"Authorization": {cluster.Token(t, host, cluster.OperatorKey, "/operator/communities", create)}}
	status, _ = cluster.HTTP(t, http.MethodPost, url, cluster.OperatorHost, "/operator/communities", elsewhere, create)
	require.Equal(t, http.StatusUnauthorized, status, "signed for a community's host")
	once := http.Header{"Authorization": {cluster.Token(t, cluster.OperatorHost, cluster.OperatorKey, "/operator/communities", create)}}
	status, _ = cluster.HTTP(t, http.MethodPost, url, cluster.OperatorHost, "/operator/communities", once, create)
	require.Equal(t, http.StatusConflict, status)
	status, _ = cluster.HTTP(t, http.MethodPost, c.Gateway(1), cluster.OperatorHost, "/operator/communities", once, create)
	require.Equal(t, http.StatusUnauthorized, status, "used before, at another gateway")
	reserved := operate(t, c, 0, http.StatusConflict, http.MethodPost, "", `{"host":"`+cluster.OperatorHost+`:8443"}`)
	require.Equal(t, "host_taken", reserved["code"])

	transfer := fmt.Sprintf(`{"community_id":%q,"new_owner_pubkey":%q,"expected_owner_pubkey":%q}`, id, next, owner)
	moved := operate(t, c, 0, http.StatusOK, http.MethodPost, "/transfer", transfer)
	require.Equal(t, map[string]any{"community_id": id, "new_owner_pubkey": next, "status": "transferred", "previous_owner": owner}, moved)
	require.Equal(t, "already_owner", operate(t, c, 1, http.StatusOK, http.MethodPost, "/transfer", transfer)["status"])
	conflict := operate(t, c, 1, http.StatusConflict, http.MethodPost, "/transfer",
		fmt.Sprintf(`{"community_id":%q,"new_owner_pubkey":%q,"expected_owner_pubkey":%q}`, id, hexOf(t, "third"), owner))
	require.Equal(t, "owner_conflict", conflict["code"])
	alice.Accept(nostrtest.Content("still a member"))
	rotated := operate(t, c, 0, http.StatusOK, http.MethodPost, "", fmt.Sprintf(`{"host":%q,"initial_owner_pubkey":%q}`, host, owner))
	require.Equal(t, []any{"existed", owner}, []any{rotated["status"], rotated["owner_pubkey"]})

	require.Equal(t, "added", operate(t, c, 0, http.StatusOK, http.MethodPost, "/aliases", `{"host":"operated.example","alias":"w3.operated.example"}`)["status"])
	require.Equal(t, "removed", operate(t, c, 0, http.StatusOK, http.MethodDelete, "/aliases", `{"host":"operated.example","alias":"w3.operated.example"}`)["status"])
	for path, body := range map[string]string{
		"/archive":  fmt.Sprintf(`{"host":"nobody.example","owner_pubkey":%q}`, owner),
		"/transfer": fmt.Sprintf(`{"host":"nobody.example","new_owner_pubkey":%q,"expected_owner_pubkey":%q}`, next, owner),
		"/delete":   fmt.Sprintf(`{"host":%q,"owner_pubkey":%q,"request_id":"r"}`, host, hexOf(t, "mallory")),
	} {
		require.Equal(t, "not_found", operate(t, c, 0, http.StatusNotFound, http.MethodPost, path, body)["code"], path)
	}
	require.Equal(t, "invalid", operate(t, c, 0, http.StatusBadRequest, http.MethodPost, "/archive", `[`)["code"])

	// A word that is mistyped is not passed over: it would make an open community of a closed one.
	mistyped := map[string]any{"error": `unknown field "acess"`, "code": "invalid"}
	require.Equal(t, mistyped, operate(t, c, 0, http.StatusBadRequest, http.MethodPost, "", `{"host":"mistyped.example","acess":"closed"}`))
	require.Equal(t, true, operate(t, c, 0, http.StatusOK, http.MethodGet, "/availability?host=mistyped.example", "")["available"])
	for _, path := range []string{"/archive", "/unarchive", "/transfer", "/delete", "/aliases", "/release"} {
		require.Equal(t, mistyped, operate(t, c, 0, http.StatusBadRequest, http.MethodPost, path, `{"acess":1}`), path)
	}
}

// archiving closes what is open on every gateway, refuses what comes, and loses nothing.
func archiving(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "archived.example", who(t, "alice"))
	owner := fmt.Sprintf(`{"host":%q,"owner_pubkey":%q}`, host, hexOf(t, "alice"))
	var clients []*cluster.Client
	for i := range 2 {
		clients = append(clients, cluster.DialHost(t, c.Gateway(i), host, who(t, "alice")), cluster.ConnectHost(t, c.Gateway(i), host, who(t, "stranger")))
	}
	event := clients[0].Accept(nostrtest.Content("kept"))
	mallory := fmt.Sprintf(`{"host":%q,"owner_pubkey":%q}`, host, hexOf(t, "mallory"))
	require.Equal(t, "not_found", operate(t, c, 0, http.StatusNotFound, http.MethodPost, "/archive", mallory)["code"])
	done := operate(t, c, 0, http.StatusOK, http.MethodPost, "/archive", owner)
	require.Equal(t, []any{host, "archived"}, []any{done["host"], done["status"]})
	require.NotNil(t, done["archived_at"])
	for _, client := range clients {
		code, _ := client.Ended()
		require.Equal(t, websocket.StatusPolicyViolation, code)
	}
	require.Equal(t, done, operate(t, c, 1, http.StatusOK, http.MethodPost, "/archive", owner), "to ask again changes nothing")
	for i := range 2 {
		require.Equal(t, http.StatusNotFound, handshake(t, c.Gateway(i), host))
		_, unknown := plain(t, c.Gateway(i), "never-there.example", "/")
		status, body := plain(t, c.Gateway(i), host, "/")
		require.Equal(t, http.StatusNotFound, status)
		require.Equal(t, unknown, body)
	}
	back := operate(t, c, 1, http.StatusOK, http.MethodPost, "/unarchive", owner)
	require.Equal(t, []any{"unarchived", nil}, []any{back["status"], back["archived_at"]})
	require.Eventually(t, func() bool { return handshake(t, c.Gateway(0), host) == http.StatusSwitchingProtocols }, time.Minute, 100*time.Millisecond)
	require.Len(t, cluster.DialHost(t, c.Gateway(0), host, who(t, "alice")).Query(nostr.Filter{IDs: []nostr.ID{event.ID}}), 1)
}

// deleting takes everything of one community, and leaves its host to nobody.
func deleting(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host, other := c.CreateCommunity(t, "deleted.example", who(t, "alice")), c.CreateCommunity(t, "spared.example", who(t, "alice"))
	channel := channelID(t)
	var spared []string
	for _, at := range []string{host, other} {
		alice := cluster.DialHost(t, c.Gateway(0), at, who(t, "alice"))
		alice.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(channel))
		spared = nil
		for n := range 20 {
			event := alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(channel), nostrtest.Content(fmt.Sprint(at, " ", n)))
			spared = append(spared, event.ID.String())
		}
	}
	owner := fmt.Sprintf(`{"host":%q,"owner_pubkey":%q}`, host, hexOf(t, "alice"))
	request := strings.TrimSuffix(owner, "}") + `,"request_id":"gone-1"}`
	require.Equal(t, "not_archived", operate(t, c, 0, http.StatusConflict, http.MethodPost, "/delete", request)["code"])
	operate(t, c, 0, http.StatusOK, http.MethodPost, "/archive", owner)
	first := operate(t, c, 0, http.StatusOK, http.MethodPost, "/delete", request)
	require.Equal(t, "requested", first["stage"])
	require.Equal(t, "not_found", operate(t, c, 1, http.StatusNotFound, http.MethodPost, "/unarchive", owner)["code"])
	var last map[string]any
	require.Eventually(t, func() bool {
		last = operate(t, c, 1, http.StatusOK, http.MethodPost, "/delete", request)
		return last["stage"] == "deleted"
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, first["community_id"], last["community_id"])
	require.Equal(t, first["requested_at"], last["requested_at"])

	require.ElementsMatch(t, spared, ids(cluster.DialHost(t, c.Gateway(1), other, who(t, "alice")).
		Query(nostr.Filter{Kinds: []nostr.Kind{nostr.KindChat}})))
	require.Equal(t, http.StatusNotFound, handshake(t, c.Gateway(0), host))
	state := operate(t, c, 0, http.StatusOK, http.MethodGet, "/availability?host="+host, "")
	require.Equal(t, []any{false, true, nil}, []any{state["available"], state["retired"], state["community_id"]})
	again := fmt.Sprintf(`{"host":%q,"initial_owner_pubkey":%q,"create_only":true}`, host, hexOf(t, "bob"))
	require.Equal(t, "host_retired", operate(t, c, 0, http.StatusConflict, http.MethodPost, "", again)["code"])
	require.Equal(t, "released", operate(t, c, 0, http.StatusOK, http.MethodPost, "/release", fmt.Sprintf(`{"host":%q}`, host))["status"])
	made := operate(t, c, 0, http.StatusOK, http.MethodPost, "", again)
	require.NotEqual(t, first["community_id"], made["community_id"])
	require.Eventually(t, func() bool { return handshake(t, c.Gateway(1), host) == http.StatusSwitchingProtocols }, time.Minute, 100*time.Millisecond)
	bob := cluster.DialHost(t, c.Gateway(1), host, who(t, "bob"))
	require.Empty(t, bob.Query(nostr.Filter{Kinds: []nostr.Kind{nostr.KindChat}}), "nothing of the community before")
	bob.Accept(nostrtest.Content("a new one"))
}
