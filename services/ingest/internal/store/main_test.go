package store

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const partitions = 64

// fixture is a store with one open community.
type fixture struct {
	*Store
	t         testing.TB
	admin     *pgxpool.Pool // may read and change everything
	community int64
}

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	f := &fixture{Store: New(pgtest.NewAs(tb, "apiary_ingest"), partitions), t: tb, admin: pgtest.New(tb)}
	f.community = f.newCommunity("one.example", AccessOpen)
	return f
}

func (f *fixture) newCommunity(host, access string) int64 {
	f.t.Helper()
	owner := nostrtest.PubKey("owner")
	c, err := f.CreateCommunity(f.t.Context(), NewCommunity{Host: host, Name: host, Access: access, Owner: &owner})
	require.NoError(f.t, err)
	require.True(f.t, c.Created)
	return c.ID
}

// candidate signs an event of author and checks it, without a limit of its time.
func (f *fixture) candidate(author string, opts ...nostrtest.Option) *policy.Candidate {
	f.t.Helper()
	return f.candidateIn(f.community, author, opts...)
}

func (f *fixture) candidateIn(community int64, author string, opts ...nostrtest.Option) *policy.Candidate {
	f.t.Helper()
	ev := nostrtest.Event(f.t, author, opts...)
	c, v := policy.Check(policy.Submission{
		Community: community, Raw: nostrtest.Raw(ev), Principal: []nostr.PubKey{nostrtest.PubKey(author)},
	}, ev, policy.Limits{}, time.Unix(nostrtest.Epoch, 0))
	require.True(f.t, v.Accepted(), v.Message)
	return c
}

// commit commits a batch and returns its verdicts and its row.
func (f *fixture) commit(batch ...*policy.Candidate) ([]policy.Verdict, *Row) {
	f.t.Helper()
	result, err := f.Commit(f.t.Context(), batch)
	require.NoError(f.t, err)
	require.Len(f.t, result.Verdicts, len(batch))
	return result.Verdicts, result.Row
}

// accept commits candidates one by one, each of which must be accepted.
func (f *fixture) accept(batch ...*policy.Candidate) {
	f.t.Helper()
	for _, c := range batch {
		require.Equal(f.t, policy.Verdict{}, f.verdict(c))
	}
}

// verdict commits one candidate.
func (f *fixture) verdict(c *policy.Candidate) policy.Verdict {
	f.t.Helper()
	verdicts, _ := f.commit(c)
	return verdicts[0]
}

// text runs a query for one text.
func (f *fixture) text(query string) (text string) {
	f.t.Helper()
	require.NoError(f.t, f.admin.QueryRow(f.t.Context(), query).Scan(&text))
	return text
}

func (f *fixture) count(query string, args ...any) int {
	f.t.Helper()
	var n int
	require.NoError(f.t, f.admin.QueryRow(f.t.Context(), query, args...).Scan(&n))
	return n
}

// requireStored checks that exactly these events are stored, with all that belongs to them and nothing else.
func (f *fixture) requireStored(want ...*policy.Candidate) {
	f.t.Helper()
	rows, err := f.admin.Query(f.t.Context(), `SELECT encode(id, 'hex') FROM ingest.events`)
	require.NoError(f.t, err)
	got := []string{}
	for rows.Next() {
		var id string
		require.NoError(f.t, rows.Scan(&id))
		got = append(got, id)
	}
	require.NoError(f.t, rows.Err())
	ids := []string{}
	tags, addresses := newTagColumns(0), 0
	for _, c := range want {
		ids = append(ids, c.Event.ID.String())
		tags.addEvent(c.Community, c.Event)
		if _, ok := c.Addressed(); ok {
			addresses++
		}
	}
	require.ElementsMatch(f.t, ids, got, "events")
	require.Equal(f.t, len(want), f.count(`SELECT count(*) FROM ingest.event_ids`), "ids")
	require.Equal(f.t, len(tags.names), f.count(`SELECT count(*) FROM ingest.event_tags`), "tags")
	require.Equal(f.t, addresses, f.count(`SELECT count(*) FROM ingest.addresses`), "addresses")
	require.Equal(f.t, len(want), f.count(`
SELECT count(*) FROM ingest.events e JOIN ingest.event_ids i USING (community_id, id, created_at)`), "events with their ids")
}

// envelopes decodes a row.
func envelopes(tb testing.TB, row *Row) map[uint32][]*commonv1.Envelope {
	tb.Helper()
	got := map[uint32][]*commonv1.Envelope{}
	for _, p := range row.Partitions {
		var batch busv1.EnvelopeBatch
		require.NoError(tb, proto.Unmarshal(p.GetBatch(), &batch))
		require.NotEmpty(tb, batch.GetEnvelopes())
		require.NotContains(tb, got, p.GetPartition())
		got[p.GetPartition()] = batch.GetEnvelopes()
	}
	return got
}

func hexID(c *policy.Candidate) string { return hex.EncodeToString(c.Event.ID[:]) }

func long(s string) string { return s + strings.Repeat("x", 3000) }
