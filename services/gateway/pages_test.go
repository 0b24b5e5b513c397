package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// What a filter says besides NIP-01 reaches search beside it; the others are asked as in a REQ, first.
func TestPagesOverHTTP(t *testing.T) {
	w := newWorld(t)
	w.search.set(func() {
		w.search.onQuery = func(req *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			name := []byte{'"', byte('0' + req.GetFilters()[0].GetKinds()[0]), '"'}
			return send(&searchv1.QueryResponse{Snapshot: &commonv1.Snapshot{}, Events: [][]byte{name}})
		}
	})
	id := strings.Repeat("ab", 32)
	status, answer := w.post("alice", "/query", `[
		{"kinds":[1],"until":7,"before_id":"`+id+`","limit":20},
		{"kinds":[2]}, {"page":3,"kinds":[3],"limit":20}, {"kinds":[4],"page":2}, {"kinds":[5],"limit":9000,"page":2}]`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, `["2","1","3","4","5"]`, answer)
	asked := w.search.asked()
	require.Len(t, asked, 5)
	require.Empty(t, asked[0].GetPaging())
	for i, want := range []*searchv1.Paging{
		{AfterId: []byte(strings.Repeat("\xab", 32))}, {Offset: 40}, {Offset: 500}, {Offset: 500},
	} {
		require.Len(t, asked[i+1].GetFilters(), 1)
		require.Len(t, asked[i+1].GetPaging(), 1)
		require.True(t, proto.Equal(want, asked[i+1].GetPaging()[0]), asked[i+1].GetPaging()[0])
	}

	status, answer = w.post("alice", "/query", `[{"kinds":[6],"search":"be","searchMode":"prefix","searchPage":2,"limit":10},{"kinds":[7],"search":"bees"}]`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, `["7","6"]`, answer)
	asked = w.search.asked()[5:]
	require.EqualValues(t, 100, asked[0].GetFilters()[0].GetLimit(), "searches have fewer unless they ask")
	require.True(t, proto.Equal(&searchv1.Paging{Prefix: true, Offset: 10}, asked[1].GetPaging()[0]), asked[1].GetPaging()[0])

	for body, message := range map[string]string{
		`[{"before_id":"` + id + `"}]`:                            "before_id requires until to be set",
		`[{"until":1,"before_id":"` + id[1:] + `"}]`:              "before_id must be a 64-char hex event id",
		`[{"until":1,"before_id":"` + strings.ToUpper(id) + `"}]`: "before_id must be a 64-char hex event id",
		`[{"until":1,"before_id":"` + id + `","page":1}]`:         "before_id goes with neither search nor page",
		`[{"until":1,"before_id":"` + id + `","search":"x"}]`:     "before_id goes with neither search nor page",
		`[{"search":"x","search_mode":"exact"}]`:                  "search_mode must be prefix, with a search",
		`[{"searchMode":"prefix"}]`:                               "search_mode must be prefix, with a search",
		`[{"search_page":0,"search":"x"}]`:                        "page must be at least 1",
		`[{"searchPage":1,"page":1}]`:                             "filter has a key twice",
		"[" + strings.Repeat(`{"page":1},`, 5) + `{"page":1}]`:    "more than 5 with fields that are not of NIP-01",
		`[{"page":0}]`:                     "page must be at least 1",
		`[{"page":11}]`:                    "page times limit is more than 5000: page with until and before_id",
		`[{"page":9000000000,"limit":0}]`:  "page times limit is more than 5000: page with until and before_id",
		`[{"page":"1"}]`:                   "invalid filters: page is of another type",
		`[{"page":1.5}]`:                   "invalid filters: page is of another type",
		`[{"page":1,"page":2}]`:            "invalid filters: filter has a key twice",
		`[{"page":1,"limit":1,"limit":2}]`: "filter has a key twice",
		`[{"page":1,"colour":"red"}]`:      "filter contains unknown elements",
		`[{"page":1},7]`:                   "a filter must be a JSON object",
		`[{"kinds":[1],"page":1]`:          "",
	} {
		status, answer := w.post("alice", "/query", body)
		require.GreaterOrEqual(t, status, http.StatusBadRequest, body)
		require.Contains(t, answer, message, body)
	}
	status, answer = w.post("alice", "/count", `[{"page":2}]`)
	require.NotEqual(t, http.StatusOK, status, answer)
	require.Len(t, w.search.asked(), 7)
}
