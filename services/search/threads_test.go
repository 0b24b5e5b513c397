package search

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
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
	require.Empty(t, gocmp.Diff([]*searchv1.Thread{want}, resp.GetThreads(), protocmp.Transform()))

	// Replies that have expired count no more, before they are removed; the newest are others then.
	db.Exec(t, `UPDATE ingest.replies SET expires_at = CASE WHEN created_at < 138 THEN 4000000000 ELSE 1 END WHERE root_id = $1 AND created_at > 129`, long.ID[:])
	db.Exec(t, `UPDATE ingest.replies SET parent_id = id WHERE root_id = $1 AND created_at > 138`, long.ID[:])
	resp, err = c.DescribeThreads(t.Context(), req)
	require.NoError(t, err)
	require.EqualValues(t, 2, resp.GetThreads()[0].GetReplies())
	require.EqualValues(t, 38, resp.GetThreads()[0].GetDescendants())
	require.EqualValues(t, 137, resp.GetThreads()[0].GetLastReplyAt())
	require.Equal(t, want.GetParticipants()[1], resp.GetThreads()[0].GetParticipants()[0])
	db.Exec(t, `UPDATE ingest.replies SET expires_at = 1`)
	resp, err = c.DescribeThreads(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, resp.GetThreads())
	db.Exec(t, `UPDATE ingest.replies SET expires_at = NULL`)

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

func TestQueryThread(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	alice, bob := nostrtest.PubKey("alice"), nostrtest.PubKey("bob")
	community := db.Community(t, "open")
	db.Channel(t, community, "lobby", "open")
	db.Channel(t, community, "secret", "private", bob)
	made := 0
	event := func(channel string, kind nostr.Kind, at int64) *nostr.Event {
		made++
		e := nostrtest.Event(t, "alice", nostrtest.Kind(kind), nostrtest.CreatedAt(at), nostrtest.Channel(channel), nostrtest.Content(strconv.Itoa(made)))
		db.Insert(t, community, e)
		return e
	}
	thread := func(channel string) (root *nostr.Event, replies []*nostr.Event) {
		root = event(channel, 9, 1)
		for i := range 6 {
			e := event(channel, nostr.Kind(9+i%2*44992), int64(2+i/3)) // 9 and 45001, three in a second
			db.Exec(t, `INSERT INTO ingest.replies (community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at)
				VALUES ($1, $2, $3, $3, $4, false, $5, $6)`, int64(community), e.ID[:], root.ID[:], 1+i/3, alice[:], e.CreatedAt)
			replies = append(replies, e)
		}
		slices.SortFunc(replies, func(a, b *nostr.Event) int {
			return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), bytes.Compare(a.ID[:], b.ID[:]))
		})
		return root, replies
	}
	root, replies := thread("lobby")
	secret, hidden := thread("secret")
	more := false
	ask := func(req *searchv1.QueryThreadRequest) []string {
		t.Helper()
		req.Community = int64(community)
		if req.GetLimit() == 0 {
			req.Limit = 100
		}
		resp, err := c.QueryThread(t.Context(), req)
		require.NoError(t, err)
		more = resp.GetMore()
		list := []string{}
		for _, raw := range resp.GetEvents() {
			list = append(list, string(raw))
		}
		return list
	}
	reader := principal(alice)
	require.Equal(t, raws(replies...), ask(&searchv1.QueryThreadRequest{Principal: reader, Root: root.ID[:], Depth: 100}))
	require.Equal(t, raws(replies[:3]...), ask(&searchv1.QueryThreadRequest{Principal: reader, Root: root.ID[:], Depth: 1}))
	require.Equal(t, raws(replies...), ask(&searchv1.QueryThreadRequest{Principal: reader, Root: root.ID[:], Depth: 100, Channel: "lobby"}))
	require.Empty(t, ask(&searchv1.QueryThreadRequest{Principal: reader, Root: root.ID[:], Depth: 100, Channel: "secret"}))
	require.Empty(t, ask(&searchv1.QueryThreadRequest{Principal: reader, Root: root.ID[:], Depth: 100, Channel: "no\x00where"}))
	require.Len(t, ask(&searchv1.QueryThreadRequest{Principal: reader, Root: root.ID[:], Depth: 100, Kinds: []uint32{9}}), 3)
	require.Empty(t, ask(&searchv1.QueryThreadRequest{Principal: reader, Root: secret.ID[:], Depth: 100}))
	require.Equal(t, raws(hidden...), ask(&searchv1.QueryThreadRequest{Principal: principal(bob), Root: secret.ID[:], Depth: 100}))
	walked := []string{}
	req := &searchv1.QueryThreadRequest{Principal: reader, Root: root.ID[:], Depth: 100, Limit: 2}
	for i := 0; i < len(replies); i += 2 {
		walked = append(walked, ask(req)...)
		require.Equal(t, i+2 < len(replies), more, "the last page is full")
		last := replies[i+1]
		req.AfterCreatedAt, req.AfterId = last.CreatedAt, last.ID[:]
	}
	require.Equal(t, raws(replies...), walked)
	require.Empty(t, ask(req))
	require.Equal(t, raws(replies[3:]...), ask(&searchv1.QueryThreadRequest{Principal: reader, Root: root.ID[:], Depth: 100, AfterCreatedAt: 3}),
		"without an id those of its second are wanted as well")

	newest := slices.Clone(replies)
	slices.SortFunc(newest, func(a, b *nostr.Event) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	for size := 1; size <= len(newest)+1; size++ {
		for _, depth := range []uint32{2, 100} {
			for reverse, want := range map[bool][]*nostr.Event{true: newest, false: replies} {
				walked = []string{}
				req = &searchv1.QueryThreadRequest{
					Principal: reader, Root: root.ID[:], Depth: depth, Channel: "lobby", NewestFirst: reverse, Limit: uint32(size),
				}
				for more = true; more; {
					walked = append(walked, ask(req)...)
					last := want[len(walked)-1]
					req.AfterCreatedAt, req.AfterId = last.CreatedAt, last.ID[:]
					require.Equal(t, len(walked) < len(want), more, "pages of %d", size)
				}
				require.Equal(t, raws(want...), walked, "pages of %d", size)
			}
		}
	}
	for _, channel := range []string{"", "secret", "lobby"} {
		require.Empty(t, ask(&searchv1.QueryThreadRequest{Principal: reader, Root: secret.ID[:], Depth: 100, Channel: channel, NewestFirst: true}))
		require.False(t, more)
	}

	// A page that is cut because of its size says that there is more.
	root = event("lobby", 9, 1)
	for i := range 8 {
		e := nostrtest.Event(t, "alice", nostrtest.Kind(9), nostrtest.CreatedAt(int64(10+i)), nostrtest.Channel("lobby"), nostrtest.Content(strings.Repeat("x", 1<<20)))
		db.Insert(t, community, e)
		db.Exec(t, `INSERT INTO ingest.replies (community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at)
			VALUES ($1, $2, $3, $3, 1, false, $4, $5)`, int64(community), e.ID[:], root.ID[:], alice[:], e.CreatedAt)
	}
	for _, first := range []bool{true, false} {
		require.Len(t, ask(&searchv1.QueryThreadRequest{Principal: reader, Root: root.ID[:], Depth: 1, NewestFirst: first}), 6)
		require.True(t, more)
	}

	for name, req := range map[string]*searchv1.QueryThreadRequest{
		"no community": {Root: root.ID[:], Limit: 1},
		"no root":      {Community: 1, Limit: 1},
		"no limit":     {Community: 1, Root: root.ID[:]},
		"too many":     {Community: 1, Root: root.ID[:], Limit: maxReplies + 1},
		"a short id":   {Community: 1, Root: root.ID[:], Limit: 1, AfterId: []byte{1}},
	} {
		_, err := c.QueryThread(t.Context(), req)
		require.Equal(t, fault.Invalid, fault.ReasonOf(err), name)
	}
}

// TestRepliesThatAreNotWanted has thousands of them between those that are: of other kinds, deeper, by somebody who asked to vanish.
func TestRepliesThatAreNotWanted(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	alice, gone := nostrtest.PubKey("alice"), nostrtest.PubKey("gone")
	community := db.Community(t, "open")
	db.Channel(t, community, "lobby", "open")
	root := nostrtest.Event(t, "alice", nostrtest.Kind(9), nostrtest.CreatedAt(1), nostrtest.Channel("lobby"))
	db.Insert(t, community, root)
	var wanted []*nostr.Event
	for i := range 5 {
		e := nostrtest.Event(t, "alice", nostrtest.Kind(45001), nostrtest.CreatedAt(int64(1000*i+500)), nostrtest.Channel("lobby"))
		db.Insert(t, community, e)
		wanted = append(wanted, e)
	}
	db.Exec(t, `INSERT INTO ingest.vanished (community_id, pubkey, until, request_id) VALUES ($1, $2, 1000000, $2)`, int64(community), gone[:])
	db.Exec(t, `
INSERT INTO ingest.events (community_id, id, pubkey, kind, created_at, channel_id, raw)
SELECT $1, sha256(n::text::bytea), CASE n % 3 WHEN 1 THEN $2::bytea ELSE $3 END, CASE n % 3 WHEN 0 THEN 45003 WHEN 1 THEN 45001 ELSE 9 END, n,
    (SELECT id FROM ingest.channels WHERE community_id = $1 AND h = 'lobby'), '{}' FROM generate_series(2, 5000) AS n`, int64(community), gone[:], alice[:])
	db.Exec(t, `
INSERT INTO ingest.replies (community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at)
SELECT e.community_id, e.id, $2, $2, CASE e.kind WHEN 9 THEN 7 ELSE 1 END, false, e.pubkey, e.created_at
FROM ingest.events e WHERE e.community_id = $1 AND e.id <> $2`, int64(community), root.ID[:])

	newest := slices.Clone(wanted)
	slices.Reverse(newest)
	for reverse, list := range map[bool][]*nostr.Event{false: wanted, true: newest} {
		want := raws(list...)
		for size := 1; size <= 2*(len(want)+1); size++ {
			req := &searchv1.QueryThreadRequest{
				Community: int64(community), Principal: principal(alice), Root: root.ID[:], Depth: 100, Kinds: []uint32{45001}, NewestFirst: reverse,
				Limit: uint32(1 + size/2),
			}
			if size%2 > 0 {
				req.Depth = 6
			}
			for walked := 0; ; {
				resp, err := c.QueryThread(t.Context(), req)
				require.NoError(t, err)
				for _, raw := range resp.GetEvents() {
					require.Equal(t, want[walked], string(raw))
					walked++
				}
				require.Equal(t, walked < len(want), resp.GetMore())
				if !resp.GetMore() {
					require.Equal(t, len(want), walked)
					break
				}
				last := list[walked-1]
				req.AfterCreatedAt, req.AfterId = last.CreatedAt, last.ID[:]
			}
		}
	}
}
