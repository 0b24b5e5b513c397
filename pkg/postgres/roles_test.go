package postgres_test

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

// tables lists the ordinary and partitioned tables of a schema.
func tables(t *testing.T, p *pgxpool.Pool, schema string) []string {
	t.Helper()
	rows, err := p.Query(t.Context(), `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = $1 ORDER BY 1`, schema)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NotEmpty(t, list)
	return list
}

func TestSearchReadsAndCannotWrite(t *testing.T) {
	t.Parallel()
	admin, search := pgtest.New(t), pgtest.NewAs(t, "apiary_search")
	for _, table := range tables(t, admin, "ingest") {
		for _, statement := range []string{
			"DELETE FROM " + table, "TRUNCATE " + table, "INSERT INTO " + table + " DEFAULT VALUES",
			"CREATE INDEX ON " + table + " ((1))", "DROP TABLE " + table,
		} {
			_, err := search.Exec(t.Context(), statement)
			require.True(t, postgres.IsDenied(err), "%s: %v", statement, err)
		}
	}
	for _, statement := range []string{
		"UPDATE ingest.events SET raw = ''", "UPDATE ingest.channel_members SET role = 'owner'", "CREATE TABLE ingest.mine (x int)",
		"CREATE TABLE public.mine (x int)", "CREATE SCHEMA mine", "SELECT ingest.ensure_event_partitions(now(), 1)",
		"SELECT * FROM ingest.outbox", "DELETE FROM public.goose_db_version", "SELECT nextval('ingest.outbox_id_seq')",
		"SELECT * FROM ingest.community_hosts FOR UPDATE",
	} {
		_, err := search.Exec(t.Context(), statement)
		require.True(t, postgres.IsDenied(err), "%s: %v", statement, err)
	}
	for _, table := range []string{
		"ingest.communities", "ingest.community_hosts", "ingest.community_members", "ingest.channels", "ingest.channel_members",
		"ingest.event_ids", "ingest.events", "ingest.event_tags", "ingest.addresses", "ingest.tombstones", "ingest.address_tombstones",
	} {
		_, err := search.Exec(t.Context(), "SELECT * FROM "+table)
		require.NoError(t, err, table)
	}
}

func TestIngestOwnsNothing(t *testing.T) {
	t.Parallel()
	ingest := pgtest.NewAs(t, "apiary_ingest")
	for _, statement := range []string{
		"CREATE TABLE ingest.mine (x int)", "DROP TABLE ingest.events_default", "ALTER TABLE ingest.events ADD COLUMN x int",
		"CREATE TABLE search.mine (x int)", "TRUNCATE ingest.events",
	} {
		_, err := ingest.Exec(t.Context(), statement)
		require.True(t, postgres.IsDenied(err), "%s: %v", statement, err)
	}
}

// insertEvent stores an event of a time and returns the partition that holds it.
func insertEvent(t *testing.T, ingest *pgxpool.Pool, id byte, at time.Time) string {
	t.Helper()
	key := make([]byte, 32)
	key[0] = id
	_, err := ingest.Exec(t.Context(), `INSERT INTO ingest.events (community_id, id, pubkey, kind, created_at, raw)
		VALUES (1, $1, $1, 1, $2, '{}')`, key, at.Unix())
	require.NoError(t, err)
	var partition string
	require.NoError(t, ingest.QueryRow(t.Context(), `SELECT tableoid::regclass::text FROM ingest.events WHERE id = $1`, key).Scan(&partition))
	return partition
}

func TestIngestMakesPartitions(t *testing.T) {
	t.Parallel()
	ingest := pgtest.NewAs(t, "apiary_ingest")
	ensure := func(from time.Time, months int) int {
		var made int
		require.NoError(t, ingest.QueryRow(t.Context(), `SELECT ingest.ensure_event_partitions($1, $2)`, from, months).Scan(&made))
		return made
	}
	november := time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)
	require.Equal(t, "ingest.events_default", insertEvent(t, ingest, 1, november))
	// November's events are in the default partition already and stay there; the tags' partition is made.
	require.Equal(t, 2*3-1, ensure(november, 3))
	require.Equal(t, "ingest.events_default", insertEvent(t, ingest, 2, november))
	require.Equal(t, "ingest.events_y2026m12", insertEvent(t, ingest, 3, november.Add(time.Second)))
	require.Equal(t, "ingest.events_y2027m01", insertEvent(t, ingest, 4, time.Date(2027, 1, 31, 23, 59, 59, 0, time.UTC)))
	require.Equal(t, "ingest.events_default", insertEvent(t, ingest, 5, time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)))
	require.Zero(t, ensure(november.Add(time.Second), 2))
	require.Equal(t, "ingest.events_default", insertEvent(t, ingest, 6, time.Unix(-1, 0)))
	for _, months := range []int{0, -1, 121} {
		_, err := ingest.Exec(t.Context(), `SELECT ingest.ensure_event_partitions(now(), $1)`, months)
		require.ErrorContains(t, err, "months must be between")
	}
	// Indexes of the parent come with a partition, and its rows are reached through the parent only.
	_, err := ingest.Exec(t.Context(), `SELECT * FROM ingest.events_y2026m12`)
	require.True(t, postgres.IsDenied(err))
}

func TestReplicasMakePartitionsAtOnce(t *testing.T) {
	t.Parallel()
	ingest := pgtest.NewAs(t, "apiary_ingest")
	var running sync.WaitGroup
	errs := make(chan error, 4)
	for range cap(errs) {
		running.Go(func() {
			_, err := ingest.Exec(t.Context(), `SELECT ingest.ensure_event_partitions('2030-01-15', 6)`)
			errs <- err
		})
	}
	running.Wait()
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}
