package cluster_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// talk is a channel with messages of one author, who reads it over HTTP.
type talk struct {
	*testing.T
	c      *cluster.Cluster
	h      string
	author *cluster.Client
	now    int64
}

func newTalk(t *testing.T, c *cluster.Cluster, opts ...nostrtest.Option) *talk {
	t.Helper()
	a := &talk{T: t, c: c, h: channelID(t), author: cluster.Dial(t, c.Gateway(0), who(t, "alice")), now: time.Now().Unix()}
	a.author.Accept(append(opts, nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(a.h))...)
	return a
}

// say posts a message, so many seconds ago.
func (a *talk) say(ago int64, opts ...nostrtest.Option) *nostr.Event {
	a.Helper()
	return a.author.Accept(append(opts, nostrtest.Kind(nostr.KindChat), nostrtest.Channel(a.h), nostrtest.CreatedAt(a.now-ago))...)
}

// answers makes the marked e tag of a reply.
func answers(parent *nostr.Event) nostrtest.Option {
	return nostrtest.Tag("e", parent.ID.String(), "", "reply")
}

// read asks for one filter with the channel and these fields, as somebody who is known by a name.
func (a *talk) read(name, fields string) []*nostr.Event {
	a.Helper()
	return query(a.T, a.c.Gateway(1), "localhost", who(a.T, name), `[{"#h":["`+a.h+`"],`+fields+`}]`)
}

// refused is read for what is refused; it returns the reason.
func (a *talk) refused(fields string) string {
	a.Helper()
	status, answer := ask(a.T, a.c.Gateway(1), "localhost", who(a.T, "alice"), "/query", `[{"#h":["`+a.h+`"],`+fields+`}]`)
	require.Equal(a, http.StatusBadRequest, status)
	return answer
}

// window asks for a page of the channel, and takes the bounds off its end.
func (a *talk) window(fields string) (events []*nostr.Event, bounds *nostr.Event) {
	a.Helper()
	events = a.read("alice", `"kinds":[9],"top_level":true,`+fields)
	bounds = events[len(events)-1]
	require.Equal(a, nostr.KindWindowBounds, bounds.Kind)
	require.Equal(a, nostrtest.PubKey(cluster.RelayKey), bounds.PubKey)
	return events[:len(events)-1], bounds
}

// at is the place of an event as it stands in bounds and cursors.
func at(ev *nostr.Event, created, id string) string {
	return `"` + created + `":` + strconv.FormatInt(ev.CreatedAt, 10) + `,"` + id + `":"` + ev.ID.String() + `"`
}

// windows are pages of what a channel shows when no thread is open.
func windows(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := newTalk(t, c, nostrtest.Tag("private"))
	var roots []*nostr.Event
	for i := range 4 {
		roots = append(roots, a.say(int64(i/2), nostrtest.Content(strconv.Itoa(i)))) // two in a second
	}
	slices.SortFunc(roots, func(x, y *nostr.Event) int {
		return strings.Compare(strconv.FormatInt(a.now-x.CreatedAt, 10)+x.ID.String(), strconv.FormatInt(a.now-y.CreatedAt, 10)+y.ID.String())
	})
	reply := a.say(-1, answers(roots[0]))
	like := a.author.Accept(nostrtest.Kind(nostr.KindReaction), nostrtest.Content("+"), to(roots[0]))
	edit := a.author.Accept(nostrtest.Kind(nostr.KindMessageEdit), nostrtest.Channel(a.h), nostrtest.Content("better"), to(roots[1]))

	events, bounds := a.window(`"limit":2,"include_aux":true,"include_summaries":true`)
	require.Equal(t, roots[:2], events[:2], "no reply is a row")
	require.ElementsMatch(t, []*nostr.Event{like, edit}, events[2:4])
	require.Len(t, events, 5)
	summary := events[4]
	require.Equal(t, nostr.KindThreadSummary, summary.Kind)
	require.Equal(t, nostrtest.PubKey(cluster.RelayKey), summary.PubKey)
	require.Equal(t, nostr.Tags{{"e", roots[0].ID.String()}, {"d", roots[0].ID.String()}, {"h", a.h}}, summary.Tags)
	require.JSONEq(t, `{"reply_count":1,"descendant_count":1,"last_reply_at":`+strconv.FormatInt(reply.CreatedAt, 10)+
		`,"participants":["`+reply.PubKey.String()+`"]}`, summary.Content)
	require.Equal(t, nostr.Tags{{"d", a.h + ":head"}, {"h", a.h}}, bounds.Tags)
	require.JSONEq(t, `{"has_more":true,"next_cursor":{`+at(roots[1], "created_at", "id")+`}}`, bounds.Content)

	// The second page is full, and the last one all the same.
	rest, bounds := a.window(`"limit":2,` + at(roots[1], "until", "before_id"))
	require.Equal(t, roots[2:], rest)
	require.Equal(t, nostr.Tags{{"d", a.h + ":" + strconv.FormatInt(roots[1].CreatedAt, 10) + ":" + roots[1].ID.String()}, {"h", a.h}}, bounds.Tags)
	require.JSONEq(t, `{"has_more":false,"next_cursor":null}`, bounds.Content)

	for _, channel := range []string{a.h, a.h + "-none"} {
		require.Empty(t, query(t, c.Gateway(0), "localhost", who(t, "mallory"), `[{"#h":["`+channel+`"],"top_level":true}]`),
			"a hidden channel and one that is not there look the same")
	}
}

func badWindows(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := newTalk(t, c)
	id := strings.Repeat("ab", 32)
	const half = `{"error":"top_level cursor requires both until and before_id, or neither"}`
	require.JSONEq(t, half, a.refused(`"top_level":true,"until":1`))
	require.JSONEq(t, half, a.refused(`"top_level":true,"before_id":"`+id+`"`))
	require.JSONEq(t, `{"error":"top_level: before_id must be a 64-hex event id"}`, a.refused(`"top_level":true,"until":1,"before_id":"`+id[1:]+`"`))
	for _, kind := range []nostr.Kind{nostr.KindThreadSummary, nostr.KindWindowBounds} {
		overlay := a.author.Event(nostrtest.Kind(kind), nostrtest.Channel(a.h), nostrtest.Tag("d", a.h+":head"))
		require.Equal(t, cluster.Verdict{Message: "restricted: relay-only kind"}, a.author.Publish(overlay))
	}
}

func threadReplies(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := newTalk(t, c, nostrtest.Tag("private"))
	root := a.say(2)
	first := a.say(1, answers(root))
	second := a.say(0, nostrtest.Tag("e", root.ID.String(), "", "root"), answers(first))
	thread := `"#e":["` + root.ID.String() + `"],"depth_limit":`
	require.Equal(t, []*nostr.Event{first, second}, a.read("alice", thread+`2`))
	require.Equal(t, []*nostr.Event{first}, a.read("alice", thread+`1`))
	require.Equal(t, []*nostr.Event{first}, a.read("alice", thread+`2,"limit":1`))
	require.Equal(t, []*nostr.Event{second}, a.read("alice", thread+`2,`+at(first, "thread_cursor", "thread_cursor_id")))
	require.Empty(t, a.read("mallory", thread+`2`))
}

func unknownParent(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := newTalk(t, c)
	orphan := a.author.Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(a.h), nostrtest.Tag("e", strings.Repeat("ab", 32), "", "reply"))
	require.Equal(t, cluster.Verdict{Message: "invalid: reply parent not found"}, a.author.Publish(orphan))
	require.Empty(t, a.read("alice", `"kinds":[9]`))
}

func wrongRoot(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := newTalk(t, c)
	root, other := a.say(2), a.say(1)
	reply := a.author.Event(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(a.h), nostrtest.Tag("e", other.ID.String(), "", "root"), answers(root))
	require.Equal(t, cluster.Verdict{Message: "invalid: root tag does not match thread ancestry"}, a.author.Publish(reply))
}

func topLevel(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := newTalk(t, c)
	root := a.say(2)
	low, aloud := a.say(1, answers(root)), a.say(0, answers(root), nostrtest.Tag("broadcast", "1"))
	rows, _ := a.window(`"limit":10`)
	require.Equal(t, []*nostr.Event{aloud, root}, rows)
	require.Equal(t, []*nostr.Event{low, aloud}, a.read("alice", `"#e":["`+root.ID.String()+`"],"depth_limit":1`))
}

// threadWindows pages along a thread from its end, also where many replies are of one second, and looks at it from where it cannot be seen.
func threadWindows(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	a := newTalk(t, c, nostrtest.Tag("private"))
	root := a.say(9)
	var replies []*nostr.Event
	for i := range 5 {
		replies = append(replies, a.say(int64(i/4), answers(root), nostrtest.Content(strconv.Itoa(i)))) // four in a second
	}
	slices.SortFunc(replies, func(x, y *nostr.Event) int {
		return strings.Compare(strconv.FormatInt(a.now-x.CreatedAt, 10)+x.ID.String(), strconv.FormatInt(a.now-y.CreatedAt, 10)+y.ID.String())
	})
	like := a.author.Accept(nostrtest.Kind(nostr.KindReaction), nostrtest.Content("+"), to(replies[0]))
	edit := a.author.Accept(nostrtest.Kind(nostr.KindMessageEdit), nostrtest.Channel(a.h), nostrtest.Content("better"), to(root))
	window := func(name, fields string) (events []*nostr.Event, bounds *nostr.Event) {
		t.Helper()
		events = a.read(name, `"thread_window":true,"kinds":[9],"#e":["`+root.ID.String()+`"]`+fields)
		bounds = events[len(events)-1]
		require.Equal(t, nostr.KindThreadBounds, bounds.Kind)
		require.Equal(t, nostrtest.PubKey(cluster.RelayKey), bounds.PubKey)
		require.Equal(t, [][]string{{"h", a.h}, {"e", root.ID.String()}}, [][]string{bounds.Tags[1], bounds.Tags[2]})
		return events[:len(events)-1], bounds
	}
	for _, size := range []int{1, 2, 5} { // 5 is exactly the thread, and the last page
		var walked []*nostr.Event
		for cursor := ""; ; {
			rows, bounds := window("alice", `,"limit":`+strconv.Itoa(size)+cursor)
			walked = append(walked, rows...)
			last := walked[len(walked)-1]
			if len(walked) == len(replies) {
				require.JSONEq(t, `{"version":1,"direction":"older","has_more":false,"next_cursor":null}`, bounds.Content)
				break
			}
			require.JSONEq(t, `{"version":1,"direction":"older","has_more":true,"next_cursor":{`+at(last, "created_at", "id")+`}}`, bounds.Content)
			cursor = "," + at(last, "until", "before_id")
		}
		require.Equal(t, replies, walked, "pages of %d", size)
	}
	rows, _ := window("alice", `,"limit":1,"include_aux":true`)
	require.Equal(t, replies[:1], rows[:1])
	require.ElementsMatch(t, []*nostr.Event{like, edit}, rows[1:])
	aux := a.read("alice", `"#e":["`+root.ID.String()+`"],"depth_limit":1,"limit":1,"include_aux":true`)
	require.Equal(t, replies[4:], aux[:1], "from the other end")
	require.Equal(t, []*nostr.Event{edit}, aux[1:])

	// Who may not read the channel learns nothing; to who may, what is missing, deleted or hidden elsewhere is a thread without replies.
	require.Empty(t, a.read("mallory", `"thread_window":true,"#e":["`+root.ID.String()+`"]`))
	mallory := cluster.Dial(t, c.Gateway(1), who(t, "mallory"))
	own := channelID(t) + "-m"
	mallory.Accept(nostrtest.Kind(nostr.KindCreateGroup), nostrtest.Channel(own))
	gone := mallory.Accept(nostrtest.Kind(nostr.KindChat), nostrtest.Channel(own))
	mallory.Accept(nostrtest.Kind(nostr.KindDeletion), to(gone))
	for _, id := range []string{root.ID.String(), gone.ID.String(), strings.Repeat("ab", 32)} {
		found := query(t, c.Gateway(0), "localhost", who(t, "mallory"), `[{"thread_window":true,"#h":["`+own+`"],"#e":["`+id+`"]}]`)
		require.Len(t, found, 1)
		require.JSONEq(t, `{"version":1,"direction":"older","has_more":false,"next_cursor":null}`, found[0].Content)
	}
	overlay := mallory.Event(nostrtest.Kind(nostr.KindThreadBounds), nostrtest.Channel(own))
	require.Equal(t, cluster.Verdict{Message: "restricted: relay-only kind"}, mallory.Publish(overlay))
}
