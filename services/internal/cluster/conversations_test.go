package cluster_test

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// conversation is what the author of a command is told who opens one.
type conversation struct {
	Channel string `json:"channel_id"`
	Created bool   `json:"created"`
}

// converse sends a command that opens a conversation with keys that no other case uses.
func converse(t *testing.T, by *cluster.Client, kind nostr.Kind, with []string, opts ...nostrtest.Option) conversation {
	t.Helper()
	for _, name := range with {
		opts = append(opts, pubkey(who(t, name)))
	}
	return readConversation(t, by.Publish(by.Event(append(opts, nostrtest.Kind(kind), unique())...)))
}

func readConversation(t *testing.T, verdict cluster.Verdict) (o conversation) {
	t.Helper()
	require.True(t, verdict.OK, verdict.Message)
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(verdict.Message, "response:")), &o), verdict.Message)
	return o
}

// unique makes an event that is like no other of its second.
func unique() nostrtest.Option { return nostrtest.Tag("serial", rand.Text()) }

func openConversation(t *testing.T, by *cluster.Client, with ...string) conversation {
	t.Helper()
	return converse(t, by, nostr.KindOpenConversation, with)
}

func hideConversation(t *testing.T, by *cluster.Client, h string) {
	t.Helper()
	verdict := by.Publish(by.Event(nostrtest.Kind(nostr.KindHideConversation), nostrtest.Channel(h), unique()))
	require.Equal(t, cluster.Verdict{OK: true, Message: "response:{}"}, verdict)
}

// hiding filters on what a key has hidden.
func hiding(t *testing.T, name string) nostr.Filter {
	t.Helper()
	return nostr.Filter{
		Kinds: []nostr.Kind{nostr.KindHiddenConversations},
		Tags:  []nostr.TagCondition{{Name: 'p', Values: []string{nostrtest.PubKey(who(t, name)).String()}}},
	}
}

// requireHidden checks what the relay says that a key has hidden.
func requireHidden(t *testing.T, ev *nostr.Event, name string, hidden ...string) {
	t.Helper()
	key := nostrtest.PubKey(who(t, name)).String()
	want := nostr.Tags{{"d", key}, {"p", key}}
	for _, h := range hidden {
		want = append(want, nostr.Tag{"h", h})
	}
	require.Equal(t, nostrtest.PubKey(cluster.RelayKey), ev.PubKey)
	require.Equal(t, want, ev.Tags)
}

func conversationsAreFound(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bob := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	eve := cluster.Dial(t, c.Gateway(1), who(t, "eve"))
	concerning := nostr.TagCondition{Name: 'p'}
	for _, name := range []string{"alice", "bob", "eve"} {
		concerning.Values = append(concerning.Values, nostrtest.PubKey(who(t, name)).String())
	}
	told, outside := notices(bob, who(t, "bob")), eve.Subscribe(nostr.Filter{
		Kinds: []nostr.Kind{nostr.KindGroupMetadata, nostr.KindGroupMembers, nostr.KindOpenConversation}, Tags: []nostr.TagCondition{concerning},
	})
	dm := openConversation(t, alice, "bob")
	require.True(t, dm.Created)
	require.Equal(t, conversation{Channel: dm.Channel}, openConversation(t, bob, "alice"))
	byHTTP := post(t, c.Gateway(1), "localhost", who(t, "alice"), alice.Event(nostrtest.Kind(nostr.KindOpenConversation), pubkey(who(t, "bob")), unique()))
	require.True(t, byHTTP.Accepted)
	require.Equal(t, `response:{"channel_id":"`+dm.Channel+`","created":false}`, byHTTP.Message)

	// Both are told, and find what it is.
	h, _ := told.Next().Tags.First("h")
	require.Equal(t, dm.Channel, h)
	for name, client := range map[string]*cluster.Client{"alice": alice, "bob": bob} {
		s := notices(client, who(t, name))
		require.Len(t, s.Stored, 1)
		h, _ := s.Stored[0].Tags.First("h")
		require.Equal(t, dm.Channel, h)
		found := client.Query(nostr.Filter{Kinds: []nostr.Kind{nostr.KindGroupMetadata}, Tags: []nostr.TagCondition{{Name: 'd', Values: []string{dm.Channel}}}})
		require.Len(t, found, 1)
		for flag, n := range map[string]int{"hidden": 1, "private": 1, "closed": 1, "p": 2} {
			require.Equal(t, n, found[0].Tags.Count(flag), flag)
		}
	}
	said := in(dm.Channel)
	said.Kinds = []nostr.Kind{nostr.KindSystemMessage, nostr.KindChat}
	s := bob.Subscribe(said)
	require.Contains(t, s.Stored[0].Content, `"type":"dm_created"`)
	message := alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(dm.Channel), nostrtest.Content("hello"))
	require.Equal(t, message, s.Next())

	// Who else is wanted in it is in another one.
	more := converse(t, bob, nostr.KindAddToConversation, []string{"carol"}, nostrtest.Channel(dm.Channel))
	require.True(t, more.Created)
	require.NotEqual(t, dm.Channel, more.Channel)
	carol := cluster.Dial(t, c.Gateway(0), who(t, "carol"))
	carol.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(more.Channel))
	require.Empty(t, carol.Query(said))

	// To others there is nothing, whatever they ask.
	for _, kind := range []nostr.Kind{9, 9000, 9001, 9002, 9008, 9009, 9021, 9022, 41011, 41012} {
		ask := func(channel string) cluster.Verdict {
			return eve.Publish(eve.Event(nostrtest.Kind(kind), nostrtest.Channel(channel), pubkey(who(t, "carol")),
				nostrtest.Tag("name", "x"), nostrtest.Tag("code", "open sesame")))
		}
		hidden, missing := ask(dm.Channel), ask("no-such-channel")
		require.False(t, hidden.OK, "kind %d", kind)
		require.Equal(t, missing, hidden, "kind %d", kind)
	}
	require.Empty(t, eve.Query(in(dm.Channel)))
	require.Empty(t, eve.Query(by(who(t, "alice"), who(t, "bob"))), "not even that somebody talks to somebody")
	require.Empty(t, bob.Query(nostr.Filter{Kinds: []nostr.Kind{nostr.KindOpenConversation}, Authors: by(who(t, "alice")).Authors}))
	verdict := bob.Publish(bob.Event(nostrtest.Kind(nostr.KindLeaveRequest), nostrtest.Channel(dm.Channel)))
	require.Equal(t, "invalid: the members of a dm do not change", verdict.Message)
	// What is eve's own comes after anything that could have leaked.
	own := openConversation(t, eve, "mallory")
	d, _ := outside.Next().Tags.First("d")
	require.Equal(t, own.Channel, d)
}

func hideAndReopen(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bob := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	s := alice.Subscribe(hiding(t, "alice"))
	require.Empty(t, s.Stored)
	dm, other := openConversation(t, alice, "bob"), openConversation(t, alice, "carol")
	hideConversation(t, alice, dm.Channel)
	requireHidden(t, s.Next(), "alice", dm.Channel)
	hideConversation(t, alice, other.Channel)
	requireHidden(t, s.Next(), "alice", dm.Channel, other.Channel)

	// What is said, and that the other one opens it, changes nothing.
	bob.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(dm.Channel), nostrtest.Content("are you there?"))
	require.Equal(t, conversation{Channel: dm.Channel}, openConversation(t, bob, "alice"))
	require.Equal(t, conversation{Channel: other.Channel}, openConversation(t, alice, "carol"))
	requireHidden(t, s.Next(), "alice", dm.Channel)
	require.Equal(t, conversation{Channel: dm.Channel}, openConversation(t, alice, "bob"))
	requireHidden(t, s.Next(), "alice")
	stored := alice.Query(hiding(t, "alice"))
	require.Len(t, stored, 1)
	requireHidden(t, stored[0], "alice")
}

// snapshot has alice hide a conversation with bob, and returns what the relay has signed of it.
func snapshot(t *testing.T, c *cluster.Cluster) (ev *nostr.Event, bob *cluster.Client) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	hideConversation(t, alice, openConversation(t, alice, "bob").Channel)
	stored := alice.Query(hiding(t, "alice"))
	require.Len(t, stored, 1)
	require.Equal(t, stored, alice.Query(nostr.Filter{IDs: []nostr.ID{stored[0].ID}}))
	return stored[0], cluster.Dial(t, c.Gateway(1), who(t, "bob"))
}

// queryStatus is the status of a query of the gateway over HTTP, and what it is answered.
func queryStatus(t *testing.T, c *cluster.Cluster, path, name, filters string) (status int, answer string) {
	t.Helper()
	return cluster.HTTP(t, http.MethodPost, c.Gateway(1), "localhost", path, http.Header{
		"Authorization": {cluster.Token(t, "localhost", who(t, name), path, filters)},
	}, filters)
}

func snapshotIsPrivate(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	_, bob := snapshot(t, c)
	alices := `[{"kinds":[30622],"#p":["` + nostrtest.PubKey(who(t, "alice")).String() + `"]}]`
	for _, path := range []string{"/query", "/count"} {
		status, answer := queryStatus(t, c, path, "bob", alices)
		require.Equal(t, http.StatusForbidden, status, answer)
		status, answer = queryStatus(t, c, path, "alice", alices)
		require.Equal(t, http.StatusOK, status, answer)
	}
	// It is not even counted, where the kind is not named.
	relays := by(cluster.RelayKey)
	relays.Tags = []nostr.TagCondition{{Name: 'd', Values: []string{nostrtest.PubKey(who(t, "alice")).String()}}}
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	require.EqualValues(t, 1, alice.Count(relays))
	require.Zero(t, bob.Count(relays))
	require.Empty(t, bob.Query(nostr.Filter{Kinds: []nostr.Kind{nostr.KindHideConversation}}), "nor is the command")
}

func twoSnapshots(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bob := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	dm, other := openConversation(t, alice, "bob"), openConversation(t, bob, "carol")
	hideConversation(t, alice, dm.Channel)
	hideConversation(t, bob, dm.Channel)
	hideConversation(t, bob, other.Channel)
	alices, bobs := alice.Query(hiding(t, "alice")), bob.Query(hiding(t, "bob"))
	require.Len(t, alices, 1)
	require.Len(t, bobs, 1)
	requireHidden(t, alices[0], "alice", dm.Channel)
	requireHidden(t, bobs[0], "bob", dm.Channel, other.Channel)
}

func snapshotRefusesOthers(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	_, bob := snapshot(t, c)
	require.Regexp(t, "^restricted: ", bob.Refused(hiding(t, "alice")))
	require.Regexp(t, "^restricted: ", bob.Refused(nostr.Filter{Kinds: []nostr.Kind{nostr.KindHiddenConversations}}))
	// Nor is it live for others, where the kind is not named.
	relays := bob.Subscribe(nostr.Filter{Authors: by(cluster.RelayKey).Authors, Limit: new(0)})
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	openConversation(t, alice, "bob") // shown again
	openConversation(t, alice, "bob", "carol")
	for { // what concerns bob comes after anything that could have leaked
		ev := relays.Next()
		require.NotEqual(t, nostr.KindHiddenConversations, ev.Kind)
		if p, _ := ev.Tags.First("p"); ev.Kind == nostr.KindMemberAdded && p == nostrtest.PubKey(who(t, "bob")).String() {
			return
		}
	}
}

func snapshotByID(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ev, bob := snapshot(t, c)
	status, answer := queryStatus(t, c, "/query", "bob", `[{"ids":["`+ev.ID.String()+`"]}]`)
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `[]`, answer)
	require.Empty(t, bob.Query(nostr.Filter{IDs: []nostr.ID{ev.ID}}))
	require.Zero(t, bob.Count(nostr.Filter{IDs: []nostr.ID{ev.ID}}))
}

func snapshotByKindAndID(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ev, bob := snapshot(t, c)
	status, answer := queryStatus(t, c, "/query", "bob", `[{"kinds":[30622],"ids":["`+ev.ID.String()+`"]}]`)
	require.Equal(t, http.StatusForbidden, status, answer)
	require.Regexp(t, "^restricted: ", bob.Refused(nostr.Filter{Kinds: []nostr.Kind{nostr.KindHiddenConversations}, IDs: []nostr.ID{ev.ID}}))
}

func snapshotBySearch(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ev, bob := snapshot(t, c)
	h, _ := ev.Tags.First("h")
	for _, words := range []string{h, "dm"} {
		status, answer := queryStatus(t, c, "/query", "bob", `[{"search":"`+words+`","ids":["`+ev.ID.String()+`"]}]`)
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `[]`, answer)
		require.Empty(t, bob.Query(nostr.Filter{Search: words, IDs: []nostr.ID{ev.ID}}))
	}
}

// conversationsStayInTheirCommunity opens one of the same keys in two communities.
func conversationsStayInTheirCommunity(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "talk.example", who(t, "alice"))
	c.PutMember(t, host, who(t, "bob"))
	alice, bob := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	aliceThere, bobThere := cluster.DialHost(t, c.Gateway(1), host, who(t, "alice")), cluster.DialHost(t, c.Gateway(0), host, who(t, "bob"))
	here, there := openConversation(t, alice, "bob"), openConversation(t, aliceThere, "bob")
	require.True(t, there.Created)
	require.NotEqual(t, here.Channel, there.Channel)
	both := in(here.Channel)
	both.Kinds = []nostr.Kind{nostr.KindChat}
	both.Tags[0].Values = append(both.Tags[0].Values, there.Channel)
	listen, listenThere := bob.Subscribe(both), bobThere.Subscribe(both)
	say := func(by *cluster.Client, h, content string) *nostr.Event {
		t.Helper()
		return by.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content(content))
	}
	for i := range 3 {
		require.Equal(t, say(alice, here.Channel, strconv.Itoa(i)), listen.Next())
		require.Equal(t, say(aliceThere, there.Channel, strconv.Itoa(i)), listenThere.Next())
	}
	require.Len(t, bob.Query(both), 3)
	require.Len(t, bobThere.Query(both), 3)
	require.False(t, alice.Publish(alice.Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(there.Channel))).OK)
	hideConversation(t, alice, here.Channel)
	require.Len(t, alice.Query(hiding(t, "alice")), 1)
	require.Empty(t, aliceThere.Query(hiding(t, "alice")))

	// Whoever is removed from the community reads nothing of it any more, and reads on once it is back.
	c.RemoveMember(t, host, who(t, "bob"))
	missed := say(aliceThere, there.Channel, "after")
	if stored, err := bobThere.TryQuery(both); err == nil {
		require.Empty(t, stored)
	}
	for frame := range listenThere.Rest() {
		require.NotEqual(t, wire.LabelEvent, frame.Label, "an event after the removal")
	}
	require.Equal(t, say(alice, here.Channel, "on"), listen.Next())
	c.PutMember(t, host, who(t, "bob"))
	back := cluster.DialHost(t, c.Gateway(1), host, who(t, "bob"))
	stored := back.Query(both)
	require.Len(t, stored, 4)
	require.Contains(t, stored, missed)
}

// conversationsAreOpenedOnce has all who are in a conversation open it at the same time over all gateways.
func conversationsAreOpenedOnce(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	names := []string{"alice", "bob", "carol"}
	participants := []nostrtest.Option{nostrtest.Kind(nostr.KindOpenConversation)}
	for _, name := range names {
		participants = append(participants, pubkey(who(t, name)))
	}
	verdicts := make([]cluster.Verdict, 2*len(names))
	var all errgroup.Group
	for i := range verdicts {
		by := cluster.Dial(t, c.Gateway(i), who(t, names[i%len(names)]))
		open := by.Event(append(slices.Clip(participants), unique())...)
		all.Go(func() (err error) {
			verdicts[i], err = by.TryPublish(open)
			return err
		})
	}
	require.NoError(t, all.Wait())
	created, first := 0, readConversation(t, verdicts[0])
	for _, verdict := range verdicts {
		o := readConversation(t, verdict)
		require.Equal(t, first.Channel, o.Channel)
		if o.Created {
			created++
		}
	}
	require.Equal(t, 1, created)
}
