package cluster_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// present filters on the presence of users.
func present(names ...string) nostr.Filter {
	f := by(names...)
	f.Kinds = []nostr.Kind{nostr.KindPresence}
	return f
}

// announce publishes a status.
func announce(c *cluster.Client, status string) *nostr.Event {
	return c.Accept(nostrtest.Kind(nostr.KindPresence), nostrtest.Content(status))
}

// said returns what an answer says of a user, whom it is about, or who has signed it.
func said(t *testing.T, events []*nostr.Event) map[nostr.PubKey]string {
	t.Helper()
	statuses := make(map[nostr.PubKey]string)
	for _, e := range events {
		require.Equal(t, nostr.KindPresence, e.Kind)
		require.Equal(t, nostrtest.PubKey(cluster.RelayKey), e.PubKey, "signed by the relay")
		require.InDelta(t, time.Now().Unix(), e.CreatedAt, 30)
		value, ok := e.Tags.First("p")
		require.True(t, ok)
		subject, err := nostr.ParsePubKey(value)
		require.NoError(t, err)
		require.NotContains(t, statuses, subject, "each once")
		statuses[subject] = e.Content
	}
	return statuses
}

// requireDeparture waits for the relay to say that a user has left.
func requireDeparture(t *testing.T, s *cluster.Sub, name string) {
	t.Helper()
	require.Equal(t, map[nostr.PubKey]string{nostrtest.PubKey(name): "offline"}, said(t, []*nostr.Event{nextOf(s, name)}))
}

// nextOf returns the next live event that one of the users has signed, or the relay about them: users of other cases
// leave whenever they like.
func nextOf(s *cluster.Sub, names ...string) *nostr.Event {
	for {
		event := s.Next()
		about, _ := event.Tags.First("p")
		if slices.ContainsFunc(names, func(name string) bool {
			key := nostrtest.PubKey(name)
			return event.PubKey == key || about == key.String()
		}) {
			return event
		}
	}
}

func presence(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bob := who(t, "alice"), who(t, "bob")
	watcher := cluster.Dial(t, c.Gateway(1), bob)
	require.Empty(t, watcher.Query(present(alice)))
	// Whoever asks for alice's presence, for anybody's, or for what is about her, hears of it.
	everybody := nostr.Filter{Kinds: []nostr.Kind{nostr.KindPresence}, Limit: new(int)}
	about := everybody
	about.Tags = []nostr.TagCondition{{Name: 'p', Values: []string{nostrtest.PubKey(alice).String()}}}
	subs := []*cluster.Sub{watcher.Subscribe(present(alice)), watcher.Subscribe(about)}

	first, second := cluster.Dial(t, c.Gateway(0), alice), cluster.Dial(t, c.Gateway(1), alice)
	event := announce(first, "online")
	require.Equal(t, event, subs[0].Next())
	online := map[nostr.PubKey]string{nostrtest.PubKey(alice): "online"}
	require.Equal(t, online, said(t, watcher.Query(present(alice))), "at once, wherever it is asked")
	require.EqualValues(t, 1, watcher.Count(present(alice)))

	all := watcher.Subscribe(everybody)
	require.Empty(t, all.Stored)
	first.Close()
	// Another connection is there, although it has never announced anything: alice stays. What bob announces
	// comes after anything that could have been said of her.
	marker := announce(watcher, "marker")
	require.Equal(t, marker, nextOf(all, alice, bob))
	require.Equal(t, online, said(t, watcher.Query(present(alice))))

	second.Close()
	for _, s := range append(subs, all) {
		requireDeparture(t, s, alice)
	}
	require.Empty(t, watcher.Query(present(alice)))
	require.Zero(t, watcher.Count(present(alice)))

	// Who comes back silently is not present: what was announced has ended with the last connection.
	third := cluster.Dial(t, c.Gateway(0), alice)
	require.Empty(t, third.Query(present(alice)))
	announce(third, "away")
	require.Equal(t, map[nostr.PubKey]string{nostrtest.PubKey(alice): "away"}, said(t, watcher.Query(present(alice))))
}

func latestStatus(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := who(t, "alice")
	first, second := cluster.Dial(t, c.Gateway(0), alice), cluster.Dial(t, c.Gateway(1), alice)
	watcher := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	status := func() string { return said(t, watcher.Query(present(alice)))[nostrtest.PubKey(alice)] }
	for i, step := range []struct {
		by            *cluster.Client
		content, want string
	}{
		{first, "online", "online"},
		{second, "away", "away"},
		{first, `{"status":"in a meeting"}`, "in a meeting"},
		{second, "offline", ""},
		{first, " online\n", "online"},
		{second, strings.Repeat("é", 100), strings.Repeat("é", 64)},
	} {
		announce(step.by, step.content)
		require.Equal(t, step.want, status(), "step %d", i)
	}
	// What was said last on one connection holds as long as another one is there.
	announce(first, "away")
	first.Close()
	require.Equal(t, "away", status())

	// In a channel, it is said to that channel only.
	h := channelID(t)
	second.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h))
	second.Accept(nostrtest.Kind(nostr.KindPresence), nostrtest.Channel(h), nostrtest.Content("here"))
	require.Equal(t, "away", status())
	f := in(h)
	f.Kinds = []nostr.Kind{nostr.KindPresence}
	require.Empty(t, watcher.Query(f))
}

func bulkPresence(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	var names []string
	want := make(map[nostr.PubKey]string)
	for i := range 12 {
		name := who(t, fmt.Sprint("user", i))
		names = append(names, name)
		if user := cluster.Dial(t, c.Gateway(i), name); i%3 > 0 {
			want[nostrtest.PubKey(name)] = fmt.Sprint("status ", i)
			announce(user, want[nostrtest.PubKey(name)])
		}
	}
	watcher := cluster.Dial(t, c.Gateway(1), who(t, "watcher"))
	require.Equal(t, want, said(t, watcher.Query(present(names...))))

	// Filters are OR-ed, and other kinds are answered from what is stored.
	snapshot, profile := present(names[1], names[2]), by(who(t, "watcher"))
	snapshot.Kinds = []nostr.Kind{nostr.KindPresenceSnapshot}
	profile.Kinds = []nostr.Kind{nostr.KindMetadata}
	stored := watcher.Accept(nostrtest.Kind(nostr.KindMetadata), nostrtest.Content("{}"))
	got := watcher.Query(snapshot, profile, present(names[2], names[4]))
	require.Equal(t, stored, got[len(got)-1])
	require.Len(t, said(t, got[:len(got)-1]), 3)
	require.EqualValues(t, 4, watcher.Count(snapshot, profile, present(names[2], names[4])))
	two := 2
	limited := present(names...)
	limited.Limit = &two
	require.Len(t, watcher.Query(limited), 2)
	past := time.Now().Unix() - 60
	before := present(names...)
	before.Until = &past
	require.Empty(t, watcher.Query(before))

	many := nostr.Filter{Kinds: []nostr.Kind{nostr.KindPresence}, Authors: make([]nostr.PubKey, 501)}
	for i := range many.Authors {
		many.Authors[i] = nostr.PubKey{byte(i), byte(i >> 8), 1}
	}
	require.Equal(t, "invalid: presence of more than 500 keys in one request", watcher.Refused(many))

	body := fmt.Sprintf(`[{"kinds":[40902],"authors":["%s","%s"]}]`, nostrtest.PubKey(names[0]), nostrtest.PubKey(names[1]))
	status, answer := cluster.HTTP(t, http.MethodPost, c.Gateway(0), "localhost", "/query",
		http.Header{"Authorization": {cluster.Token(t, "localhost", who(t, "watcher"), "/query", body)}}, body)
	require.Equal(t, http.StatusOK, status, answer)
	var events []struct {
		Kind    int
		Content string
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &events))
	require.Len(t, events, 1)
	require.Equal(t, "status 1", events[0].Content)
	require.Equal(t, 20001, events[0].Kind)
}

func presenceIsSealed(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, bob := who(t, "alice"), who(t, "bob")
	other := c.CreateCommunity(t, "presence.example", alice)
	c.PutMember(t, other, bob)
	there, here := cluster.DialHost(t, c.Gateway(0), other, alice), cluster.Dial(t, c.Gateway(1), alice)
	bobThere, bobHere := cluster.DialHost(t, c.Gateway(1), other, bob), cluster.Dial(t, c.Gateway(0), bob)
	subThere, subHere := bobThere.Subscribe(present(alice)), bobHere.Subscribe(present(alice))
	announce(there, "away")
	require.Equal(t, map[nostr.PubKey]string{nostrtest.PubKey(alice): "away"}, said(t, bobThere.Query(present(alice))))
	require.Empty(t, bobHere.Query(present(alice)))
	announced := announce(here, "online")
	require.Equal(t, announced, subHere.Next(), "and nothing of the other community before it")

	require.Equal(t, "away", subThere.Next().Content)
	there.Close()
	requireDeparture(t, subThere, alice)
	require.Equal(t, map[nostr.PubKey]string{nostrtest.PubKey(alice): "online"}, said(t, bobHere.Query(present(alice))))

	// Somebody who was removed is told nothing, even while the connection lives.
	back := cluster.DialHost(t, c.Gateway(0), other, alice)
	announce(back, "online")
	require.Equal(t, "online", subThere.Next().Content)
	c.RemoveMember(t, other, bob)
	if stored, err := bobThere.TryQuery(present(alice)); err == nil {
		require.Empty(t, stored)
	}
	back.Close()
	here.Close()
	requireDeparture(t, subHere, alice)
	for frame := range subThere.Rest() {
		require.Empty(t, frame.RawEvent, "after the removal")
	}
}

func typing(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, mallory := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "mallory"))
	h := channelID(t)
	alice.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h), nostrtest.Tag("private"))
	f := in(h)
	f.Kinds = []nostr.Kind{nostr.KindTyping}
	member, outsider := alice.Subscribe(f), mallory.Subscribe(f)
	global := mallory.Subscribe(by(who(t, "alice"), who(t, "mallory")))
	event := alice.Accept(nostrtest.Kind(nostr.KindTyping), nostrtest.Channel(h))
	require.Equal(t, event, member.Next())
	require.Empty(t, alice.Query(f), "never stored")

	hidden := mallory.Publish(mallory.Event(nostrtest.Kind(nostr.KindTyping), nostrtest.Channel(h)))
	missing := mallory.Publish(mallory.Event(nostrtest.Kind(nostr.KindTyping), nostrtest.Channel("no-such-channel")))
	require.Equal(t, missing, hidden)
	require.Regexp(t, "^restricted: ", hidden.Message)

	marker := mallory.Accept(nostrtest.Content("marker"))
	require.Equal(t, marker, global.Next(), "and nothing from the channel before it")
	require.Equal(t, alice.Accept(nostrtest.Kind(nostr.KindTyping), nostrtest.Channel(h), nostrtest.Content("again")).ID, member.Next().ID)
	outsider.Silent()

	// Somebody who was removed neither sees who types nor is seen.
	host := c.CreateCommunity(t, "typing.example", who(t, "alice"))
	c.PutMember(t, host, who(t, "bob"))
	owner, bob := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice")), cluster.DialHost(t, c.Gateway(1), host, who(t, "bob"))
	owner.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h))
	own, seen := owner.Subscribe(f), bob.Subscribe(f)
	require.Equal(t, bob.Accept(nostrtest.Kind(nostr.KindTyping), nostrtest.Channel(h)).ID, own.Next().ID)
	seen.Next()
	c.RemoveMember(t, host, who(t, "bob"))
	for i := range 3 {
		typed := owner.Accept(nostrtest.Kind(nostr.KindTyping), nostrtest.Channel(h), nostrtest.Content(strconv.Itoa(i)))
		require.Equal(t, typed.ID, own.Next().ID)
	}
	if verdict, err := bob.TryPublish(bob.Event(nostrtest.Kind(nostr.KindTyping), nostrtest.Channel(h))); err == nil {
		require.Regexp(t, "^restricted: ", verdict.Message)
	}
	for frame := range seen.Rest() {
		require.Empty(t, frame.RawEvent, "after the removal")
	}
}

// A gateway that dies tells nobody: its records expire.
func TestUsersOfAKilledGatewayLeave(t *testing.T) {
	c := cluster.New(t, cluster.Gateways(3), cluster.Ingests(2))
	alice, carol := who(t, "alice"), who(t, "carol")
	watcher := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	announce(cluster.Dial(t, c.Gateway(0), alice), "online")
	announce(cluster.Dial(t, c.Gateway(0), carol), "online")
	cluster.Dial(t, c.Gateway(2), carol)
	s := watcher.Subscribe(present(alice, carol))
	require.Len(t, said(t, s.Stored), 2)

	c.Kill(t, "gateway-1")
	require.Len(t, said(t, watcher.Query(present(alice, carol))), 2, "not before the time is over")
	requireDeparture(t, s, alice)
	require.Equal(t, map[nostr.PubKey]string{nostrtest.PubKey(carol): "online"}, said(t, watcher.Query(present(alice, carol))))
	// The other one's connection holds, over more than the time that what is not repeated lives.
	c.Kill(t, "gateway-3")
	requireDeparture(t, s, carol)
	require.Empty(t, watcher.Query(present(alice, carol)))
	s.Silent()
}

// What NATS has lost gateways report again; meanwhile an answer is an error, and never that nobody is there.
func TestPresenceWithoutNATS(t *testing.T) {
	c := cluster.New(t, cluster.Gateways(2), cluster.Ingests(2))
	alice := who(t, "alice")
	watcher := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	announce(cluster.Dial(t, c.Gateway(0), alice), "online")
	require.Len(t, watcher.Query(present(alice)), 1)

	c.NATS().Stop(t)
	_, err := watcher.TryQuery(present(alice))
	require.ErrorContains(t, err, "error: presence is not known at the moment, try again")
	watcher.Accept(nostrtest.Content("messages go on"))

	c.NATS().Restart(t)
	online := func(events []*nostr.Event) bool { return len(events) == 1 && events[0].Content == "online" }
	watcher.QueryUntil(online, present(alice))
	bucket := c.NATS().Connect(t)
	require.Eventually(t, func() bool { // nothing tells when a gateway reports
		state, err := bucket.BucketState(t.Context(), subject.BucketPresence, time.Now())
		return err == nil && state.Messages == 2
	}, time.Minute, 50*time.Millisecond)
	for _, name := range []string{"ingest-1", "ingest-2"} { // which knew it by themselves
		c.Kill(t, name)
		c.Restart(t, name)
	}
	watcher.QueryUntil(online, present(alice))
}
