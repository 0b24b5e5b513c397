package cluster_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

func protectedEvents(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	mallory := cluster.Dial(t, c.Gateway(1), who(t, "mallory"))
	event := alice.Event(nostrtest.Tag("-"), nostrtest.Content("for here only"))
	require.False(t, mallory.Publish(event).OK, "by somebody else")
	require.True(t, alice.Publish(event).OK)
	wrap := nostrtest.Event(t, who(t, "throw-away"), nostrtest.Kind(nostr.KindGiftWrap), nostrtest.CreatedAt(time.Now().Unix()), nostrtest.Tag("-"))
	require.False(t, mallory.Publish(wrap).OK, "a gift wrap by somebody else")
	require.False(t, mallory.Publish(mallory.Event(nostrtest.Kind(6), nostrtest.Content(string(nostrtest.Raw(event))))).OK, "a repost of it")
	require.Equal(t, []*nostr.Event{event}, mallory.Query(by(who(t, "alice"))))
}

func management(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "managed.example", who(t, "alice"))
	c.PutMember(t, host, who(t, "bob"))
	url, other := c.Gateway(0), c.Gateway(1)
	do := func(method, params string) {
		t.Helper()
		status, answer := cluster.Manage(t, url, host, who(t, "alice"), method, params)
		require.Equal(t, http.StatusOK, status, answer)
		require.JSONEq(t, `{"result":true}`, answer)
	}
	list := func(method string) string {
		t.Helper()
		status, answer := cluster.Manage(t, other, host, who(t, "alice"), method, `[]`)
		require.Equal(t, http.StatusOK, status, answer)
		return answer
	}
	alice := cluster.DialHost(t, url, host, who(t, "alice"))
	bob := cluster.DialHost(t, other, host, who(t, "bob"))
	bad, key := bob.Accept(nostrtest.Content("bad")), nostrtest.PubKey(who(t, "bob")).String()

	status, answer := cluster.Manage(t, url, host, who(t, "bob"), "banpubkey", `["`+key+`"]`)
	require.Equal(t, http.StatusForbidden, status, answer)
	status, answer = cluster.Manage(t, url, host, who(t, "stranger"), "supportedmethods", `[]`)
	require.Equal(t, http.StatusForbidden, status, answer)

	// An event that was banned is gone, and does not come back from anybody.
	do("banevent", `["`+bad.ID.String()+`","off topic"]`)
	require.Empty(t, alice.Query(by(who(t, "bob"))))
	require.False(t, bob.Publish(bad).OK)
	require.JSONEq(t, `{"result":[{"id":"`+bad.ID.String()+`","reason":"off topic"}]}`, list("listbannedevents"))

	// A key that was banned neither writes nor reads nor connects.
	do("banpubkey", `["`+key+`","spam"]`)
	require.JSONEq(t, `{"result":[{"pubkey":"`+key+`","reason":"spam"}]}`, list("listbannedpubkeys"))
	if verdict, err := bob.TryPublish(bob.Event()); err == nil {
		require.False(t, verdict.OK)
	}
	if stored, err := bob.TryQuery(by(who(t, "alice"))); err == nil {
		require.Empty(t, stored)
	}
	require.False(t, cluster.ConnectHost(t, other, host, who(t, "bob")).Authenticate("ws://"+host).OK)
	do("allowpubkey", `["`+key+`"]`)
	require.JSONEq(t, `{"result":[]}`, list("listbannedpubkeys"))
	cluster.DialHost(t, other, host, who(t, "bob")).Accept(nostrtest.Content("better"))

	// Only some kinds.
	do("allowkind", `[1]`)
	require.JSONEq(t, `{"result":[1]}`, list("listallowedkinds"))
	require.False(t, alice.Publish(alice.Event(nostrtest.Kind(nostr.KindReaction), nostrtest.Tag("e", bad.ID.String()))).OK)
	do("disallowkind", `[1]`)

	do("changerelayname", `["Beehive"]`)
	do("blockip", `["203.0.113.0/24","noise"]`)
	require.JSONEq(t, `{"result":[{"ip":"203.0.113.0/24","reason":"noise"}]}`, list("listblockedips"))
	require.Eventually(t, func() bool {
		_, info := cluster.HTTP(t, http.MethodGet, other, host, "/", http.Header{"Accept": {"application/nostr+json"}}, "")
		return strings.Contains(info, `"name":"Beehive"`)
	}, time.Minute, 100*time.Millisecond)
}

func proofOfWork(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "work.example", who(t, "alice"))
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	alice.Accept(nostrtest.Content("free"))
	status, answer := cluster.Manage(t, c.Gateway(1), host, who(t, "alice"), "changerelayminpow", `[8]`)
	require.Equal(t, http.StatusOK, status, answer)
	var idle *nostr.Event
	for i := 0; idle == nil || idle.ID[0] == 0; i++ {
		idle = alice.Event(nostrtest.Tag("nonce", strconv.Itoa(i), "8"))
	}
	require.Regexp(t, "^pow: ", alice.Publish(idle).Message)
	worked := idle
	for i := 0; worked.ID[0] != 0; i++ {
		worked = alice.Event(nostrtest.Tag("nonce", strconv.Itoa(i), "8"))
	}
	require.True(t, alice.Publish(worked).OK)
}

func textSearch(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	h := channelID(t)
	alice.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h))
	said := alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content("what makes honey hexagonal?"))
	found := alice.Accept(nostrtest.Kind(nostr.KindArticle), nostrtest.Tag("d", "comb"), nostrtest.Content("the hexagonal comb is full of honey"))
	alice.Accept(nostrtest.Kind(nostr.KindArticle), nostrtest.Tag("d", "nothing"), nostrtest.Content("nothing to see"))
	filter := by(who(t, "alice"))
	filter.Search = "hexagonal honey"
	// The index follows the stream.
	got := bob.QueryUntil(func(events []*nostr.Event) bool { return len(events) > 1 }, filter)
	require.ElementsMatch(t, []*nostr.Event{found, said}, got)
	filter.Tags, filter.Kinds = in(h).Tags, []nostr.Kind{nostr.KindChat}
	// A search is of stored events: it stays open, and nothing comes.
	s := bob.Subscribe(filter)
	require.Equal(t, []*nostr.Event{said}, s.Stored)
	alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content("hexagonal honey again"))
	s.Silent()
	filter.Search = strings.Repeat("x", 257)
	require.Regexp(t, "^invalid: ", bob.Refused(filter))
}

// mixedSearch asks for what a search finds and for other events in one request, through every door.
func mixedSearch(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	plain, search := nostr.Filter{Kinds: []nostr.Kind{nostr.KindChat}}, nostr.Filter{Search: "honey"}
	const refusal = "mixed search and non-search filters not supported"
	require.Equal(t, "invalid: "+refusal, alice.Refused(search, plain))
	body := "[" + string(search.AppendJSON(nil)) + "," + string(plain.AppendJSON(nil)) + "]"
	for _, path := range []string{"/query", "/count"} {
		status, answer := ask(t, c.Gateway(1), "localhost", who(t, "alice"), path, body)
		require.Equal(t, http.StatusBadRequest, status)
		require.JSONEq(t, `{"error":"`+refusal+`"}`, answer)
	}
}

func emptySearch(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	nothing := nostr.Filter{Search: "xyzzyplughnobodysaysthis"}
	require.Empty(t, alice.Subscribe(nothing).Stored)
	require.Zero(t, alice.Count(nothing))
	require.Empty(t, query(t, c.Gateway(1), "localhost", who(t, "alice"), "["+string(nothing.AppendJSON(nil))+"]"))
}

func sketches(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	note := alice.Accept(nostrtest.Content("like me"))
	for _, client := range []*cluster.Client{alice, bob} {
		client.Accept(nostrtest.Kind(nostr.KindReaction), nostrtest.Tag("e", note.ID.String()), nostrtest.Content("+"))
	}
	filter := nostr.Filter{Kinds: []nostr.Kind{nostr.KindReaction}, Tags: []nostr.TagCondition{{Name: 'e', Values: []string{note.ID.String()}}}}
	frame := bob.CountFrame(filter)
	require.EqualValues(t, 2, frame.Count)
	require.Len(t, frame.HLL, wire.Registers)
	set := 0
	for _, register := range frame.HLL {
		if register > 0 {
			set++
		}
	}
	require.Contains(t, []int{1, 2}, set, "one for each author, unless they share it")
	require.Nil(t, bob.CountFrame(by(who(t, "alice"))).HLL)
}

func signedRequests(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	event := alice.Accept(nostrtest.Content("over HTTP"))
	author := by(who(t, "alice"))
	body := "[" + string(author.AppendJSON(nil)) + "]"
	post := func(url, path, token string) (int, string) {
		return cluster.HTTP(t, http.MethodPost, url, "localhost", path, http.Header{"Authorization": {token}}, body)
	}
	token := cluster.Token(t, "localhost", who(t, "bob"), "/query", body)
	status, answer := post(c.Gateway(0), "/query", token)
	require.Equal(t, http.StatusOK, status, answer)
	var got []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(answer), &got))
	require.Len(t, got, 1)
	require.JSONEq(t, string(nostrtest.Raw(event)), string(got[0]))
	for i := range 2 {
		status, answer = post(c.Gateway(i), "/query", token)
		require.Equal(t, http.StatusUnauthorized, status, "a token is for one request, at any gateway: %s", answer)
	}
	status, answer = post(c.Gateway(1), "/count", cluster.Token(t, "localhost", who(t, "bob"), "/count", body))
	require.Equal(t, http.StatusOK, status, answer)
	require.JSONEq(t, `{"count":1}`, answer)
}
