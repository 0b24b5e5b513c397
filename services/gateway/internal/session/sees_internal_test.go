package session

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// sees is the definition of pg_visible_in_snapshot, with an oracle that counts transactions one by one.
func TestSeesIsVisibility(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		xmax := rapid.Uint64Range(1, 60).Draw(t, "xmax")
		running := make(map[uint64]bool)
		snap := &commonv1.Snapshot{DatabaseId: 1, Xmax: xmax, Xmin: xmax}
		for xid := uint64(1); xid < xmax; xid++ {
			if rapid.Bool().Draw(t, "running") {
				running[xid] = true
				snap.Xmin = min(snap.Xmin, xid)
				snap.InProgress = append(snap.InProgress, xid)
			}
		}
		xid := rapid.Uint64Range(1, 70).Draw(t, "xid")
		want := xid < xmax && !running[xid]
		require.Equal(t, want, sees(snap, &commonv1.Header{CommitXid: xid, DatabaseId: 1}))
		require.False(t, sees(snap, &commonv1.Header{CommitXid: xid, DatabaseId: 2}))
		require.False(t, sees(snap, &commonv1.Header{DatabaseId: 1}), "ephemeral")
		require.False(t, sees(nil, &commonv1.Header{CommitXid: xid, DatabaseId: 1}))
	})
}

// A crash of Postgres takes back ids of transactions that left nothing in its log: those that failed, and
// those that did not wait for the disk. The next ones get them, and are not what the snapshot saw.
func TestIdsThatAreGivenAgainAreNotSeen(t *testing.T) {
	snap := &commonv1.Snapshot{DatabaseId: 1, Xmin: 100, Xmax: 100, TakenAt: 5000}
	before := &commonv1.Header{CommitXid: 99, DatabaseId: 1, BegunAt: 4999}
	again := &commonv1.Header{CommitXid: 99, DatabaseId: 1, BegunAt: 5001}
	require.True(t, sees(snap, before))
	require.False(t, sees(snap, again))

	// From a process of the release before, which does not say when.
	require.True(t, sees(snap, &commonv1.Header{CommitXid: 99, DatabaseId: 1}))
	require.True(t, sees(&commonv1.Snapshot{DatabaseId: 1, Xmin: 100, Xmax: 100}, again))
}

func TestPlan(t *testing.T) {
	srv := &Server{cfg: Config{MaxChannels: 4, Limit: 500}}
	plan := func(frame string) (query, error) {
		f, err := wire.Decode([]byte(frame), wire.DefaultLimits())
		require.NoError(t, err)
		return srv.plan(f.Filters)
	}
	type topics map[string]int // filters per channel
	for _, tt := range []struct {
		name, frame string
		want        topics
		filters     int
		stored      bool
		reason      fault.Reason
	}{
		{"global", `["REQ","s",{}]`, topics{"": 1}, 1, true, 0},
		{"two global", `["REQ","s",{"kinds":[1]},{"kinds":[2]}]`, topics{"": 2}, 2, true, 0},
		{"channels", `["REQ","s",{"#h":["a","b"]},{"#h":["b"]}]`, topics{"a": 1, "b": 2}, 2, true, 0},
		{"both sorts", `["REQ","s",{"#h":["a"]},{}]`, topics{"a": 1, "": 1}, 2, true, 0},
		{"a value twice", `["REQ","s",{"#h":["a","a"]}]`, topics{"a": 1}, 1, true, 0},
		{"upper case H is another tag", `["REQ","s",{"#H":["no channel!"]}]`, topics{"": 1}, 1, true, 0},
		{"matches nothing", `["REQ","s",{"kinds":[],"#h":["a"]}]`, topics{}, 0, false, 0},
		{"empty #h matches nothing", `["REQ","s",{"#h":[]}]`, topics{}, 0, false, 0},
		{"live only", `["REQ","s",{"limit":0}]`, topics{"": 1}, 1, false, 0},
		{"one stored", `["REQ","s",{"limit":0},{"limit":1}]`, topics{"": 2}, 2, true, 0},
		{"longest id", `["REQ","s",{"#h":["` + string(make64()) + `"]}]`, topics{string(make64()): 1}, 1, true, 0},
		{"id too long", `["REQ","s",{"#h":["` + string(make64()) + `x"]}]`, nil, 0, false, fault.Invalid},
		{"bad character", `["REQ","s",{"#h":["a b"]}]`, nil, 0, false, fault.Invalid},
		{"not ASCII", `["REQ","s",{"#h":["ä"]}]`, nil, 0, false, fault.Invalid},
		{"bad though nothing matches", `["REQ","s",{"kinds":[],"#h":["a b"]}]`, nil, 0, false, fault.Invalid},
		{"too many", `["REQ","s",{"#h":["a","b","c"]},{"#h":["a","b"]}]`, nil, 0, false, fault.Invalid},
		{"search is stored only", `["REQ","s",{"search":"x","#h":["a"]},{"search":"y"}]`, topics{}, 2, true, 0},
		{"search besides", `["REQ","s",{"search":"x"},{"#h":["a"]}]`, nil, 0, false, fault.Invalid},
		{"channels of a search", `["REQ","s",{"search":"x","#h":["a b"]}]`, nil, 0, false, fault.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, err := plan(tt.frame)
			require.Equal(t, tt.reason, fault.ReasonOf(err))
			if err != nil {
				return
			}
			got := topics{}
			for _, topic := range q.topics {
				got[topic.channel] = len(topic.filters)
			}
			require.Equal(t, tt.want, got)
			require.Len(t, q.filters, tt.filters)
			require.Equal(t, tt.stored, q.stored)
		})
	}
}

func make64() []byte {
	b := make([]byte, nostr.MaxChannelID)
	for i := range b {
		b[i] = "abcXYZ019_-"[i%11]
	}
	return b
}

func TestRecentForgets(t *testing.T) {
	var r recent
	id := func(n byte) []byte { return append(make([]byte, 31), n) }
	require.False(t, r.seen(id(1)))
	require.True(t, r.seen(id(1)))
	for n := byte(2); n < 70; n++ {
		require.False(t, r.seen(id(n)))
	}
	require.False(t, r.seen(id(1)))
}
