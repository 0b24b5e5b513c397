package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// Feeds share a limit in the order in which they were asked for, and no event is in two of them.
func TestFeedsOverHTTP(t *testing.T) {
	w := newWorld(t)
	event := func(name string, at int64) *nostr.Event { return nostrtest.Event(t, name, nostrtest.CreatedAt(at)) }
	toMe, both, busy, late := event("bob", 5), event("bob", 4), event("bob", 6), event("bob", 7)
	w.search.set(func() {
		w.search.onQuery = func(req *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			answer := []*nostr.Event{late, busy, both} // activity
			switch f := req.GetFilters()[0]; {
			case f.GetKinds()[0] == 40007:
				answer = nil
			case len(f.GetTags()) > 0 && f.GetTags()[len(f.GetTags())-1].GetName() == "p":
				answer = []*nostr.Event{toMe, both}
			}
			resp := &searchv1.QueryResponse{Snapshot: &commonv1.Snapshot{}}
			for _, ev := range answer {
				resp.Events = append(resp.Events, nostrtest.Raw(ev))
			}
			return send(resp)
		}
	})
	ask := func(fields string) (events []*nostr.Event, asked []*commonv1.Filter) {
		t.Helper()
		before := len(w.search.asked())
		status, answer := w.post("alice", "/query", "[{"+fields+"}]")
		require.Equal(t, http.StatusOK, status, answer)
		for _, ev := range []*nostr.Event{toMe, both, busy, late} {
			if i := strings.Index(answer, ev.ID.String()); i >= 0 {
				events = append(events, ev)
				require.Equal(t, i, strings.LastIndex(answer, ev.ID.String()), "once")
			}
		}
		for _, req := range w.search.asked()[before:] {
			require.Empty(t, req.GetPaging())
			asked = append(asked, req.GetFilters()...)
		}
		return events, asked
	}
	events, asked := ask(`"feed_types":["mentions","needs_action","activity","agent_activity"],"since":3,"#h":["lobby"]`)
	require.Equal(t, []*nostr.Event{toMe, both, busy, late}, events)
	require.Len(t, asked, 3, "one name of the two for the same")
	alice := nostrtest.PubKey("alice").String()
	for i, kinds := range [][]uint32{{1, 9, 1618, 1619, 1621, 1630, 1631, 1632, 1633, 40002, 45001, 45003}, {40007, 46010}, {9, 40002, 43001, 43003, 43004, 45001}} {
		require.Equal(t, kinds, asked[i].GetKinds())
		require.EqualValues(t, 20, asked[i].GetLimit())
		require.EqualValues(t, 3, asked[i].GetSince())
		tags := map[string]string{}
		for _, c := range asked[i].GetTags() {
			require.Len(t, c.GetValues(), 1)
			tags[c.GetName()] = string(c.GetValues()[0])
		}
		want := map[string]string{"h": "lobby", "p": alice}
		if i == 2 {
			delete(want, "p")
		}
		require.Equal(t, want, tags)
	}

	events, asked = ask(`"feed_types":["mentions","activity"],"limit":2`)
	require.Equal(t, []*nostr.Event{toMe, both}, events)
	require.Len(t, asked, 1, "the limit is used up")
	events, _ = ask(`"feed_types":["mentions","activity"],"limit":3`)
	require.Equal(t, []*nostr.Event{toMe, both, late}, events, "what is known is not counted twice")
	_, asked = ask(`"feed_types":["activity"],"limit":9000,"kinds":[9,1]`)
	require.EqualValues(t, 100, asked[0].GetLimit())
	require.Equal(t, []uint32{9}, asked[0].GetKinds())
	for _, nothing := range []string{`"feed_types":[]`, `"feed_types":["activity"],"limit":0`, `"feed_types":["activity"],"kinds":[1]`, `"feed_types":["mentions"],"kinds":[]`} {
		events, asked = ask(nothing)
		require.Empty(t, events, nothing)
		require.Empty(t, asked, nothing)
	}

	const with = "feed_types goes with kinds, authors, #h, since, until and limit, and with nothing else"
	id := strings.Repeat("ab", 32)
	for fields, message := range map[string]string{
		`"feed_types":["mention"]`:                                     "feed_types must be of mentions, needs_action, activity and agent_activity",
		`"feed_types":"mentions"`:                                      "feed_types is of another type",
		`"feed_types":["mentions"],"#p":["` + id + `"]`:                with,
		`"feed_types":["mentions"],"#e":["` + id + `"],"#h":["lobby"]`: with,
		`"feed_types":["mentions"],"ids":["` + id + `"]`:               with,
		`"feed_types":["mentions"],"search":"x"`:                       with,
		`"feed_types":["mentions"],"page":1`:                           with,
		`"feed_types":["mentions"],"until":1,"before_id":"` + id + `"`: with,
		`"feed_types":["mentions"],"kinds":[1059]`:                     "restricted: p-gated events require #p matching your pubkey",
	} {
		status, answer := w.post("alice", "/query", "[{"+fields+"}]")
		require.GreaterOrEqual(t, status, http.StatusBadRequest, fields)
		require.Contains(t, answer, message, fields)
	}
}
