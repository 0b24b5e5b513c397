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

// crossing is two communities that are as alike as can be: the same keys, channel, d tags and, where it is possible, the
// same events.
type crossing struct {
	*twins
	h    string          // a private channel of both, made by the same event
	same *nostr.Event    // a message in it, the same one in both
	said [2]*nostr.Event // another message, of each its own
	tale [2]*nostr.Event // an article of the same d tag, of each its own, the first one newer
}

// doors are the ways in. Each is tried with what belongs to the other community, and with what belongs to its own,
// so that a door that is closed for everybody is not taken for one that is guarded.
var doors = []struct {
	name string
	try  func(t *testing.T, x *crossing)
}{
	{"AUTH", crossAuth},
	{"REQ and COUNT", crossStored},
	{"live", crossLive},
	{"HTTP", crossHTTP},
	{"presence", crossPresence},
	{"search", crossSearch},
	{"moderation", crossModeration},
	{"bans", crossBans},
	{"invites", crossInvites},
	{"names", crossNames},
	{"reactions", crossReactions},
	{"threads", crossThreads},
	{"deletes", crossDeletes},
	{"requests to vanish", crossVanishing},
	{"channels", crossChannels},
	{"rosters", crossRosters},
}

func crossDoors(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	x := &crossing{twins: newTwins(t, c, "doors"), h: "f3b1c6de-3b6f-4c0f-8a51-5d8f0a0c7e11"}
	x.both(x.alice, nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(x.h), nostrtest.Tag("name", "Hall"), nostrtest.Tag("private"))
	x.both(x.alice, nostrtest.Kind(nostr.KindPutUser), nostrtest.Channel(x.h), pubkey(x.name("bob")))
	x.same = x.both(x.alice, x.chat("marmalade for everybody")...)
	now := time.Now().Unix()
	for i := range x.hosts {
		x.said[i] = x.alice[i].Accept(x.chat("only at " + x.hosts[i])...)
		x.tale[i] = x.alice[i].Accept(nostrtest.Kind(nostr.KindArticle), nostrtest.Tag("d", "tale"), nostrtest.CreatedAt(now-int64(i)), nostrtest.Content(x.hosts[i]))
	}
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) { door.try(t, x) })
	}
}

// name is a key of this crossing, whatever subtest asks.
func (x *crossing) name(name string) string { return who(x.T, name) }

// chat makes a message of the channel.
func (x *crossing) chat(content string, more ...nostrtest.Option) []nostrtest.Option {
	return append(more, nostrtest.Kind(nostr.KindChat), nostrtest.Channel(x.h), nostrtest.Content(content))
}

// both has both communities accept one event.
func (x *crossing) both(by [2]*cluster.Client, opts ...nostrtest.Option) *nostr.Event {
	x.Helper()
	event := by[0].Event(opts...)
	for _, client := range by {
		require.Equal(x.T, cluster.Verdict{OK: true}, client.Publish(event))
	}
	return event
}

// join makes a key a member of both communities and of the channel in both, and connects it.
func (x *crossing) join(name string) (clients [2]*cluster.Client) {
	x.Helper()
	for i, host := range x.hosts {
		x.c.PutMember(x.T, host, x.name(name))
		x.alice[i].Accept(nostrtest.Kind(nostr.KindPutUser), nostrtest.Channel(x.h), pubkey(x.name(name)))
		clients[i] = cluster.DialHost(x.T, x.c.Gateway(1), host, x.name(name))
	}
	return clients
}

// messages filters on the channel's messages.
func (x *crossing) messages() nostr.Filter {
	f := in(x.h)
	f.Kinds = []nostr.Kind{nostr.KindChat}
	return f
}

func crossAuth(t *testing.T, x *crossing) {
	t.Helper()
	for i, host := range x.hosts {
		astray := cluster.ConnectHost(t, x.c.Gateway(i), host, x.name("bob"))
		require.False(t, astray.Authenticate("ws://"+x.hosts[1-i]).OK)
		require.True(t, cluster.ConnectHost(t, x.c.Gateway(i), host, x.name("bob")).Authenticate("ws://"+host).OK)
	}
}

func crossStored(t *testing.T, x *crossing) {
	t.Helper()
	tale := nostr.Filter{Kinds: []nostr.Kind{nostr.KindArticle}, Tags: []nostr.TagCondition{{Name: 'd', Values: []string{"tale"}}}}
	everything := by(x.name("alice"))
	everything.Kinds = []nostr.Kind{nostr.KindChat, nostr.KindArticle}
	for i, bob := range x.bob {
		own, other := x.said[i], x.said[1-i]
		for _, tt := range []struct {
			filter nostr.Filter
			want   []*nostr.Event
		}{
			{nostr.Filter{IDs: []nostr.ID{own.ID, other.ID, x.same.ID}}, []*nostr.Event{own, x.same}},
			{nostr.Filter{IDs: []nostr.ID{other.ID}}, nil},
			{nostr.Filter{IDs: []nostr.ID{x.tale[1-i].ID}}, nil},
			{x.messages(), []*nostr.Event{own, x.same}},
			{tale, x.tale[i : i+1]},
			{everything, []*nostr.Event{own, x.same, x.tale[i]}},
		} {
			require.ElementsMatch(t, tt.want, bob.Query(tt.filter))
			require.EqualValues(t, len(tt.want), bob.Count(tt.filter))
		}
	}
}

func crossLive(t *testing.T, x *crossing) {
	t.Helper()
	global := by(x.name("alice"))
	global.Kinds = []nostr.Kind{nostr.KindText, nostr.KindTyping}
	typing := in(x.h)
	typing.Kinds = []nostr.Kind{nostr.KindTyping, nostr.KindChat}
	var channels, globals [2]*cluster.Sub
	for i, bob := range x.bob {
		for _, f := range []*nostr.Filter{&global, &typing} {
			f.Limit = new(int)
		}
		channels[i], globals[i] = bob.Subscribe(typing), bob.Subscribe(global)
	}
	// Each round says something on one side, and something on both.
	for round := range 4 {
		side, text := round%2, "round "+strconv.Itoa(round)
		typed := x.alice[side].Accept(nostrtest.Kind(nostr.KindTyping), nostrtest.Channel(x.h), nostrtest.Content(text))
		noted := x.alice[side].Accept(nostrtest.Content(text))
		require.Equal(t, typed, channels[side].Next())
		require.Equal(t, noted, globals[side].Next())
		message, note := x.both(x.alice, x.chat(text)...), x.both(x.alice, nostrtest.Content("both "+text))
		for i := range x.hosts {
			require.Equal(t, message, channels[i].Next(), "and nothing of the other side before it")
			require.Equal(t, note, globals[i].Next(), "and nothing of the other side before it")
		}
		x.alice[0].Accept(nostrtest.Kind(nostr.KindDeletion), to(message))
		x.alice[1].Accept(nostrtest.Kind(nostr.KindDeletion), to(message))
	}
}

func crossHTTP(t *testing.T, x *crossing) {
	t.Helper()
	body := `[{"kinds":[9],"#h":["` + x.h + `"]}]`
	for i, host := range x.hosts {
		want := []*nostr.Event{x.said[i], x.same}
		require.ElementsMatch(t, want, query(t, x.c.Gateway(0), host, x.name("bob"), body))
		window := query(t, x.c.Gateway(1), host, x.name("bob"), `[{"kinds":[9],"#h":["`+x.h+`"],"top_level":true}]`)
		require.Len(t, window, 3, "two messages, and the bounds of the window")
		require.ElementsMatch(t, want, window[:2])
		post := func(path, token string) (int, string) {
			return cluster.HTTP(t, http.MethodPost, x.c.Gateway(0), host, path, http.Header{"Authorization": {token}}, body)
		}
		status, answer := post("/count", cluster.Token(t, host, x.name("bob"), "/count", body))
		require.Equal(t, http.StatusOK, status, answer)
		require.Contains(t, answer, `"count":2,`)
		for _, path := range []string{"/query", "/count"} { // with what was signed for the other host
			status, answer = post(path, cluster.Token(t, x.hosts[1-i], x.name("bob"), path, body))
			require.Equal(t, http.StatusUnauthorized, status, answer)
		}
		note := x.bob[i].Event(nostrtest.Content("by HTTP at " + host))
		require.True(t, postTo(t, x, i, note).Accepted)
		byID := nostr.Filter{IDs: []nostr.ID{note.ID}}
		require.Equal(t, []*nostr.Event{note}, x.alice[i].Query(byID))
		require.Empty(t, x.alice[1-i].Query(byID))
	}
	// What one community has is no duplicate in the other.
	both := x.bob[0].Event(nostrtest.Content("at both hosts"))
	for i := range x.hosts {
		require.Equal(t, posted{Status: http.StatusOK, EventID: both.ID.String(), Accepted: true}, postTo(t, x, i, both))
	}
}

func postTo(t *testing.T, x *crossing, side int, event *nostr.Event) posted {
	t.Helper()
	return post(t, x.c.Gateway(side), x.hosts[side], x.name("bob"), event)
}

func crossPresence(t *testing.T, x *crossing) {
	t.Helper()
	alice := x.name("alice")
	asked := present(alice)
	require.Empty(t, x.bob[1].Query(asked))
	heard := x.bob[1].Subscribe(asked)
	announce(x.alice[0], "away")
	require.Equal(t, map[nostr.PubKey]string{nostrtest.PubKey(alice): "away"}, said(t, x.bob[0].Query(asked)))
	require.Empty(t, x.bob[1].Query(asked))
	require.Zero(t, x.bob[1].Count(asked))
	require.JSONEq(t, `[]`, presenceOver(t, x, 1))
	require.Contains(t, presenceOver(t, x, 0), `"away"`)
	online := announce(x.alice[1], "online")
	require.Equal(t, online, heard.Next(), "and nothing of the other side before it")
	require.Equal(t, map[nostr.PubKey]string{nostrtest.PubKey(alice): "online"}, said(t, x.bob[1].Query(asked)))
	require.Equal(t, map[nostr.PubKey]string{nostrtest.PubKey(alice): "away"}, said(t, x.bob[0].Query(asked)))
}

// presenceOver is what one community says over HTTP of alice's presence.
func presenceOver(t *testing.T, x *crossing, side int) string {
	t.Helper()
	body := `[{"kinds":[40902],"authors":["` + nostrtest.PubKey(x.name("alice")).String() + `"]}]`
	status, answer := cluster.HTTP(t, http.MethodPost, x.c.Gateway(0), x.hosts[side], "/query",
		http.Header{"Authorization": {cluster.Token(t, x.hosts[side], x.name("bob"), "/query", body)}}, body)
	require.Equal(t, http.StatusOK, status, answer)
	return answer
}

func crossSearch(t *testing.T, x *crossing) {
	t.Helper()
	words := [2]string{"bergamot", "clementine"}
	var messages [2]*nostr.Event
	for i, word := range words {
		messages[i] = x.alice[i].Accept(x.chat(word + " marmalade")...)
	}
	for i, bob := range x.bob {
		found := func(word string) nostr.Filter { return nostr.Filter{Search: word} }
		// Once the later message is found, the earlier one would be, too, wherever it is.
		got := bob.QueryUntil(func(events []*nostr.Event) bool { return len(events) > 0 }, found(words[i]))
		require.Equal(t, []*nostr.Event{messages[i]}, got)
		require.Empty(t, bob.Query(found(words[1-i])))
		require.ElementsMatch(t, []*nostr.Event{messages[i], x.same}, bob.Query(found("marmalade")))
	}
	// What is taken out of one index is not taken out of the other.
	shared := x.both(x.alice, x.chat("kumquat")...)
	kumquat := nostr.Filter{Search: "kumquat"}
	for _, bob := range x.bob {
		bob.QueryUntil(func(events []*nostr.Event) bool { return len(events) == 1 }, kumquat)
	}
	x.alice[0].Accept(nostrtest.Kind(nostr.KindDeletion), to(shared))
	x.bob[0].QueryUntil(func(events []*nostr.Event) bool { return len(events) == 0 }, kumquat)
	require.Equal(t, []*nostr.Event{shared}, x.bob[1].Query(kumquat))
	x.alice[1].Accept(nostrtest.Kind(nostr.KindDeletion), to(shared))
	for i := range x.hosts {
		x.alice[i].Accept(nostrtest.Kind(nostr.KindDeletion), to(messages[i]))
	}
}

func crossReactions(t *testing.T, x *crossing) {
	t.Helper()
	like := func(target nostr.ID, more ...nostrtest.Option) *nostr.Event {
		return x.bob[0].Event(append(more, nostrtest.Kind(nostr.KindReaction), nostrtest.Channel(x.h), nostrtest.Tag("e", target.String()), nostrtest.Content("+"))...)
	}
	missing := x.bob[1].Publish(like(nostr.ID{1}))
	require.False(t, missing.OK)
	require.Equal(t, missing, x.bob[1].Publish(like(x.said[0].ID)), "what is in the other community is missing")
	require.True(t, x.bob[0].Publish(like(x.said[0].ID)).OK)

	liked := in(x.h)
	liked.Kinds = []nostr.Kind{nostr.KindReaction}
	liked.Tags = append(liked.Tags, nostr.TagCondition{Name: 'e', Values: []string{x.same.ID.String()}})
	heard := x.alice[1].Subscribe(liked)
	require.True(t, x.bob[0].Publish(like(x.same.ID)).OK)
	require.Zero(t, x.alice[1].Count(liked))
	own := like(x.same.ID, nostrtest.Tag("k", "9"))
	require.Equal(t, cluster.Verdict{Message: "duplicate: reaction already exists"}, x.bob[0].Publish(own))
	require.Equal(t, cluster.Verdict{OK: true}, x.bob[1].Publish(own), "the reaction on the other side is none here")
	require.Equal(t, own, heard.Next())
	for _, alice := range x.alice {
		require.EqualValues(t, 1, alice.Count(liked))
	}
	// One event that is a reaction in both, and is taken back in one.
	loved := func(serial string) []nostrtest.Option {
		return []nostrtest.Option{nostrtest.Kind(nostr.KindReaction), nostrtest.Channel(x.h), to(x.same), nostrtest.Content("love"), nostrtest.Tag("serial", serial)}
	}
	shared := x.both(x.bob, loved("1")...)
	x.bob[0].Accept(nostrtest.Kind(nostr.KindDeletion), to(shared))
	again := x.bob[0].Event(loved("2")...)
	require.Equal(t, cluster.Verdict{OK: true}, x.bob[0].Publish(again))
	require.Equal(t, cluster.Verdict{Message: "duplicate: reaction already exists"}, x.bob[1].Publish(again))
}

func crossThreads(t *testing.T, x *crossing) {
	t.Helper()
	reply := func(parent *nostr.Event, text string) []nostrtest.Option {
		return x.chat(text, nostrtest.Tag("e", parent.ID.String(), "", "reply"))
	}
	require.Equal(t, cluster.Verdict{Message: "invalid: reply parent not found"}, x.bob[1].Publish(x.bob[1].Event(reply(x.said[0], "astray")...)))
	summaries := in(x.h)
	summaries.Kinds = []nostr.Kind{nostr.KindThreadSummary}
	subs := [2]*cluster.Sub{x.alice[0].Subscribe(summaries), x.alice[1].Subscribe(summaries)}
	// summary is what is said next on one side: how many replies there are, and by whom.
	summary := func(side, replies int, names ...string) {
		event := subs[side].Next()
		require.Contains(t, event.Tags, nostr.Tag{"e", x.same.ID.String()}, "and nothing of the other side before it")
		var content struct {
			Replies int      `json:"reply_count"`
			People  []string `json:"participants"`
		}
		require.NoError(t, json.Unmarshal([]byte(event.Content), &content))
		require.Equal(t, replies, content.Replies)
		var people []string
		for _, name := range names {
			people = append(people, nostrtest.PubKey(x.name(name)).String())
		}
		require.ElementsMatch(t, people, content.People)
	}
	x.bob[0].Accept(reply(x.said[0], "of another thread")...)
	require.Contains(t, subs[0].Next().Tags, nostr.Tag{"e", x.said[0].ID.String()})
	own := [2]*nostr.Event{x.alice[0].Accept(reply(x.same, "left")...), x.bob[1].Accept(reply(x.same, "right")...)}
	summary(0, 1, "alice")
	summary(1, 1, "bob")
	shared := x.both(x.bob, reply(x.same, "both")...)
	summary(0, 2, "alice", "bob")
	summary(1, 2, "bob")
	x.bob[0].Accept(nostrtest.Kind(nostr.KindDeletion), to(shared))
	summary(0, 1, "alice")
	last := x.alice[1].Accept(reply(x.same, "one more")...)
	summary(1, 3, "alice", "bob")
	thread := func(side int, root *nostr.Event) []*nostr.Event {
		return query(t, x.c.Gateway(1), x.hosts[side], x.name("alice"), `[{"#e":["`+root.ID.String()+`"],"#h":["`+x.h+`"],"depth_limit":3}]`)
	}
	require.Equal(t, own[:1], thread(0, x.same))
	require.ElementsMatch(t, []*nostr.Event{own[1], shared, last}, thread(1, x.same))
	require.Len(t, thread(0, x.said[0]), 1)
	require.Empty(t, thread(1, x.said[0]))
}

func crossDeletes(t *testing.T, x *crossing) {
	t.Helper()
	own, moderated := x.both(x.bob, x.chat("bob's own")...), x.both(x.bob, x.chat("bob's, too")...)
	article := x.both(x.bob, nostrtest.Kind(nostr.KindArticle), nostrtest.Tag("d", "gone"))
	banned := x.both(x.bob, nostrtest.Content("off topic"))
	all := nostr.Filter{IDs: []nostr.ID{own.ID, moderated.ID, article.ID, banned.ID}}
	require.Len(t, x.alice[0].Query(all), 4)
	bob := nostrtest.PubKey(x.name("bob")).String()
	x.bob[0].Accept(nostrtest.Kind(nostr.KindDeletion), to(own))
	x.bob[0].Accept(nostrtest.Kind(nostr.KindDeletion), nostrtest.Tag("a", "30023:"+bob+":gone"))
	x.alice[0].Accept(nostrtest.Kind(nostr.KindDeleteEvent), nostrtest.Channel(x.h), to(moderated))
	status, answer := cluster.Manage(t, x.c.Gateway(0), x.hosts[0], x.name("alice"), "banevent", `["`+banned.ID.String()+`"]`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Empty(t, x.alice[0].Query(all))
	require.Len(t, x.alice[1].Query(all), 4)
	for _, event := range []*nostr.Event{own, moderated, article, banned} {
		require.False(t, x.bob[0].Publish(event).OK, "it does not come back")
		verdict := x.bob[1].Publish(event)
		require.True(t, verdict.OK)
		require.Regexp(t, "^duplicate: ", verdict.Message)
	}
	// What exists on one side only cannot be taken from the other, by nobody.
	lone := x.bob[1].Accept(x.chat("alone")...)
	x.bob[0].Accept(nostrtest.Kind(nostr.KindDeletion), to(lone))
	missing := x.alice[0].Publish(x.alice[0].Event(nostrtest.Kind(nostr.KindDeleteEvent), nostrtest.Channel(x.h), nostrtest.Tag("e", nostr.ID{1}.String())))
	require.False(t, missing.OK)
	require.Equal(t, missing, x.alice[0].Publish(x.alice[0].Event(nostrtest.Kind(nostr.KindDeleteEvent), nostrtest.Channel(x.h), to(lone))))
	require.Len(t, x.alice[1].Query(nostr.Filter{IDs: []nostr.ID{lone.ID}}), 1)
}

func crossVanishing(t *testing.T, x *crossing) {
	t.Helper()
	carol := x.join("carol")
	note := x.both(carol, nostrtest.Content("carol was here"))
	byID := nostr.Filter{IDs: []nostr.ID{note.ID}}
	// From everywhere, as she says it here; to the other community she says nothing.
	carol[0].Accept(nostrtest.Kind(nostr.KindVanish), nostrtest.Tag("relay", "ALL_RELAYS"))
	// From the other one, as she says it here: that is for the other one to hear.
	carol[1].Publish(carol[1].Event(nostrtest.Kind(nostr.KindVanish), nostrtest.Tag("relay", "ws://"+x.hosts[0])))
	require.Empty(t, x.alice[0].Query(byID))
	require.Equal(t, []*nostr.Event{note}, x.alice[1].Query(byID))
	require.False(t, carol[0].Publish(note).OK)
	require.Regexp(t, "^duplicate: ", carol[1].Publish(note).Message)
}

func crossChannels(t *testing.T, x *crossing) {
	t.Helper()
	dave := x.join("dave")
	subs := [2]*cluster.Sub{dave[0].Subscribe(x.messages()), dave[1].Subscribe(x.messages())}
	command := func(kind nostr.Kind, more ...nostrtest.Option) {
		x.alice[0].Accept(append(more, nostrtest.Kind(kind), nostrtest.Channel(x.h))...)
	}
	command(nostr.KindPutUser, pubkey(x.name("bob")), nostrtest.Tag("role", "owner"))
	command(nostr.KindEditMetadata, nostrtest.Tag("topic", "oranges"))
	command(nostr.KindRemoveUser, pubkey(x.name("dave")))
	require.Equal(t, wire.LabelClosed, subs[0].NextFrame().Label)
	require.Empty(t, dave[0].Query(x.messages()))
	require.NotEmpty(t, dave[1].Query(x.messages()))
	said := x.alice[1].Accept(x.chat("to dave")...)
	require.Equal(t, said, subs[1].Next())
	state := func(by *cluster.Client, kind nostr.Kind) nostr.Tags {
		found := by.Query(nostr.Filter{Kinds: []nostr.Kind{kind}, Tags: []nostr.TagCondition{{Name: 'd', Values: []string{x.h}}}})
		require.Len(t, found, 1)
		return found[0].Tags
	}
	bob := nostrtest.PubKey(x.name("bob")).String()
	for i, alice := range x.alice {
		role, topic := "owner", 1
		if i == 1 {
			role, topic = "member", 0
		}
		require.Contains(t, state(alice, nostr.KindGroupMembers), nostr.Tag{"p", bob, "", role})
		require.Equal(t, topic, state(alice, nostr.KindGroupMetadata).Count("topic"))
	}
	// Rights are of one side: bob owns the channel there, and not here.
	edit := []nostrtest.Option{nostrtest.Kind(nostr.KindEditMetadata), nostrtest.Channel(x.h), nostrtest.Tag("about", "bob's")}
	require.True(t, x.bob[0].Publish(x.bob[0].Event(edit...)).OK)
	require.False(t, x.bob[1].Publish(x.bob[1].Event(edit...)).OK)
	x.alice[1].Accept(nostrtest.Kind(nostr.KindDeletion), to(said))
	// The end of one is not the end of the other.
	ends, stays := x.alice[0].Subscribe(x.messages()), x.alice[1].Subscribe(x.messages())
	command(nostr.KindDeleteGroup)
	require.Equal(t, wire.LabelClosed, ends.NextFrame().Label)
	require.Empty(t, x.alice[0].Query(x.messages()))
	require.NotEmpty(t, x.alice[1].Query(x.messages()))
	require.Equal(t, x.alice[1].Accept(x.chat("still here")...), stays.Next())
}
