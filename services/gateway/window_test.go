package gateway_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// overlays answers with what was to be signed, in short.
type overlays struct {
	ingestv1.UnimplementedOverlayServiceServer
}

func (overlays) SignOverlays(_ context.Context, req *ingestv1.SignOverlaysRequest) (*ingestv1.SignOverlaysResponse, error) {
	resp := &ingestv1.SignOverlaysResponse{}
	for _, o := range req.GetOverlays() {
		var tags []string
		for _, t := range o.GetTags() {
			tags = append(tags, strings.Join(t.GetValues(), "="))
		}
		resp.Events = append(resp.Events, []byte(strconv.Quote(strconv.Itoa(int(o.GetKind()))+" "+strings.Join(tags, " ")+" "+o.GetContent())))
	}
	return resp, nil
}

func (s *search) DescribeThreads(_ context.Context, req *searchv1.DescribeThreadsRequest) (*searchv1.DescribeThreadsResponse, error) {
	return &searchv1.DescribeThreadsResponse{Threads: s.threads(req)}, nil
}

// A window is its rows, what is about them, what undoes that, each once, and what the relay says about the page.
func TestWindowsOfChannels(t *testing.T) {
	w := newWorld(t)
	event := func(name string, kind nostr.Kind, at int64) *nostr.Event {
		return nostrtest.Event(t, name, nostrtest.Kind(kind), nostrtest.CreatedAt(at), nostrtest.Channel("lobby"))
	}
	first, second, third := event("alice", 9, 30), event("alice", 9, 20), event("alice", 9, 10)
	reaction, deletion := event("bob", nostr.KindReaction, 40), event("bob", nostr.KindDeletion, 41)
	text := func(ev *nostr.Event) string { return string(nostrtest.Raw(ev)) }
	w.search.set(func() {
		w.search.onQuery = func(req *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			answer := []*nostr.Event{first, second, third}[:min(3, req.GetFilters()[0].GetLimit())]
			switch kinds := req.GetFilters()[0].GetKinds(); {
			case len(kinds) == 4:
				answer = []*nostr.Event{deletion, reaction}
			case len(kinds) == 2:
				answer = []*nostr.Event{deletion}
			}
			resp := &searchv1.QueryResponse{Snapshot: &commonv1.Snapshot{}}
			for _, ev := range answer {
				resp.Events = append(resp.Events, nostrtest.Raw(ev))
			}
			return send(resp)
		}
	})
	status, answer := w.post("alice", "/query", `[{"#h":["lobby"],"kinds":[9],"top_level":true,"limit":2,"include_aux":true}]`)
	require.Equal(t, http.StatusOK, status, answer)
	bounds := strconv.Quote(`39006 d=lobby:head h=lobby {"has_more":true,"next_cursor":{"created_at":20,"id":"` + second.ID.String() + `"}}`)
	require.Equal(t, "["+strings.Join([]string{text(first), text(second), text(deletion), text(reaction), bounds}, ",")+"]", answer)
	asked := w.search.asked()
	require.Len(t, asked, 3)
	require.EqualValues(t, 3, asked[0].GetFilters()[0].GetLimit(), "one more tells whether there are more")
	require.True(t, asked[0].GetPaging()[0].GetTopLevel())
	for i, ids := range [][]string{{first.ID.String(), second.ID.String()}, {deletion.ID.String(), reaction.ID.String()}} {
		tags := map[string][]string{}
		for _, c := range asked[i+1].GetFilters()[0].GetTags() {
			for _, v := range c.GetValues() {
				tags[c.GetName()] = append(tags[c.GetName()], string(v))
			}
		}
		require.Equal(t, map[string][]string{"e": ids, "h": {"lobby"}}, tags)
	}

	// Summaries are of the threads that search knows of, in the order of the rows.
	w.search.threads = func(req *searchv1.DescribeThreadsRequest) []*searchv1.Thread {
		require.Equal(t, [][]byte{first.ID[:], second.ID[:], third.ID[:]}, req.GetRoots())
		return []*searchv1.Thread{{
			Root: second.ID[:], Replies: 1, Descendants: 3, LastReplyAt: 70, Participants: [][]byte{first.PubKey[:]},
		}}
	}
	status, answer = w.post("alice", "/query", `[{"#h":["lobby"],"kinds":[9],"top_level":true,"include_summaries":true}]`)
	require.Equal(t, http.StatusOK, status, answer)
	summary := strconv.Quote(`39005 e=` + second.ID.String() + ` d=` + second.ID.String() + ` h=lobby ` +
		`{"reply_count":1,"descendant_count":3,"last_reply_at":70,"participants":["` + first.PubKey.String() + `"]}`)
	bounds = strconv.Quote(`39006 d=lobby:head h=lobby {"has_more":false,"next_cursor":null}`)
	require.Equal(t, "["+strings.Join([]string{text(first), text(second), text(third), summary, bounds}, ",")+"]", answer)

	// The next page begins behind the cursor. The limit is kept within its bounds.
	id := second.ID.String()
	status, answer = w.post("alice", "/query", `[{"#h":["lobby"],"top_level":true,"limit":9000,"until":20,"before_id":"`+id+`"}]`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Contains(t, answer, strconv.Quote(`39006 d=lobby:20:`+id+` h=lobby {"has_more":false,"next_cursor":null}`))
	last := w.search.asked()[4]
	require.EqualValues(t, 201, last.GetFilters()[0].GetLimit())
	require.Equal(t, second.ID[:], last.GetPaging()[0].GetAfterId())

	// Of what may not be read there are not even bounds.
	w.search.set(func() {
		w.search.onAccess = func([]byte) bool { return false }
	})
	status, answer = w.post("alice", "/query", `[{"#h":["lobby"],"top_level":true}]`)
	require.NotEqual(t, http.StatusOK, status, answer)
	require.Len(t, w.search.asked(), 5)
}

func TestWindowsAreChecked(t *testing.T) {
	w := newWorld(t)
	id := strings.Repeat("ab", 32)
	for body, message := range map[string]string{
		`[{"top_level":true}]`:                                                         "top_level requires exactly one #h channel",
		`[{"top_level":true,"#h":["a","b"]}]`:                                          "top_level requires exactly one #h channel",
		`[{"top_level":true,"#h":["a"],"until":1}]`:                                    "top_level cursor requires both until and before_id, or neither",
		`[{"top_level":true,"#h":["a"],"before_id":"` + id + `"}]`:                     "top_level cursor requires both until and before_id, or neither",
		`[{"top_level":true,"#h":["a"],"until":1,"before_id":"x"}]`:                    "top_level: before_id must be a 64-hex event id",
		`[{"top_level":true,"#h":["a"],"page":1}]`:                                     "top_level goes with neither search nor page",
		`[{"top_level":true,"#h":["a"],"search":"x"}]`:                                 "top_level goes with neither search nor page",
		`[{"top_level":1,"#h":["a"]}]`:                                                 "invalid filters: top_level is of another type",
		`[{"depth_limit":1}]`:                                                          "depth_limit requires exactly one #e",
		`[{"depth_limit":1,"#e":["` + id + `","` + id + `"]}]`:                         "depth_limit requires exactly one #e",
		`[{"depth_limit":1,"#e":["x"]}]`:                                               "depth_limit requires an event id in #e",
		`[{"depth_limit":1,"#e":["` + id + `"],"until":1}]`:                            "depth_limit goes with kinds, limit and one #h, and with nothing else",
		`[{"depth_limit":1,"#e":["` + id + `"],"thread_cursor":1}]`:                    "thread_cursor and thread_cursor_id go together",
		`[{"depthLimit":1,"#e":["` + id + `"],"threadCursor":1,"threadCursorId":"x"}]`: "thread_cursor_id must be a 64-hex event id",
		`[{"depth_limit":-1,"#e":["` + id + `"]}]`:                                     "invalid filters: depth_limit is of another type",
		`[{"depth_limit":1,"depthLimit":1,"#e":["` + id + `"]}]`:                       "invalid filters: filter has a key twice",
		`[{"top_level":true,"#h":["no good"]}]`:                                        "a value of #h is not a channel id",
		`[{"top_level":true,"#h":["a"],"kinds":[1059]}]`:                               "p-gated events require #p matching your pubkey",
	} {
		status, answer := w.post("alice", "/query", body)
		require.GreaterOrEqual(t, status, http.StatusBadRequest, body)
		require.Contains(t, answer, message, body)
	}
	require.Empty(t, w.search.asked())
}

// A page of a thread is what search says it is.
func TestThreadsOverHTTP(t *testing.T) {
	w := newWorld(t)
	id := strings.Repeat("ab", 32)
	var asked []*searchv1.QueryThreadRequest
	w.search.thread = func(req *searchv1.QueryThreadRequest) [][]byte {
		asked = append(asked, req)
		return [][]byte{[]byte("1"), []byte("2")}
	}
	status, answer := w.post("alice", "/query", `[{"#e":["`+id+`"],"depth_limit":3}]`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, "[1,2]", answer)
	status, answer = w.post("alice", "/query",
		`[{"#e":["`+id+`"],"#h":["lobby"],"kinds":[9],"limit":9000,"depthLimit":1,"threadCursor":7,"threadCursorId":"`+id+`"}]`)
	require.Equal(t, http.StatusOK, status, answer)
	status, answer = w.post("alice", "/query", `[{"#e":["`+id+`"],"depth_limit":3,"kinds":[]}]`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, "[]", answer)
	require.Len(t, asked, 2)
	key, root := nostrtest.PubKey("alice"), []byte(strings.Repeat("\xab", 32))
	for i, want := range []*searchv1.QueryThreadRequest{
		{Root: root, Depth: 3, Limit: 100},
		{Root: root, Depth: 1, Limit: 500, Channel: "lobby", Kinds: []uint32{9}, AfterCreatedAt: 7, AfterId: root},
	} {
		want.Community, want.Principal = openCommunity, &commonv1.Principal{Pubkeys: [][]byte{key[:]}}
		require.True(t, proto.Equal(want, asked[i]), asked[i])
	}
}

func (s *search) QueryThread(_ context.Context, req *searchv1.QueryThreadRequest) (*searchv1.QueryThreadResponse, error) {
	return &searchv1.QueryThreadResponse{Events: s.thread(req)}, nil
}
