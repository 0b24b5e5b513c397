package cluster_test

import (
	"fmt"
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

// testCase is something that holds on every topology.
type testCase struct {
	name string
	run  func(t *testing.T, c *cluster.Cluster)
}

// The cases run on every topology, and so do those in acceptance_test.go. Each uses its own authors and channels, so that
// they share a cluster.
var cases = []testCase{
	{"an accepted event is stored and its repeat is a duplicate", publish},
	{"what is wrong is refused", refusals},
	{"history and live meet without a gap or a repeat", historyMeetsLive},
	{"stored events come newest first, within limits", stored},
	{"the newest version of a replaceable event wins", replaceable},
	{"the newest version of an addressable event wins", addressable},
	{"a deletion removes the author's own events", deletion},
	{"a user is present until the last connection ends", presence},
	{"the latest status of a user counts on every connection", latestStatus},
	{"many users are asked about at once", bulkPresence},
	{"presence stays in its community", presenceIsSealed},
	{"who is typing is shown to who may read the channel", typing},
	{"COUNT counts what is stored", count},
	{"channel and global topics do not mix", topics},
	{"a private channel is invisible to others", privateChannel},
	{"whoever loses a channel gets nothing more and is told", lostChannels},
	{"an invite code opens a private channel", invitesOpenChannels},
	{"a long list of members follows its changes", longLists},
	{"a channel whose creator chose no id gets one", channelsGetIDs},
	{"dm_discovery_events_emitted", conversationsAreFound},
	{"nipdv_hide_then_reopen_updates_snapshot", hideAndReopen},
	{"nipdv_snapshot_is_private_to_owner", snapshotIsPrivate},
	{"nipdv_two_viewers_independent_snapshots", twoSnapshots},
	{"nipdv_ws_req_rejects_third_party", snapshotRefusesOthers},
	{"nipdv_ids_query_rejects_third_party", snapshotByID},
	{"nipdv_explicit_kind_query_forbidden", snapshotByKindAndID},
	{"nipdv_search_rejects_third_party", snapshotBySearch},
	{"dm_does_not_cross_deliver", conversationsStayInTheirCommunity},
	{"whoever opens a conversation first, there is one", conversationsAreOpenedOnce},
	{"a huddle is told where it is held", huddles},
	{"communities are sealed", communities},
	{"whatever door is crossed, nothing passes", crossDoors},
	{"operators make communities and give them away", operators},
	{"an archived community is served to nobody", archiving},
	{"a deleted community leaves nothing but its host", deleting},
	{"a removed member gets nothing more", revocation},
	{"kinds that are not for everybody", notForEverybody},
	{"every gate holds at every door", gate},
	{"a reminder comes again when it is due, to its author", reminders},
	{"an invited key joins, reads, writes, and is removed again", invitation},
	{"invites are made on request, and guessing them is slow", inviteRequests},
	{"a protected event comes from its author only", protectedEvents},
	{"a ban closes the sockets on every gateway", bans},
	{"a removed member loses its sockets on every gateway", removals},
	{"a host that is taken away loses its sockets on every gateway", lostHosts},
	{"agents of a member come and go with it", agentsOfMembers},
	{"agents lose what is live when their attestation ends", boundedAgents},
	{"agents show their owner over HTTP", agentsOverHTTP},
	{"observer frames go between an agent and its owner", frames},
	{"turn metrics are for the agent's owner", metrics},
	{"owners act on what their agents say and do", ownersAct},
	{"agents have quotas", quotas},
	{"who is timed out reads and does not write until it is over", timeouts},
	{"reports are for moderators, who resolve them", reports},
	{"moderators ban keys and events, choose kinds, block networks", management},
	{"a community asks for proof of work", proofOfWork},
	{"nip50_search_returns_results_and_eose", textSearch},
	{"nip50_search_mixed_filters_rejected", mixedSearch},
	{"nip50_search_empty_results", emptySearch},
	{"a count comes with its registers", sketches},
	{"a signed request is done once", signedRequests},
	{"what one door refuses the other refuses in the same words", bothDoors},
	{"events over HTTP are stored, live, and done once", overHTTP},
	{"whoever is invited may join over HTTP", joiningOverHTTP},
	{"stored events come in pages over HTTP", pages},
	{"feed_mentions_do_not_cross", feeds},
	{"members have the names that their profiles claim", names},
	{"channel_window_rows_overlays_and_exact_multiple_exhaustion", windows},
	{"channel_window_rejects_half_cursor_and_client_overlay_kinds", badWindows},
	{"a thread is shown in windows over HTTP", threadWindows},
	{"a reaction and a deletion belong to the channel of their target", followTargets},
	{"a hidden target is a missing one", hiddenTargets},
	{"reply_ingest_pushes_live_thread_summary", threads},
	{"nip10_thread_reply_creates_metadata", threadReplies},
	{"nip10_unknown_parent_rejected", unknownParent},
	{"nip10_root_mismatch_rejected", wrongRoot},
	{"nip10_thread_reply_not_in_top_level", topLevel},
	{"a forum has posts with comments and votes", forum},
	{"the devices of a key tell each other what it has read", readPositions},
}

// who makes a name, and so a key, that no other case uses.
func who(t *testing.T, name string) string {
	t.Helper()
	return t.Name() + "/" + name
}

// by filters on authors.
func by(names ...string) nostr.Filter {
	var f nostr.Filter
	for _, name := range names {
		f.Authors = append(f.Authors, nostrtest.PubKey(name))
	}
	return f
}

// in filters on a channel.
func in(channel string) nostr.Filter {
	return nostr.Filter{Tags: []nostr.TagCondition{{Name: 'h', Values: []string{channel}}}}
}

// channelID makes a channel id that no other case uses.
func channelID(t *testing.T) string {
	t.Helper()
	return strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()[max(0, len(t.Name())-50):])
}

func ids(events []*nostr.Event) []string {
	list := make([]string, len(events))
	for i, event := range events {
		list[i] = event.ID.String()
	}
	return list
}

func publish(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	event := alice.Accept(nostrtest.Content("hello"))
	again := alice.Publish(event)
	require.True(t, again.OK)
	require.Regexp(t, "^duplicate: ", again.Message)

	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	got := bob.Query(by(who(t, "alice")))
	require.Equal(t, []*nostr.Event{event}, got)
}

func refusals(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))

	forged := alice.Event(nostrtest.Content("signed"))
	forged.Sig[0] ^= 1
	require.Regexp(t, "^invalid: ", alice.Publish(forged).Message)

	changed := alice.Event(nostrtest.Content("signed"))
	changed.Content = "not signed"
	require.Regexp(t, "^invalid: ", alice.Publish(changed).Message)

	old := nostrtest.Event(t, who(t, "alice"), nostrtest.CreatedAt(time.Now().Add(-time.Hour).Unix()))
	require.Regexp(t, "^invalid: ", alice.Publish(old).Message)

	require.Regexp(t, "^restricted: ", alice.Publish(alice.Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel("no-such-channel"))).Message)
	require.Empty(t, alice.Query(by(who(t, "alice"), who(t, "bob"))))
}

func historyMeetsLive(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const before, after = 20, 60
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	var want []string
	for i := range before {
		want = append(want, alice.Accept(nostrtest.Content(strconv.Itoa(i))).ID.String())
	}
	published := make(chan []string)
	go func() {
		var list []string
		for i := range after {
			event := alice.Event(nostrtest.Content(strconv.Itoa(before + i)))
			if verdict, err := alice.TryPublish(event); err == nil && verdict.OK {
				list = append(list, event.ID.String())
			}
		}
		published <- list
	}()
	// Subscriptions open while the events pour in; each has them all in its history and its live part.
	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	var subs []*cluster.Sub
	for range 5 {
		subs = append(subs, bob.Subscribe(by(who(t, "alice"))))
	}
	want = append(want, <-published...)
	require.Len(t, want, before+after)
	for _, s := range subs {
		got := ids(s.Stored)
		for len(got) < len(want) {
			got = append(got, s.Next().ID.String())
		}
		require.ElementsMatch(t, want, got)
	}
	last := alice.Accept(nostrtest.Content("last"))
	for _, s := range subs {
		require.Equal(t, last.ID, s.Next().ID, "a repeat")
	}
}

func stored(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	now := time.Now().Unix()
	var events []*nostr.Event
	for i := range 6 {
		events = append(events, alice.Accept(nostrtest.CreatedAt(now-10+int64(i)), nostrtest.Tag("t", fmt.Sprint("tag", i%2)), nostrtest.Tag("t", who(t, "both"))))
	}
	newestFirst := func(indexes ...int) (list []string) {
		for _, i := range indexes {
			list = append(list, events[i].ID.String())
		}
		return list
	}
	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	author := by(who(t, "alice"))
	require.Equal(t, newestFirst(5, 4, 3, 2, 1, 0), ids(bob.Query(author)))

	two := 2
	limited := author
	limited.Limit = &two
	require.Equal(t, newestFirst(5, 4), ids(bob.Query(limited)))

	since, until := now-8, now-6
	window := author
	window.Since, window.Until = &since, &until
	require.Equal(t, newestFirst(4, 3, 2), ids(bob.Query(window)))

	tagged := author
	tagged.Tags = []nostr.TagCondition{{Name: 't', Values: []string{"tag1"}}}
	require.Equal(t, newestFirst(5, 3, 1), ids(bob.Query(tagged)))

	byID := nostr.Filter{IDs: []nostr.ID{events[2].ID}}
	require.Equal(t, newestFirst(5, 3, 2, 1), ids(bob.Query(byID, tagged)))

	zero := 0
	none := author
	none.Limit = &zero
	s := bob.Subscribe(none)
	require.Empty(t, s.Stored)
	require.Equal(t, alice.Accept(nostrtest.Content("live")).ID, s.Next().ID)
	require.Empty(t, bob.Query(nostr.Filter{MatchesNothing: true}))
}

func replaceable(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	now := time.Now().Unix()
	profile := func(name string, at int64) *nostr.Event {
		return alice.Event(nostrtest.Kind(nostr.KindMetadata), nostrtest.CreatedAt(at), nostrtest.Content(`{"name":"`+name+`"}`))
	}
	first, second, stale := profile("first", now-5), profile("second", now-3), profile("stale", now-4)
	require.True(t, alice.Publish(first).OK)
	require.True(t, alice.Publish(second).OK)
	verdict := alice.Publish(stale)
	require.True(t, verdict.OK)
	require.Regexp(t, "^duplicate: ", verdict.Message)
	require.Equal(t, []*nostr.Event{second}, alice.Query(by(who(t, "alice"))))
}

func addressable(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	now := time.Now().Unix()
	article := func(d, content string, at int64) *nostr.Event {
		return alice.Event(nostrtest.Kind(nostr.KindArticle), nostrtest.CreatedAt(at), nostrtest.Tag("d", d), nostrtest.Content(content))
	}
	one, two, newer := article("one", "a", now-5), article("two", "b", now-4), article("one", "c", now-3)
	for _, event := range []*nostr.Event{one, two, newer} {
		require.True(t, alice.Publish(event).OK)
	}
	require.Equal(t, []string{newer.ID.String(), two.ID.String()}, ids(alice.Query(by(who(t, "alice")))))
}

func deletion(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	mallory := cluster.Dial(t, c.Gateway(1), who(t, "mallory"))
	kept, gone := alice.Accept(nostrtest.Content("kept")), alice.Accept(nostrtest.Content("gone"))
	mallory.Publish(mallory.Event(nostrtest.Kind(nostr.KindDeletion), nostrtest.Tag("e", kept.ID.String())))
	alice.Accept(nostrtest.Kind(nostr.KindDeletion), nostrtest.Tag("e", gone.ID.String()))

	texts := by(who(t, "alice"))
	texts.Kinds = []nostr.Kind{nostr.KindText}
	require.Equal(t, []string{kept.ID.String()}, ids(mallory.Query(texts)))
	alice.Publish(gone)
	require.Equal(t, []string{kept.ID.String()}, ids(mallory.Query(texts)), "a deleted event came back")
}

func count(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	for i := range 3 {
		alice.Accept(nostrtest.Content(strconv.Itoa(i)))
	}
	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	require.EqualValues(t, 3, bob.Count(by(who(t, "alice"))))
	require.Zero(t, bob.Count(by(who(t, "bob"))))
}

func topics(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	h := channelID(t)
	alice.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h))
	bob := cluster.Dial(t, c.Gateway(1), who(t, "bob"))
	chat := in(h)
	chat.Kinds = []nostr.Kind{nostr.KindChat}
	texts := by(who(t, "alice"))
	texts.Kinds = []nostr.Kind{nostr.KindText, nostr.KindChat}
	channel, global := bob.Subscribe(chat), bob.Subscribe(texts)

	said := alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content("in the channel"))
	noted := alice.Accept(nostrtest.Content("global"))
	require.Equal(t, said, channel.Next())
	require.Equal(t, noted, global.Next())
	// A second event on each topic shows that nothing else came before it.
	said, noted = alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content("again")), alice.Accept(nostrtest.Content("again"))
	require.Equal(t, said, channel.Next())
	require.Equal(t, noted, global.Next())
	require.Len(t, bob.Query(texts), 4, "a stored read without #h includes channel events")
	require.Regexp(t, "^invalid: ", bob.Refused(in("not a channel id")))
}

func privateChannel(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	mallory := cluster.Dial(t, c.Gateway(1), who(t, "mallory"))
	h := channelID(t)
	alice.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(h), nostrtest.Tag("private"))

	member, outsider := alice.Subscribe(in(h)), mallory.Subscribe(in(h))
	outsiderAll := mallory.Subscribe(by(who(t, "alice"), who(t, "mallory")))
	secret := alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h), nostrtest.Content("secret"))
	require.Equal(t, secret, member.Next())

	require.Empty(t, mallory.Query(in(h)))
	require.Empty(t, mallory.Query(nostr.Filter{IDs: []nostr.ID{secret.ID}}))
	require.Empty(t, mallory.Query(by(who(t, "alice"))))
	require.Zero(t, mallory.Count(in(h)))
	hidden := mallory.Publish(mallory.Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h)))
	missing := mallory.Publish(mallory.Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel("no-such-channel")))
	require.Equal(t, missing, hidden, "a hidden channel must look like one that does not exist")
	require.False(t, hidden.OK)

	// What mallory publishes now arrives after anything that could have leaked.
	marker := mallory.Accept(nostrtest.Content("marker"))
	require.Equal(t, marker.ID, outsiderAll.Next().ID)
	require.Equal(t, alice.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(h)).ID, member.Next().ID)
	outsider.Silent()
}

func communities(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	// The second community is closed; alice is its owner.
	other := c.CreateCommunity(t, "other.example", who(t, "alice"))
	alice := cluster.DialHost(t, c.Gateway(0), other, who(t, "alice"))
	event := alice.Accept(nostrtest.Content("in the other community"))
	require.Len(t, alice.Query(by(who(t, "alice"))), 1)

	here := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	s := here.Subscribe(by(who(t, "alice")))
	require.Empty(t, s.Stored)
	require.Empty(t, here.Query(nostr.Filter{IDs: []nostr.ID{event.ID}}))
	alice.Accept(nostrtest.Content("again"))
	require.Equal(t, here.Accept(nostrtest.Content("here")).ID, s.Next().ID)

	mallory := cluster.ConnectHost(t, c.Gateway(1), other, who(t, "mallory"))
	if mallory.Authenticate("ws://" + other).OK {
		require.Regexp(t, "^restricted: ", mallory.Publish(mallory.Event()).Message)
		require.Regexp(t, "^restricted: ", mallory.Refused(by(who(t, "alice"))))
	}
}

func revocation(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	host := c.CreateCommunity(t, "revocation.example", who(t, "alice"))
	c.PutMember(t, host, who(t, "bob"))
	alice := cluster.DialHost(t, c.Gateway(0), host, who(t, "alice"))
	own := alice.Subscribe(by(who(t, "alice")))
	bob := cluster.DialHost(t, c.Gateway(1), host, who(t, "bob"))
	s := bob.Subscribe(by(who(t, "alice")))
	before := alice.Accept(nostrtest.Content("before"))
	require.Equal(t, before, s.Next())
	require.Equal(t, before, own.Next())

	c.RemoveMember(t, host, who(t, "bob"))
	for i := range 5 {
		require.Equal(t, alice.Accept(nostrtest.Content(fmt.Sprint("after ", i))), own.Next())
	}
	// The relay refuses bob, or has closed his connection; what he reads is empty until it does.
	if verdict, err := bob.TryPublish(bob.Event()); err == nil {
		require.Regexp(t, "^restricted: ", verdict.Message)
	}
	if stored, err := bob.TryQuery(by(who(t, "alice"))); err == nil {
		require.Empty(t, stored)
	}
	for frame := range s.Rest() {
		require.NotEqual(t, wire.LabelEvent, frame.Label, "an event after the removal")
	}
}
