package search

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

func TestDescribeThreads(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	alice, bob := nostrtest.PubKey("alice"), nostrtest.PubKey("bob")
	community := db.Community(t, "open")
	db.Channel(t, community, "lobby", "open")
	db.Channel(t, community, "secret", "private", bob)
	long := nostrtest.Event(t, "alice", nostrtest.Kind(9), nostrtest.CreatedAt(1), nostrtest.Channel("lobby"))
	quiet := nostrtest.Event(t, "alice", nostrtest.Kind(9), nostrtest.CreatedAt(2), nostrtest.Channel("lobby"))
	hidden := nostrtest.Event(t, "alice", nostrtest.Kind(9), nostrtest.CreatedAt(3), nostrtest.Channel("secret"))
	missing := nostrtest.Event(t, "alice", nostrtest.Kind(9), nostrtest.CreatedAt(4), nostrtest.Channel("lobby"))
	db.Insert(t, community, long, quiet, hidden)
	for _, root := range []*nostr.Event{long, hidden, missing} {
		db.Exec(t, `INSERT INTO ingest.reply_counts (community_id, id, replies, descendants, summary_at) VALUES ($1, $2, 3, 40, 50)`,
			int64(community), root.ID[:])
		for i := range 40 {
			reply, author := nostr.ID{root.ID[0], byte(i)}, nostrtest.PubKey(fmt.Sprint("writer ", i/3))
			db.Exec(t, `INSERT INTO ingest.replies (community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at)
				VALUES ($1, $2, $3, $3, 1, false, $4, $5)`, int64(community), reply[:], root.ID[:], author[:], 100+i)
		}
	}
	req := &searchv1.DescribeThreadsRequest{
		Community: int64(community), Principal: principal(alice),
		Roots: [][]byte{hidden.ID[:], long.ID[:], quiet.ID[:], missing.ID[:]},
	}
	want := &searchv1.Thread{Root: long.ID[:], Replies: 3, Descendants: 40, LastReplyAt: 139, SummaryAt: 50}
	for i := 13; i > 3; i-- {
		author := nostrtest.PubKey(fmt.Sprint("writer ", i))
		want.Participants = append(want.Participants, author[:])
	}
	resp, err := c.DescribeThreads(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]*searchv1.Thread{want}, resp.GetThreads(), protocmp.Transform()))

	req.Principal = principal(bob)
	resp, err = c.DescribeThreads(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, resp.GetThreads(), 2)
	db.Ban(t, community, bob)
	resp, err = c.DescribeThreads(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, resp.GetThreads())

	for name, req := range map[string]*searchv1.DescribeThreadsRequest{
		"no community": {Roots: req.GetRoots()},
		"a short id":   {Community: 1, Roots: [][]byte{{1}}},
		"too many":     {Community: 1, Roots: make([][]byte, maxRoots+1)},
		"a short key":  {Community: 1, Principal: principal(alice, bob), Roots: [][]byte{nil}},
	} {
		_, err := c.DescribeThreads(t.Context(), req)
		require.Equal(t, fault.Invalid, fault.ReasonOf(err), name)
	}
}
