package store

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// keptTables outlive their community, for a reason each.
var keptTables = []string{
	"ingest.community_deletions", // so that who asks again hears what became of it; it names nothing that the community held
}

// communityTables are all tables of all schemas that keep something of communities.
func communityTables(f *fixture) []string {
	f.t.Helper()
	rows, err := f.admin.Query(f.t.Context(), `
SELECT n.nspname || '.' || c.relname FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'community_id' AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY 1`)
	require.NoError(f.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(f.t, err)
	require.Greater(f.t, len(all), 25)
	return slices.DeleteFunc(all, func(t string) bool { return slices.Contains(keptTables, t) })
}

// column is a column that a row must have a value for.
type column struct{ name, kind string }

// value is something that the column takes, different for each n.
func (c column) value(f *fixture, community int64, n int) any {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%d", c.name, community, n))
	switch c.name {
	case "community_id":
		return community
	case "channel_id":
		return f.count(fmt.Sprintf(`SELECT id FROM ingest.channels WHERE community_id = %d ORDER BY id OFFSET %d LIMIT 1`, community, n))
	case "role":
		return "member"
	case "status":
		return "resolved"
	case "network":
		return fmt.Sprintf("10.0.%d.0/24", n)
	}
	switch c.kind {
	case "bytea":
		return sum[:]
	case "text":
		return fmt.Sprintf("text-%d-%d", community, n)
	case "timestamp with time zone":
		return time.Now().Add(time.Hour)
	case "boolean":
		return true
	case "tsvector":
		return "word"
	case "bigint", "integer", "smallint":
		return n + 1
	}
	require.Fail(f.t, "no value for "+c.name+" "+c.kind, "teach this test a value, so that the table is filled")
	return nil
}

// fill adds rows of a community to a table.
func (f *fixture) fill(table string, community int64, rows int) error {
	schema, name, _ := strings.Cut(table, ".")
	found, err := f.admin.Query(f.t.Context(), `
SELECT column_name, data_type FROM information_schema.columns
WHERE table_schema = $1 AND table_name = $2 AND is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'
    OR table_schema = $1 AND table_name = $2 AND column_name = 'community_id'`, schema, name)
	require.NoError(f.t, err)
	columns, err := pgx.CollectRows(found, func(r pgx.CollectableRow) (c column, err error) { return c, r.Scan(&c.name, &c.kind) })
	require.NoError(f.t, err)
	for n := range rows {
		names, places, args := []string{}, []string{}, []any{}
		for i, c := range columns {
			names, places = append(names, c.name), append(places, fmt.Sprintf("$%d", i+1))
			args = append(args, c.value(f, community, n))
		}
		if _, err := f.admin.Exec(f.t.Context(), "INSERT INTO "+table+" ("+strings.Join(names, ",")+") VALUES ("+strings.Join(places, ",")+")", args...); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf counts the rows of a community, by table.
func (f *fixture) rowsOf(community int64) map[string]int {
	f.t.Helper()
	counts := map[string]int{}
	for _, table := range communityTables(f) {
		counts[table] = f.count(fmt.Sprintf(`SELECT count(*) FROM %s WHERE community_id = %d`, table, community))
	}
	return counts
}

// archiveAndDelete has a community of owner deleted.
func (f *fixture) archiveAndDelete(community int64, host, request string) {
	f.t.Helper()
	_, _, err := f.ArchiveCommunity(f.t.Context(), community, nil)
	require.NoError(f.t, err)
	d, err := f.DeleteCommunity(f.t.Context(), CommunityRef{Host: host}, nostrtest.PubKey("owner"), request)
	require.NoError(f.t, err)
	require.False(f.t, d.Finished)
}

// drain drains until nothing is left to do, and returns how many steps that took.
func (f *fixture) drain(replica string, limit int) (steps int) {
	f.t.Helper()
	for {
		step, err := f.DrainCommunity(f.t.Context(), replica, time.Minute, limit)
		require.NoError(f.t, err)
		if step.RequestID == "" {
			return steps
		}
		require.LessOrEqual(f.t, step.Removed, limit)
		steps++
		if step.Empty {
			finished, err := f.FinishDeletion(f.t.Context(), step.RequestID, replica)
			require.NoError(f.t, err)
			require.True(f.t, finished)
		}
	}
}

// A table that keeps something of communities, in whichever schema, is emptied: a new one that drains does not know,
// or whose schema lends no function, fails here.
func TestNothingOfADeletedCommunityIsLeft(t *testing.T) {
	f := newFixture(t)
	other := f.newCommunity("other.example", AccessClosed)
	const rows = 5
	for _, community := range []int64{f.community, other} {
		require.NoError(t, f.fill("ingest.channels", community, rows)) // others refer to them
		for _, table := range communityTables(f) {
			switch table {
			case "ingest.channels":
			case "ingest.community_hosts": // which has one, and keeps it from others
			default:
				require.NoError(t, f.fill(table, community, rows), table)
			}
		}
	}
	for table, n := range f.rowsOf(f.community) {
		require.NotZero(t, n, table)
	}
	before := f.rowsOf(other)
	f.archiveAndDelete(f.community, "one.example", "request-1")
	require.Greater(t, f.drain("replica", 3), 40, "it goes in small steps")
	for table, n := range f.rowsOf(f.community) {
		require.Zero(t, n, table)
	}
	require.Zero(t, f.count(fmt.Sprintf(`SELECT count(*) FROM ingest.communities WHERE id = %d`, f.community)))
	require.Equal(t, before, f.rowsOf(other), "nothing of another is touched")
}

// The statements go through indexes that begin with the community, however many rows of others there are.
func TestDrainsReadNothingOfOthers(t *testing.T) {
	f := newFixture(t)
	conn, err := f.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), strings.ReplaceAll(sqlPlainPlans, ", true)", ", false)"))
	require.NoError(t, err)
	for _, statement := range drains {
		rows, err := conn.Query(t.Context(), "EXPLAIN "+strings.NewReplacer("$1", "1::bigint", "$2", "10").Replace(statement))
		require.NoError(t, err, statement)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.NotContains(t, strings.Join(lines, "\n"), "Seq Scan", statement)
	}
}

func TestTheOutboxForgetsADeletedCommunity(t *testing.T) {
	f := newFixture(t)
	other := f.newCommunity("other.example", AccessOpen)
	say := func(community int64, n int) *policy.Candidate {
		return f.candidateIn(community, fmt.Sprint("author ", n), nostrtest.Content("hello"))
	}
	for n := range 20 { // rows of both together, rows of one alone
		f.accept(say(f.community, n), say(other, n))
		f.accept(say(f.community, 100+n))
	}
	f.archiveAndDelete(f.community, "one.example", "request-1")
	f.drain("replica", 100)
	left, found := 0, 0
	_, err := f.SweepOutbox(t.Context(), 0, 0, 1000, func(rows []*Row) []int64 {
		for _, row := range rows {
			require.NoError(t, row.Err)
			require.NotEmpty(t, row.Partitions)
			for _, p := range row.Partitions {
				var batch busv1.EnvelopeBatch
				require.NoError(t, proto.Unmarshal(p.GetBatch(), &batch))
				require.NotEmpty(t, batch.GetEnvelopes())
				for _, e := range batch.GetEnvelopes() {
					found++
					if e.GetHeader().GetCommunity() == f.community {
						left++
					}
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Zero(t, left)
	require.Equal(t, 20, found, "what is another's is still to be published")
}

func TestOneReplicaDrainsAndAnotherGoesOn(t *testing.T) {
	f := newFixture(t)
	for n := range 10 {
		f.accept(f.candidate(fmt.Sprint("author ", n), nostrtest.Content("hello")))
	}
	f.archiveAndDelete(f.community, "one.example", "request-1")
	step, err := f.DrainCommunity(t.Context(), "first", time.Minute, 5)
	require.NoError(t, err)
	require.Equal(t, 5, step.Removed)
	none, err := f.DrainCommunity(t.Context(), "second", time.Minute, 5)
	require.NoError(t, err)
	require.Empty(t, none.RequestID, "the first has it in hand")
	d, err := f.DeleteCommunity(t.Context(), CommunityRef{Host: "one.example"}, nostrtest.PubKey("owner"), "request-1")
	require.NoError(t, err)
	require.True(t, d.Begun)
	require.EqualValues(t, 5, d.Removed)

	// It was killed; its lease ends.
	_, err = f.admin.Exec(t.Context(), `UPDATE ingest.community_deletions SET lease_until = now() - interval '1 second'`)
	require.NoError(t, err)
	step, err = f.DrainCommunity(t.Context(), "second", time.Minute, 5)
	require.NoError(t, err)
	require.Equal(t, "request-1", step.RequestID)
	// It was not dead, only late: it finishes nothing any more, and finds nothing to do.
	finished, err := f.FinishDeletion(t.Context(), "request-1", "first")
	require.NoError(t, err)
	require.False(t, finished)
	none, err = f.DrainCommunity(t.Context(), "first", time.Minute, 5)
	require.NoError(t, err)
	require.Empty(t, none.RequestID)

	f.drain("second", 1000)
	d, err = f.DeleteCommunity(t.Context(), CommunityRef{Host: "one.example"}, nostrtest.PubKey("owner"), "request-1")
	require.NoError(t, err)
	require.True(t, d.Finished)
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.events`))
}

func TestDeletionsAreAskedForOnce(t *testing.T) {
	f := newFixture(t)
	owner, ref := nostrtest.PubKey("owner"), CommunityRef{Host: "one.example"}
	remove := func(ref CommunityRef, by nostr.PubKey, request string) error {
		_, err := f.DeleteCommunity(t.Context(), ref, by, request)
		return err
	}
	require.ErrorIs(t, remove(ref, owner, "request-1"), ErrNotArchived)
	_, _, err := f.ArchiveCommunity(t.Context(), f.community, &owner)
	require.NoError(t, err)
	require.ErrorIs(t, remove(ref, nostrtest.PubKey("mallory"), "request-1"), ErrNoCommunity)
	require.ErrorIs(t, remove(CommunityRef{Host: "missing.example"}, owner, "request-1"), ErrNoCommunity)
	uuid := f.text(`SELECT uuid::text FROM ingest.communities`)
	require.NoError(t, remove(ref, owner, "request-1"))
	require.NoError(t, remove(ref, owner, "request-1"))
	require.NoError(t, remove(CommunityRef{UUID: uuid}, owner, "request-1"))
	require.ErrorIs(t, remove(ref, owner, "request-2"), ErrDeletionConflict)
	require.ErrorIs(t, remove(ref, nostrtest.PubKey("mallory"), "request-1"), ErrNoCommunity)
	_, err = f.UnarchiveCommunity(t.Context(), f.community, &owner)
	require.ErrorIs(t, err, ErrNoCommunity, "there is no way back")
	_, err = f.PutMember(t.Context(), f.community, nostrtest.PubKey("bob"), policy.RoleMember)
	require.ErrorIs(t, err, ErrNoCommunity, "no row is added any more")

	f.drain("replica", 1000)
	require.NoError(t, remove(ref, owner, "request-1"), "who asks again hears that it is done")
	require.NoError(t, remove(CommunityRef{UUID: uuid}, owner, "request-1"))
	require.ErrorIs(t, remove(ref, owner, "request-2"), ErrNoCommunity)

	// Its host is nobody's until it is released.
	made := NewCommunity{Host: "one.example", Access: AccessOpen}
	var taken *HostError
	_, err = f.CreateCommunity(t.Context(), made)
	require.ErrorAs(t, err, &taken)
	require.True(t, taken.Retired)
	_, err = f.CommunityByHost(t.Context(), "one.example")
	require.ErrorIs(t, err, ErrNoCommunity)
	made.Owner, made.Existing = &owner, RotateOwner
	_, err = f.CreateCommunity(t.Context(), made)
	require.ErrorAs(t, err, &taken)
	made.Owner, made.Existing = nil, LeaveExisting
	_, err = f.CreateCommunity(t.Context(), NewCommunity{Host: "new.example", Aliases: []string{"one.example"}, Access: AccessOpen})
	require.ErrorAs(t, err, &taken)
	require.Equal(t, 0, f.count(`SELECT count(*) FROM ingest.communities`), "nothing is made halfway")
	for _, was := range []bool{true, false} {
		released, err := f.ReleaseHost(t.Context(), "one.example")
		require.NoError(t, err)
		require.Equal(t, was, released)
	}
	again, err := f.CreateCommunity(t.Context(), made)
	require.NoError(t, err)
	require.True(t, again.Created)
	require.NotEqual(t, f.community, again.ID)
	require.NotEqual(t, uuid, again.UUID)
	_, err = f.ReleaseHost(t.Context(), "one.example")
	require.ErrorAs(t, err, &taken)
	require.ErrorIs(t, remove(ref, owner, "request-1"), ErrDeletionConflict, "the id is that of the community before")
}
