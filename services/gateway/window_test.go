package gateway_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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

	// A page that search has cut because of its size ends a row earlier, and is not taken for the last one.
	w.search.set(func() { w.search.cut = true })
	status, answer = w.post("alice", "/query", `[{"#h":["lobby"],"top_level":true,"limit":9}]`)
	require.Equal(t, http.StatusOK, status, answer)
	bounds = strconv.Quote(`39006 d=lobby:head h=lobby {"has_more":true,"next_cursor":{"created_at":20,"id":"` + id + `"}}`)
	require.Equal(t, "["+strings.Join([]string{text(first), text(second), bounds}, ",")+"]", answer)

	// Of what may not be read there are not even bounds.
	w.search.set(func() {
		w.search.onAccess = func([]byte) bool { return false }
	})
	status, answer = w.post("alice", "/query", `[{"#h":["lobby"],"top_level":true}]`)
	require.NotEqual(t, http.StatusOK, status, answer)
	require.Len(t, w.search.asked(), 6)
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
		`[{"depth_limit":1,"#e":["` + id + `"],"thread_cursor_id":"` + id + `"}]`:      "thread_cursor_id requires thread_cursor",
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
