package gateway_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

func (s *search) QueryThread(_ context.Context, req *searchv1.QueryThreadRequest) (*searchv1.QueryThreadResponse, error) {
	return s.thread(req), nil
}

// replies makes the answer to a question about a thread.
func replies(more bool, events ...*nostr.Event) *searchv1.QueryThreadResponse {
	resp := &searchv1.QueryThreadResponse{More: more}
	for _, ev := range events {
		resp.Events = append(resp.Events, nostrtest.Raw(ev))
	}
	return resp
}

// array is the answer to a query for these events, and texts that are quoted.
func array(events []*nostr.Event, more ...string) string {
	var list []string
	for _, ev := range events {
		list = append(list, string(nostrtest.Raw(ev)))
	}
	for _, text := range more {
		list = append(list, strconv.Quote(text))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// references answers queries with what refers to others: deletions where only they are asked for.
func (w *world) references(reaction, deletion *nostr.Event) {
	w.search.set(func() {
		w.search.onQuery = func(req *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			resp := &searchv1.QueryResponse{Snapshot: &commonv1.Snapshot{}, Events: [][]byte{nostrtest.Raw(deletion)}}
			if len(req.GetFilters()[0].GetKinds()) == 4 {
				resp.Events = [][]byte{nostrtest.Raw(reaction)}
			}
			return send(resp)
		}
	})
}

// targets are the values of the conditions of the filters that search was asked with, by letter.
func targets(asked []*searchv1.QueryRequest) (list []map[string][]string) {
	for _, req := range asked {
		tags := map[string][]string{}
		for _, c := range req.GetFilters()[0].GetTags() {
			for _, v := range c.GetValues() {
				tags[c.GetName()] = append(tags[c.GetName()], string(v))
			}
		}
		list = append(list, tags)
	}
	return list
}

// A page of a thread is what search says it is, and what is about that and the first event.
func TestThreadsOverHTTP(t *testing.T) {
	w := newWorld(t)
	id := strings.Repeat("ab", 32)
	first, second := nostrtest.Event(t, "alice"), nostrtest.Event(t, "bob")
	reaction, deletion := nostrtest.Event(t, "bob", nostrtest.Kind(nostr.KindReaction)), nostrtest.Event(t, "bob", nostrtest.Kind(nostr.KindDeletion))
	w.references(reaction, deletion)
	var asked []*searchv1.QueryThreadRequest
	w.search.thread = func(req *searchv1.QueryThreadRequest) *searchv1.QueryThreadResponse {
		asked = append(asked, req)
		return replies(true, first, second)
	}
	for fields, want := range map[string]string{
		`"depth_limit":3`: array([]*nostr.Event{first, second}),
		`"#h":["lobby"],"kinds":[9,9],"limit":9000,"depthLimit":1,"threadCursor":7,"threadCursorId":"` + id + `"`: array([]*nostr.Event{first, second}),
		`"depth_limit":3,"kinds":[]`:                                  "[]",
		`"depth_limit":2147483647,"limit":2,"thread_cursor":-1`:       array([]*nostr.Event{first, second}),
		`"depth_limit":4,"#h":["lobby"],"include_aux":true,"limit":2`: array([]*nostr.Event{first, second, reaction, deletion}),
		`"depth_limit":5,"include_aux":true,"thread_window":false`:    array([]*nostr.Event{first, second, reaction, deletion}),
	} {
		status, answer := w.post("alice", "/query", `[{"#e":["`+id+`"],`+fields+`}]`)
		require.Equal(t, http.StatusOK, status, answer)
		require.Equal(t, want, answer, fields)
	}
	key, root := nostrtest.PubKey("alice"), []byte(strings.Repeat("\xab", 32))
	slices.SortFunc(asked, func(x, y *searchv1.QueryThreadRequest) int { return int(x.GetDepth()) - int(y.GetDepth()) })
	require.Len(t, asked, 5)
	for i, want := range []*searchv1.QueryThreadRequest{
		{Depth: 1, Limit: 500, Channel: "lobby", Kinds: []uint32{9}, AfterCreatedAt: 7, AfterId: root},
		{Depth: 3, Limit: 100, AfterCreatedAt: math.MinInt64},
		{Depth: 4, Limit: 2, Channel: "lobby", AfterCreatedAt: math.MinInt64},
		{Depth: 5, Limit: 100, AfterCreatedAt: math.MinInt64},
		{Depth: 2147483647, Limit: 2, AfterCreatedAt: -1},
	} {
		want.Root, want.Community, want.Principal = root, openCommunity, &commonv1.Principal{Pubkeys: [][]byte{key[:]}}
		require.True(t, proto.Equal(want, asked[i]), asked[i])
	}
	about := []string{first.ID.String(), second.ID.String(), id}
	require.ElementsMatch(t, []map[string][]string{
		{"e": about, "h": {"lobby"}}, {"e": {reaction.ID.String()}, "h": {"lobby"}}, {"e": about}, {"e": {reaction.ID.String()}},
	}, targets(w.search.asked()))
}

// A window of a thread is its newest replies, what is about them and the first event, and what the relay says about the page.
func TestThreadWindows(t *testing.T) {
	w := newWorld(t)
	root := strings.Repeat("ab", 32)
	newer, older := nostrtest.Event(t, "alice", nostrtest.CreatedAt(8)), nostrtest.Event(t, "bob", nostrtest.CreatedAt(7))
	reaction, deletion := nostrtest.Event(t, "bob", nostrtest.Kind(nostr.KindReaction)), nostrtest.Event(t, "bob", nostrtest.Kind(nostr.KindDeletion))
	w.references(reaction, deletion)
	var asked []*searchv1.QueryThreadRequest
	w.search.thread = func(req *searchv1.QueryThreadRequest) *searchv1.QueryThreadResponse {
		asked = append(asked, req)
		if req.GetLimit() == 1 {
			return replies(true, newer)
		}
		return replies(false, newer, older)
	}
	window := func(fields string) (answer, binding string) {
		t.Helper()
		status, answer := w.post("alice", "/query", `[{"thread_window":true,"#h":["lobby"],"#e":["`+root+`"]`+fields+`}]`)
		require.Equal(t, http.StatusOK, status, answer)
		_, binding, found := strings.Cut(answer, "39007 d=")
		require.True(t, found, answer)
		binding, _, _ = strings.Cut(binding, " ")
		require.Regexp(t, "^tw:1:[0-9a-f]{64}$", binding)
		return answer, binding
	}
	bounds := func(binding, content string) string {
		return "39007 d=" + binding + " h=lobby e=" + root + " " + content
	}
	answer, head := window(`,"kinds":[9],"include_aux":true`)
	require.Equal(t, array([]*nostr.Event{newer, older, reaction, deletion},
		bounds(head, `{"version":1,"direction":"older","has_more":false,"next_cursor":null}`)), answer)
	require.Equal(t, []map[string][]string{
		{"e": {newer.ID.String(), older.ID.String(), root}, "h": {"lobby"}}, {"e": {reaction.ID.String()}, "h": {"lobby"}},
	}, targets(w.search.asked()))
	answer, binding := window(`,"limit":1,"depth_limit":2`)
	require.Equal(t, array([]*nostr.Event{newer}, bounds(binding,
		`{"version":1,"direction":"older","has_more":true,"next_cursor":{"created_at":8,"id":"`+newer.ID.String()+`"}}`)), answer)
	require.NotEqual(t, head, binding)
	window(`,"until":8,"before_id":"` + newer.ID.String() + `"`)
	answer, binding = window(`,"kinds":[]`)
	require.Equal(t, array(nil, bounds(binding, `{"version":1,"direction":"older","has_more":false,"next_cursor":null}`)), answer)

	key := nostrtest.PubKey("alice")
	require.Len(t, asked, 3)
	for i, want := range []*searchv1.QueryThreadRequest{
		{Depth: 100, Limit: 50, Kinds: []uint32{9}}, {Depth: 2, Limit: 1}, {Depth: 100, Limit: 50, AfterCreatedAt: 8, AfterId: newer.ID[:]},
	} {
		want.Root, want.Channel, want.NewestFirst = []byte(strings.Repeat("\xab", 32)), "lobby", true
		want.Community, want.Principal = openCommunity, &commonv1.Principal{Pubkeys: [][]byte{key[:]}}
		require.True(t, proto.Equal(want, asked[i]), asked[i])
	}
}

func TestThreadWindowsAreChecked(t *testing.T) {
	w := newWorld(t)
	id := strings.Repeat("ab", 32)
	const (
		requires = "thread_window requires exactly one #h channel and one #e event id"
		with     = "thread_window goes with kinds, limit, depth_limit, include_aux, until and before_id, and with nothing else"
		half     = "thread_window cursor requires both until and before_id, or neither"
		cursor   = "thread_window: before_id must be a 64-hex event id, and until not negative"
	)
	of := func(fields string) string {
		return `{"thread_window":true,"#h":["a"],"#e":["` + id + `"]` + fields + `}`
	}
	for filter, message := range map[string]string{
		`{"thread_window":true,"#e":["` + id + `"]}`:                         requires,
		`{"thread_window":true,"#h":["a"]}`:                                  requires,
		`{"thread_window":true,"#h":["a"],"#e":["x"]}`:                       requires,
		`{"thread_window":true,"#h":["a","a"],"#e":["` + id + `"]}`:          requires,
		`{"thread_window":true,"#h":["a"],"#e":["` + id + `","` + id + `"]}`: requires,
		`{"thread_window":1,"#h":["a"],"#e":["` + id + `"]}`:                 "thread_window is of another type",
		of(`,"limit":0`):                           "thread_window: limit must be 1 to 200",
		of(`,"limit":201`):                         "thread_window: limit must be 1 to 200",
		of(`,"depth_limit":0`):                     "thread_window: depth_limit must be 1 to 100",
		of(`,"depth_limit":101`):                   "thread_window: depth_limit must be 1 to 100",
		of(`,"until":1`):                           half,
		of(`,"before_id":"` + id + `"`):            half,
		of(`,"until":1,"before_id":"x"`):           cursor,
		of(`,"until":-1,"before_id":"` + id + `"`): cursor,
		of(`,"since":1`):                           with,
		of(`,"authors":["` + id + `"]`):            with,
		of(`,"ids":["` + id + `"]`):                with,
		of(`,"#p":["` + id + `"]`):                 with,
		of(`,"top_level":true`):                    with,
		of(`,"include_summaries":true`):            with,
		of(`,"thread_cursor":1`):                   with,
		of(`,"page":1`):                            with,
		of(`,"feed_types":[]`):                     with,
		of(`,"search":"x"`):                        with,
		of(`,"include_aux":"yes"`):                 "include_aux is of another type",
		of(`,"kinds":[1059]`):                      "restricted: p-gated events require #p matching your pubkey",
		of(``) + strings.Repeat(","+of(``), 4):     "at most four thread windows per query",
	} {
		status, answer := w.post("alice", "/query", "["+filter+"]")
		require.GreaterOrEqual(t, status, http.StatusBadRequest, filter)
		require.Contains(t, answer, message, filter)
	}
	require.Empty(t, w.search.asked())
}

// What the relay signs is about reads that all decided alike who may read: if that changed meanwhile, they are made again, once.
func TestAWindowWhoseReadersChangeIsMadeAnew(t *testing.T) {
	w := newWorld(t)
	reply := nostrtest.Event(t, "bob", nostrtest.CreatedAt(8))
	made := 0
	w.search.thread = func(*searchv1.QueryThreadRequest) *searchv1.QueryThreadResponse {
		made++
		return replies(false, reply)
	}
	w.search.set(func() {
		w.search.onQuery = func(_ *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			made++
			return send(&searchv1.QueryResponse{Snapshot: &commonv1.Snapshot{}, Events: [][]byte{nostrtest.Raw(reply)}})
		}
	})
	versions := func(list ...uint64) {
		made = 0
		w.search.set(func() {
			w.search.versions = func() uint64 {
				v := list[0]
				list = list[1:]
				return v
			}
		})
	}
	for what, fields := range map[string]string{
		"thread":  `"thread_window":true,"#e":["` + strings.Repeat("ab", 32) + `"]`,
		"channel": `"top_level":true`,
	} {
		body := fmt.Sprintf(`[{"#h":["lobby"],%s}]`, fields)
		versions(3, 3)
		_, once := w.post("alice", "/query", body)
		require.Equal(t, 1, made)
		versions(3, 4, 4, 4)
		status, answer := w.post("alice", "/query", body)
		require.Equal(t, http.StatusOK, status, answer)
		require.Equal(t, once, answer, "nothing of the first try is left")
		require.Equal(t, 2, made)
		versions(3, 4, 4, 5)
		status, answer = w.post("alice", "/query", body)
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.JSONEq(t, `{"error":"`+what+` authorization changed; retry query"}`, answer)
		require.Equal(t, 2, made)
	}
}
