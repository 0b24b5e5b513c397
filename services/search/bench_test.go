package search

import (
	"encoding/hex"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/fixture"
)

// seeded fills a database and returns how many events it has: 100,000, or a twentieth with -short, which only shows that the
// benchmarks run.
func seeded(b *testing.B, db *fixture.DB) int {
	b.Helper()
	n := 100_000
	if testing.Short() {
		n = 5_000
	}
	db.Seed(b, n)
	return n
}

// BenchmarkQuery measures one REQ's history as the gateway sees it, over gRPC, on 100,000 events in twelve
// monthly partitions. It reports events per answer.
func BenchmarkQuery(b *testing.B) {
	s, db := newService(b, DefaultConfig())
	s.now = func() time.Time { return time.Unix(fixture.End, 0) }
	n := seeded(b, db)
	c := serve(b, s)
	reader := principal(fixture.Author(1))
	tag := func(name byte, value string) []nostr.TagCondition {
		return []nostr.TagCondition{{Name: name, Values: []string{value}}}
	}
	root, me := fixture.EventID(n/2), fixture.Author(1)
	people := make([]nostr.PubKey, 50)
	for i := range people {
		people[i] = fixture.Author(i + 1)
	}
	channels := make([]string, 20)
	for i := range channels {
		channels[i] = "c" + strconv.Itoa(i+1)
	}
	for _, bm := range []struct {
		name    string
		filters []nostr.Filter
	}{
		{"channel/50", []nostr.Filter{{Kinds: []nostr.Kind{9}, Tags: tag('h', "c1"), Limit: limit(50)}}},
		{"channel/500", []nostr.Filter{{Kinds: []nostr.Kind{9}, Tags: tag('h', "c1")}}},
		{"thread", []nostr.Filter{{Kinds: []nostr.Kind{9}, Tags: tag('e', hex.EncodeToString(root[:]))}}},
		{"mentions/50", []nostr.Filter{{Tags: tag('p', hex.EncodeToString(me[:])), Limit: limit(50)}}},
		{"id", []nostr.Filter{{IDs: []nostr.ID{root}}}},
		{"articles of 50", []nostr.Filter{{Kinds: []nostr.Kind{30023}, Authors: people, Limit: limit(50)}}},
		{"notes of 50/50", []nostr.Filter{{Kinds: []nostr.Kind{9}, Authors: people, Limit: limit(50)}}},
		{"all channels/500", []nostr.Filter{{Kinds: []nostr.Kind{9}, Tags: []nostr.TagCondition{{Name: 'h', Values: channels}}}}},
		{"kinds/500", []nostr.Filter{{Kinds: []nostr.Kind{7, 9}}}},
		{"three filters", []nostr.Filter{
			{Kinds: []nostr.Kind{9}, Tags: tag('h', "c1"), Limit: limit(50)},
			{Kinds: []nostr.Kind{7}, Tags: tag('h', "c1"), Limit: limit(50)},
			{Kinds: []nostr.Kind{30023}, Authors: people[:1]},
		}},
		{"live only", []nostr.Filter{{Kinds: []nostr.Kind{9}, Tags: tag('h', "c1"), Limit: limit(0)}}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			req := queryFor(fixture.Seeded, reader, bm.filters...)
			events := 0
			for b.Loop() {
				answer, err := collect(c.Query(b.Context(), req))
				require.NoError(b, err)
				for _, resp := range answer {
					events += len(resp.GetEvents())
				}
			}
			b.ReportMetric(float64(events)/float64(b.N), "events/op")
		})
	}
}

// BenchmarkWindow measures a window of 50 of a channel whose newest 10,000 events are replies in one thread: as ingest stores
// them, and as those are that were stored before it noted which a window shows.
func BenchmarkWindow(b *testing.B) {
	s, db := newService(b, DefaultConfig())
	s.now = func() time.Time { return time.Unix(fixture.End, 0) }
	seeded(b, db)
	c := serve(b, s)
	db.Exec(b, `WITH hot AS (
	INSERT INTO ingest.events (community_id, id, pubkey, kind, created_at, channel_id, raw, in_thread)
	SELECT 1, sha256(('hot' || n)::bytea), sha256('author1'), 9, $1 - 1 - n, 2, convert_to(repeat('x', 400), 'UTF8'), true
	FROM generate_series(1, 10000) n RETURNING id, pubkey, created_at)
INSERT INTO ingest.replies (community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at)
SELECT 1, id, sha256('event50'), sha256('event50'), 1, false, pubkey, created_at FROM hot`, fixture.End)
	req := queryFor(fixture.Seeded, principal(fixture.Author(1)), nostr.Filter{
		Kinds: []nostr.Kind{9}, Tags: []nostr.TagCondition{{Name: 'h', Values: []string{"c2"}}}, Limit: limit(50),
	})
	req.Paging = []*searchv1.Paging{{TopLevel: true}}
	for _, bm := range []struct {
		name  string
		noted bool
	}{{"noted", true}, {"looked up", false}} {
		db.Exec(b, `UPDATE ingest.events SET in_thread = $1 WHERE channel_id = 2 AND created_at >= $2 AND in_thread <> $1`, bm.noted, fixture.End-10_001)
		db.Exec(b, `ANALYZE ingest.events`)
		b.Run(bm.name, func(b *testing.B) {
			for b.Loop() {
				answer, err := collect(c.Query(b.Context(), req))
				require.NoError(b, err)
				require.Len(b, answer[0].GetEvents(), 50)
			}
		})
	}
}

// BenchmarkCount measures a COUNT of most of 100,000 events, near the limit, and of one thread.
func BenchmarkCount(b *testing.B) {
	s, db := newService(b, DefaultConfig())
	n := seeded(b, db)
	c := serve(b, s)
	root := fixture.EventID(n / 2)
	for name, f := range map[string]nostr.Filter{
		"kind":   {Kinds: []nostr.Kind{9}},
		"thread": {Tags: []nostr.TagCondition{{Name: 'e', Values: []string{hex.EncodeToString(root[:])}}}},
	} {
		b.Run(name, func(b *testing.B) {
			req := countFor(fixture.Seeded, principal(fixture.Author(1)), f)
			var n uint64
			for b.Loop() {
				resp, err := c.Count(b.Context(), req)
				require.NoError(b, err)
				n = resp.GetCount()
			}
			b.ReportMetric(float64(n), "events")
		})
	}
}
