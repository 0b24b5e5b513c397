package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

// beforeOnline is the migration before that which builds indexes beside those who write.
const beforeOnline = 19

// grown returns a database of before the indexes, with rows in several partitions of events and in a table that has none.
func grown(t *testing.T) (url string, p *pgxpool.Pool) {
	t.Helper()
	url = pgtest.Empty(t)
	require.NoError(t, postgres.Migrate(t.Context(), url))
	require.NoError(t, postgres.MigrateDown(t.Context(), url, beforeOnline))
	p = pool(t, url, "")
	exec(t, p, `SELECT ingest.ensure_event_partitions('2026-01-15', 3)`)
	exec(t, p, `INSERT INTO ingest.events (community_id, id, pubkey, kind, created_at, channel_id, raw)
		SELECT 1, sha256(n::text::bytea), sha256('alice'), 9, extract(epoch FROM timestamptz '2025-12-20')::bigint + n * 86400, 1, '{}'
		FROM generate_series(1, 120) AS n`)
	exec(t, p, `INSERT INTO ingest.event_tags (community_id, name, value, created_at, id, kind)
		SELECT community_id, 'p', 'x', created_at, id, 46010 FROM ingest.events`)
	exec(t, p, `INSERT INTO ingest.replies (community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at)
		SELECT community_id, id, id, id, 1, false, pubkey, created_at FROM ingest.events`)
	return url, p
}

func exec(t *testing.T, p *pgxpool.Pool, sql string) {
	t.Helper()
	_, err := p.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// complete wants all indexes that are built online there and valid, also in every partition, and returns their numbers.
func complete(t *testing.T, p *pgxpool.Pool) (numbers []uint32) {
	t.Helper()
	var valid bool
	require.NoError(t, p.QueryRow(t.Context(), `
		WITH RECURSIVE built AS (
			SELECT to_regclass('ingest.' || name)::oid AS number
			FROM unnest(ARRAY['replies_newest', 'replies_depth', 'replies_expiring', 'event_tags_action', 'events_shown']) AS name
			UNION ALL
			SELECT i.inhrelid FROM pg_inherits i JOIN built b ON b.number = i.inhparent)
		SELECT array_agg(x.indexrelid ORDER BY x.indexrelid), bool_and(x.indisvalid)
		FROM built b JOIN pg_index x ON x.indexrelid = b.number`).Scan(&numbers, &valid))
	require.True(t, valid)
	var partitions int
	require.NoError(t, p.QueryRow(t.Context(), `SELECT count(*) FROM pg_inherits
		WHERE inhparent IN ('ingest.events'::regclass, 'ingest.event_tags'::regclass)`).Scan(&partitions))
	require.Len(t, numbers, 5+partitions)
	return numbers
}

// waits returns when the migration waits for what a transaction has open, in the way in which others do not wait behind it.
func waits(t *testing.T, p *pgxpool.Pool) {
	t.Helper()
	// Nothing tells that a session has begun to wait, so it has to be looked at.
	require.Eventually(t, func() bool {
		var n int
		err := p.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'apiary-migrate' AND wait_event = 'virtualxid'`).Scan(&n)
		return err == nil && n == 1
	}, time.Minute, 10*time.Millisecond)
}

// TestIndexesAreBuiltBesideWriters has somebody write to a partition while its index is built, others come and go meanwhile without
// waiting, and a partition more be made. What is built is interrupted, and finished by the next run.
func TestIndexesAreBuiltBesideWriters(t *testing.T) {
	t.Parallel()
	url, p := grown(t)
	writer, err := p.Begin(t.Context())
	require.NoError(t, err)
	defer writer.Rollback(context.WithoutCancel(t.Context()))
	// Its lock as that of a writer, but without one of the parent, which would keep the partition below from being made.
	_, err = writer.Exec(t.Context(), `LOCK TABLE ingest.events_y2026m02 IN ROW EXCLUSIVE MODE`)
	require.NoError(t, err)

	running, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	done := make(chan error, 1)
	go func() { done <- postgres.Migrate(running, url) }()
	waits(t, p)
	other, err := p.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), `SET LOCAL lock_timeout = '1ms'`)
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), `INSERT INTO ingest.events (community_id, id, pubkey, kind, created_at, channel_id, raw)
		SELECT 1, sha256('other'), sha256('alice'), 9, extract(epoch FROM timestamptz '2026-02-02')::bigint, 1, '{}'`)
	require.NoError(t, err, "nobody waits for the index")
	require.NoError(t, other.Commit(t.Context()))
	exec(t, p, `SELECT ingest.ensure_event_partitions('2026-04-15', 1)`)
	interrupt()
	require.ErrorIs(t, <-done, context.Canceled)

	var left bool
	require.NoError(t, p.QueryRow(t.Context(), `SELECT indisvalid FROM pg_index WHERE indexrelid = 'ingest.events_y2026m02_shown'::regclass`).Scan(&left))
	require.False(t, left, "half of an index is left")
	require.ErrorIs(t, postgres.CheckSchema(t.Context(), p), postgres.ErrSchemaBehind)

	go func() { done <- postgres.Migrate(t.Context(), url) }()
	waits(t, p)
	require.NoError(t, writer.Commit(t.Context()))
	require.NoError(t, <-done)
	require.NoError(t, postgres.CheckSchema(t.Context(), p))
	numbers := complete(t, p)

	require.NoError(t, postgres.Migrate(t.Context(), url))
	require.Equal(t, numbers, complete(t, p), "nothing to do")
	exec(t, p, `SELECT ingest.ensure_event_partitions('2026-06-15', 1)`)
	complete(t, p)
}

// TestIndexesThatAreThereStay has a database whose indexes were built as a whole.
func TestIndexesThatAreThereStay(t *testing.T) {
	t.Parallel()
	url, p := grown(t)
	exec(t, p, `CREATE INDEX replies_newest ON ingest.replies (community_id, root_id, created_at DESC, id)`)
	exec(t, p, `CREATE INDEX replies_expiring ON ingest.replies (community_id, root_id, expires_at) WHERE expires_at IS NOT NULL`)
	exec(t, p, `CREATE INDEX event_tags_action ON ingest.event_tags (community_id, value, created_at DESC, id)
		WHERE name = 'p' AND kind IN (40007, 46010)`)
	exec(t, p, `CREATE INDEX events_shown ON ingest.events (community_id, channel_id, created_at DESC, id)
		WHERE channel_id IS NOT NULL AND NOT in_thread`)
	numbers := `SELECT array_agg(indexrelid ORDER BY indexrelid) FROM pg_index WHERE indrelid IN (
		SELECT 'ingest.replies'::regclass UNION SELECT relid FROM pg_partition_tree('ingest.events') UNION SELECT relid FROM pg_partition_tree('ingest.event_tags'))`
	var before, after []uint32
	require.NoError(t, p.QueryRow(t.Context(), numbers).Scan(&before))
	require.NoError(t, postgres.Migrate(t.Context(), url))
	require.NoError(t, postgres.CheckSchema(t.Context(), p))
	complete(t, p)
	require.NoError(t, p.QueryRow(t.Context(), numbers).Scan(&after))
	require.Equal(t, before, after[:len(before)])
	require.Len(t, after, len(before)+1, "replies_depth was not among them")
}
