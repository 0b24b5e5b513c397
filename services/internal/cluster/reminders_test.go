package cluster_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// remindIn is a reminder that is due in so many seconds.
func remindIn(seconds int, d string, opts ...nostrtest.Option) []nostrtest.Option {
	at := strconv.FormatInt(time.Now().Unix()+int64(seconds), 10)
	return append([]nostrtest.Option{
		nostrtest.Kind(nostr.KindReminder), nostrtest.Tag("d", d), nostrtest.Tag("not_before", at), nostrtest.Content("encrypted"),
	}, opts...)
}

// reminders looks at what comes when reminders are due, and to whom: the same event again, on every subscription of its author
// that was there before, and to nobody else by whatever filter.
func reminders(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice, again := cluster.Dial(t, c.Gateway(0), who(t, "alice")), cluster.Dial(t, c.Gateway(1), who(t, "alice"))
	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	own := nostr.Filter{Kinds: []nostr.Kind{nostr.KindReminder}, Authors: []nostr.PubKey{nostrtest.PubKey(who(t, "alice"))}}
	subs := []*cluster.Sub{alice.Subscribe(own), again.Subscribe(own), alice.Subscribe(own, by(who(t, "alice")))}
	bobs := bob.Subscribe(by(who(t, "alice")))
	come := func(want *nostr.Event) {
		t.Helper()
		for _, s := range subs {
			require.Equal(t, want, s.Next())
		}
	}

	toBob := pubkey(who(t, "bob"))
	tea := alice.Accept(remindIn(6, "tea", toBob)...)
	come(tea)
	done := alice.Accept(remindIn(6, "done")...)
	come(done)
	snoozed := alice.Accept(remindIn(6, "snoozed")...)
	come(snoozed)
	deleted := alice.Accept(remindIn(6, "deleted")...)
	come(deleted)
	second := alice.Accept(remindIn(9, "second")...)
	come(second)
	later := nostrtest.CreatedAt(time.Now().Unix() + 2)
	come(alice.Accept(nostrtest.Kind(nostr.KindReminder), nostrtest.Tag("d", "done"), later))
	come(alice.Accept(remindIn(3600, "snoozed", later)...))
	deletion := alice.Accept(nostrtest.Kind(nostr.KindDeletion), nostrtest.Tag("a", "30300:"+nostrtest.PubKey(who(t, "alice")).String()+":deleted"), later)
	require.Equal(t, deletion, subs[2].Next())

	come(tea)
	late := again.Subscribe(own)
	require.Len(t, late.Stored, 4, "what has come is stored as before")
	come(second)
	require.Equal(t, second, late.Next())
	for _, s := range append(subs, late) {
		s.Silent()
	}

	// Nobody else learns of it: not live, not by its id, not by a count, nor by what it names.
	require.Equal(t, deletion, bobs.Next())
	bobs.Silent()
	for name, f := range map[string]nostr.Filter{
		"by id": {IDs: []nostr.ID{tea.ID}}, "by author": by(who(t, "alice")),
		"by p": {Tags: []nostr.TagCondition{{Name: 'p', Values: []string{nostrtest.PubKey(who(t, "bob")).String()}}}},
		"by d": {Tags: []nostr.TagCondition{{Name: 'd', Values: []string{"tea"}}}},
	} {
		for _, e := range bob.Query(f) {
			require.NotEqual(t, nostr.KindReminder, e.Kind, name)
		}
	}
	require.Zero(t, bob.Count(nostr.Filter{IDs: []nostr.ID{tea.ID}}))
	byID := `[{"ids":["` + tea.ID.String() + `"]}]`
	require.Equal(t, []*nostr.Event{tea}, query(t, c.Gateway(0), "localhost", who(t, "alice"), byID))
	require.Empty(t, query(t, c.Gateway(0), "localhost", who(t, "bob"), byID))
	status, answer := ask(t, c.Gateway(0), "localhost", who(t, "bob"), "/query", `[{"kinds":[30300]}]`)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, answer, "author-only kinds require authors=[self]")
	require.Equal(t, "restricted: author-only kinds require authors=[self]", bob.Refused(own))
	verdict := alice.Publish(alice.Event(remindIn(1, "")...))
	require.Equal(t, "invalid: empty d tag", verdict.Message)
}

// Whichever replica of ingest dies, and while all are away, each reminder comes once: at its time, or as soon as there is
// somebody to pass it on.
func TestRemindersOutliveWhoPassesThemOn(t *testing.T) {
	c := cluster.New(t, cluster.Gateways(2), cluster.Ingests(2))
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	s := cluster.Dial(t, c.Gateway(1), who(t, "alice")).Subscribe(nostr.Filter{
		Kinds: []nostr.Kind{nostr.KindReminder}, Authors: []nostr.PubKey{nostrtest.PubKey(who(t, "alice"))},
	})
	const each, waves = 10, 4
	awaited := map[nostr.ID]bool{}
	for wave := range waves {
		for i := range each {
			event := alice.Accept(remindIn(8+wave, strconv.Itoa(wave)+"-"+strconv.Itoa(i))...)
			require.Equal(t, event.ID, s.Next().ID)
			awaited[event.ID] = true
		}
	}
	take := func(n int) {
		t.Helper()
		for range n {
			id := s.Next().ID
			require.True(t, awaited[id], "it is due, and comes once")
			delete(awaited, id)
		}
	}
	take(each / 2)
	c.Kill(t, "ingest-1")
	take(each)
	c.Restart(t, "ingest-1")
	c.Kill(t, "ingest-2")
	take(each)
	c.Kill(t, "ingest-1")
	<-time.After(time.Second) // all are due, and nobody is there
	c.Restart(t, "ingest-1")
	c.Restart(t, "ingest-2")
	take(len(awaited))
	last := alice.Event(remindIn(5, "last")...)
	_, err := alice.Persist(func() string { return c.Gateway(0) }, last)
	require.NoError(t, err)
	require.Equal(t, last.ID, s.Next().ID)
	require.Equal(t, last.ID, s.Next().ID)
	s.Silent()
}
