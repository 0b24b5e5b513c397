package cluster_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// posted is the answer to an event that was submitted over HTTP.
type posted struct {
	Status   int    `json:"-"`
	EventID  string `json:"event_id"`
	Accepted bool
	Message  string
	Error    string
}

// post submits an event to the gateway at url over HTTP.
func post(t *testing.T, url, host, name string, ev *nostr.Event) (p posted) {
	t.Helper()
	body := string(nostrtest.Raw(ev))
	status, answer := cluster.HTTP(t, http.MethodPost, url, host, "/events", http.Header{
		"Authorization": {cluster.Token(t, host, name, "/events", body)},
	}, body)
	require.NoError(t, json.Unmarshal([]byte(answer), &p), answer)
	p.Status = status
	return p
}

// bothDoors submits events by WebSocket and over HTTP: what one refuses the other refuses in the same words.
func bothDoors(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	name := who(t, "alice")
	alice, bob := cluster.Dial(t, c.Gateway(0), name), cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	bob.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel("doors-private"), nostrtest.Tag("name", "hidden"), nostrtest.Tag("private"))
	secret := bob.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel("doors-private"))
	deleted := alice.Accept(nostrtest.Content("to be deleted"))
	alice.Accept(nostrtest.Kind(nostr.KindDeletion), nostrtest.Tag("e", deleted.ID.String()))
	forged, changed := alice.Event(nostrtest.Content("signed")), alice.Event(nostrtest.Content("signed"))
	forged.Sig[0] ^= 1
	changed.Content = "not signed"

	for what, tt := range map[string]struct {
		event  *nostr.Event
		status int
	}{
		"of somebody else":         {bob.Event(), http.StatusBadRequest},
		"forged":                   {forged, http.StatusBadRequest},
		"changed":                  {changed, http.StatusBadRequest},
		"old":                      {alice.Event(nostrtest.CreatedAt(time.Now().Add(-time.Hour).Unix())), http.StatusBadRequest},
		"expired":                  {alice.Event(nostrtest.Tag("expiration", "1")), http.StatusBadRequest},
		"a proof":                  {alice.Event(nostrtest.Kind(nostr.KindAuth)), http.StatusBadRequest},
		"the relay's":              {alice.Event(nostrtest.Kind(nostr.KindThreadSummary)), http.StatusForbidden},
		"no such channel":          {alice.Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel("doors-none")), http.StatusForbidden},
		"a hidden channel":         {alice.Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel("doors-private")), http.StatusForbidden},
		"no channel":               {alice.Event(nostrtest.Kind(nostr.KindChat)), http.StatusBadRequest},
		"what was deleted":         {deleted, http.StatusForbidden},
		"a hidden target":          {alice.Event(nostrtest.Kind(nostr.KindReaction), nostrtest.Channel("doors-private"), nostrtest.Tag("e", secret.ID.String())), http.StatusForbidden},
		"a command for a stranger": {alice.Event(nostrtest.Kind(nostr.KindPutUser), nostrtest.Channel("doors-private"), nostrtest.Tag("p", alice.Event().PubKey.String())), 0},
		"a command for owners":     {alice.Event(nostrtest.Kind(nostr.KindRelayAddMember), nostrtest.Tag("p", bob.Event().PubKey.String())), 0},
	} {
		t.Run(what, func(t *testing.T) {
			verdict := alice.Publish(tt.event)
			require.False(t, verdict.OK, verdict.Message)
			require.NotEmpty(t, verdict.Message)
			answer := post(t, c.Gateway(1), "localhost", name, tt.event)
			require.Equal(t, verdict.Message, answer.Error)
			if tt.status != 0 {
				require.Equal(t, tt.status, answer.Status, answer.Error)
			}
			require.GreaterOrEqual(t, answer.Status, http.StatusBadRequest)
		})
	}
	wrap := alice.Event(nostrtest.Kind(nostr.KindGiftWrap), nostrtest.Tag("p", bob.Event().PubKey.String()))
	answer := post(t, c.Gateway(0), "localhost", name, wrap)
	require.Equal(t, posted{Status: http.StatusBadRequest, Error: "invalid: kind 1059 is only accepted via WebSocket"}, answer)
}

// overHTTP is a client without a WebSocket: what it submits is done, stored and live for the others.
func overHTTP(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	name := who(t, "alice")
	accepted := func(ev *nostr.Event) {
		t.Helper()
		require.Equal(t, posted{Status: http.StatusOK, EventID: ev.ID.String(), Accepted: true}, post(t, c.Gateway(0), "localhost", name, ev))
	}
	sign := func(opts ...nostrtest.Option) *nostr.Event {
		return nostrtest.Event(t, name, append([]nostrtest.Option{nostrtest.CreatedAt(time.Now().Unix())}, opts...)...)
	}
	create := []nostrtest.Option{nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel("over-http"), nostrtest.Tag("name", "HTTP")}
	accepted(sign(create...))
	again := post(t, c.Gateway(1), "localhost", name, sign(append(create, nostrtest.Content("again"))...))
	require.Equal(t, http.StatusOK, again.Status, again.Error)
	require.False(t, again.Accepted)
	require.Regexp(t, "^duplicate: .*already exists", again.Message)

	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	s := bob.Subscribe(nostr.Filter{Kinds: []nostr.Kind{nostr.KindChat}, Tags: in("over-http").Tags})
	message := sign(nostrtest.Kind(nostr.KindChat), nostrtest.Channel("over-http"), nostrtest.Content("hello"))
	accepted(message)
	require.Equal(t, message, s.Next())
	repeat := post(t, c.Gateway(1), "localhost", name, message)
	require.Equal(t, http.StatusOK, repeat.Status)
	require.True(t, repeat.Accepted)
	require.Regexp(t, "^duplicate: ", repeat.Message)
	accepted(sign(nostrtest.Kind(nostr.KindReaction), nostrtest.Content("+"), nostrtest.Tag("e", message.ID.String())))
	twice := post(t, c.Gateway(1), "localhost", name, sign(nostrtest.Kind(nostr.KindReaction), nostrtest.Content("+"),
		nostrtest.Tag("e", message.ID.String()), nostrtest.Tag("k", "9")))
	require.Equal(t, posted{Status: http.StatusOK, EventID: twice.EventID, Message: "duplicate: reaction already exists"}, twice)
}

// joiningOverHTTP is a key that becomes a member of a closed community by an event, without a WebSocket.
func joiningOverHTTP(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "joining-over-http.example", who(t, "alice"))
	name := who(t, "bob")
	note := nostrtest.Event(t, name, nostrtest.CreatedAt(time.Now().Unix()))
	refused := posted{Status: http.StatusForbidden, Error: "restricted: not a relay member"}
	require.Equal(t, refused, post(t, c.Gateway(1), host, name, note))
	code := mint(t, c.Gateway(0), host, who(t, "alice"), `{}`)
	join := nostrtest.Event(t, name, nostrtest.CreatedAt(time.Now().Unix()),
		nostrtest.Kind(nostr.KindRelayJoinRequest), nostrtest.Tag("-"), nostrtest.Tag("claim", code))
	answer := post(t, c.Gateway(1), host, name, join)
	require.Equal(t, posted{
		Status: http.StatusOK, EventID: join.ID.String(), Accepted: true, Message: "info: welcome to this relay",
	}, answer)
	require.True(t, post(t, c.Gateway(0), host, name, note).Accepted)
}

// ask makes a signed request to the gateway at url.
func ask(t *testing.T, url, host, name, path, body string) (status int, answer string) {
	t.Helper()
	return cluster.HTTP(t, http.MethodPost, url, host, path, http.Header{"Authorization": {cluster.Token(t, host, name, path, body)}}, body)
}

// query asks the gateway at url over HTTP.
func query(t *testing.T, url, host, name, body string) (events []*nostr.Event) {
	t.Helper()
	status, answer := ask(t, url, host, name, "/query", body)
	require.Equal(t, http.StatusOK, status, answer)
	var raws []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(answer), &raws))
	for _, raw := range raws {
		ev, err := wire.DecodeEvent(raw, wire.DefaultLimits())
		require.NoError(t, err)
		require.NoError(t, ev.Verify())
		events = append(events, ev)
	}
	return events
}

// pages walks through stored events over HTTP, most of which are of one second.
func pages(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	name := who(t, "alice")
	alice := cluster.Dial(t, c.Gateway(0), name)
	now := time.Now().Unix()
	for i := range 7 {
		alice.Accept(nostrtest.CreatedAt(now-int64(i/5)), nostrtest.Content(strconv.Itoa(i)))
	}
	all := alice.Query(by(name))
	require.Len(t, all, 7)
	author := nostrtest.PubKey(name).String()
	var walked, numbered []*nostr.Event
	cursor := ""
	for page := 1; len(walked) < len(all); page++ {
		part := query(t, c.Gateway(page), "localhost", name, `[{"authors":["`+author+`"],"limit":2`+cursor+`}]`)
		require.NotEmpty(t, part)
		walked = append(walked, part...)
		last := part[len(part)-1]
		cursor = `,"until":` + strconv.FormatInt(last.CreatedAt, 10) + `,"before_id":"` + last.ID.String() + `"`
		numbered = append(numbered, query(t, c.Gateway(page), "localhost", name,
			`[{"authors":["`+author+`"],"limit":2,"page":`+strconv.Itoa(page)+`}]`)...)
	}
	require.Equal(t, all, walked)
	require.Equal(t, all, numbered)
	require.Empty(t, query(t, c.Gateway(0), "localhost", name, `[{"authors":["`+author+`"],"limit":2`+cursor+`}]`))
}

// names are those that members claim in their profiles (NIP-05).
func names(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "names.example", who(t, "alice"))
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	alice.Accept(nostrtest.Kind(nostr.KindMetadata), nostrtest.Content(`{"name":"Alice","nip05":"alice@names.example"}`))
	ask := func(name string) string { return named(t, c.Gateway(1), host, name) }
	key := nostrtest.PubKey(who(t, "alice")).String()
	want := `{"names":{"alice":"` + key + `"},"relays":{"` + key + `":["ws://names.example"]}}`
	require.Eventually(t, func() bool { return ask("alice") == want }, time.Minute, 20*time.Millisecond, "profiles are indexed a moment later")
	require.JSONEq(t, `{"names":{},"relays":{}}`, ask("bob"))
	alice.Accept(nostrtest.Kind(nostr.KindMetadata), nostrtest.Content(`{"name":"Alice"}`), nostrtest.CreatedAt(time.Now().Add(time.Minute).Unix()))
	require.JSONEq(t, `{"names":{},"relays":{}}`, ask("alice"), "a profile that is no more has no name")
}
