package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
)

// Statements that remove what a deleted community has left.
const (
	// By community_deletions_open. Whoever holds the lease goes on with it; who was killed holds it until it ends. The row
	// stays locked, so that a step which outlived its lease and the next one exclude each other.
	sqlLease = `
UPDATE ingest.community_deletions d
SET drained_by = $1, lease_until = now() + make_interval(secs => $2)
FROM (
    SELECT request_id FROM ingest.community_deletions
    WHERE finished_at IS NULL AND (drained_by = $1 OR lease_until < now())
    ORDER BY requested_at, request_id LIMIT 1 FOR UPDATE SKIP LOCKED) AS q
WHERE d.request_id = q.request_id
RETURNING d.request_id, d.community_id, d.outbox_done, d.outbox_end`

	// By community_deletions_pkey.
	sqlNoteDrained = `
UPDATE ingest.community_deletions SET removed = removed + $2, outbox_done = $3 WHERE request_id = $1`

	// By outbox_pkey. Who is publishing a row is waited for.
	sqlOutboxPage = `
SELECT id, payload FROM ingest.outbox WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3 FOR UPDATE`

	// By outbox_pkey.
	sqlRewriteRow = `UPDATE ingest.outbox SET payload = $2 WHERE id = $1`

	// By events_time.
	sqlDrainEvents = `
DELETE FROM ingest.events e
USING (SELECT created_at, id FROM ingest.events WHERE community_id = $1 LIMIT $2) AS q
WHERE e.community_id = $1 AND e.created_at = q.created_at AND e.id = q.id`

	// By event_tags_value.
	sqlDrainEventTags = `
DELETE FROM ingest.event_tags t
USING (SELECT name, value, created_at, id FROM ingest.event_tags WHERE community_id = $1 LIMIT $2) AS q
WHERE t.community_id = $1 AND t.name = q.name AND t.value = q.value AND t.created_at = q.created_at AND t.id = q.id`

	// sqlPlainPlans has the statements above go through their indexes, whatever statistics say of a table that is being
	// emptied: any other plan reads what it has removed already, or all communities.
	sqlPlainPlans = `
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true)`

	// Lent by search, whose the text index is.
	sqlForgetDocuments = `SELECT search.forget_community($1, $2)`

	// By communities_pkey. The hosts stay, without a community.
	sqlDropCommunity = `DELETE FROM ingest.communities WHERE id = $1`

	// By community_deletions_pkey.
	sqlFinishDeletion = `
UPDATE ingest.community_deletions SET finished_at = now()
WHERE request_id = $1 AND finished_at IS NULL AND drained_by = $2
RETURNING community_id`
)

// outboxPage is how many outbox rows one step looks through, each of up to about a megabyte.
const outboxPage = 8

// drains are the statements that remove up to $2 rows of the community $1, in order: an event's id goes before its text
// index, which is only added to while the id is there, and what refers to a row goes before it, so that no removal
// takes others with it unbounded.
var drains = []string{
	drainOf("event_ids"), sqlDrainEvents, sqlDrainEventTags, drainOf("addresses"),
	drainOf("tombstones"), drainOf("address_tombstones"),
	drainOf("reactions"), drainOf("replies"), drainOf("reply_counts"),
	drainOf("channel_invites"), drainOf("channel_members"), drainOf("channels"), drainOf("deleted_channels"),
	drainOf("banned_pubkeys"), drainOf("banned_events"), drainOf("decided_reports"), drainOf("report_decisions"),
	drainOf("moderation_actions"), drainOf("timeouts"), drainOf("allowed_kinds"), drainOf("blocked_networks"),
	drainOf("vanished"), drainOf("reminders"), drainOf("http_tokens"), drainOf("commands"), drainOf("invites"), drainOf("agents"), drainOf("community_members"),
	sqlForgetDocuments,
}

// drainOf removes rows of a table that is not partitioned, by the index that begins with the community. Its rows are not
// changed any more, so they stay where they were found.
func drainOf(table string) string {
	return `DELETE FROM ingest.` + table + ` WHERE community_id = $1
    AND ctid = ANY (ARRAY(SELECT t.ctid FROM ingest.` + table + ` t WHERE t.community_id = $1 LIMIT $2))`
}

// Drained is what one step of DrainCommunity has done.
type Drained struct {
	// RequestID names the deletion, empty when there was nothing to do. Community is its community.
	RequestID string
	Community int64
	// Removed is how many rows were removed. Empty is set when there were none: FinishDeletion is next.
	Removed int
	Empty   bool
}

// DrainCommunity removes up to limit rows of one community that is being deleted, in one transaction, if no other replica
// has it in hand. replica names the caller, which keeps the community for as long as lease after each step; so of all
// replicas one works on it, and another goes on when that one is gone.
func (s *Store) DrainCommunity(ctx context.Context, replica string, lease time.Duration, limit int) (step Drained, err error) {
	err = s.inTx(ctx, lockSet{}, func(conn *pgx.Conn) error {
		step = Drained{}
		var done, end int64
		switch err := conn.QueryRow(ctx, sqlLease, replica, lease.Seconds()).Scan(&step.RequestID, &step.Community, &done, &end); {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return fmt.Errorf("lease: %w", err)
		}
		if _, err := conn.Exec(ctx, sqlPlainPlans); err != nil {
			return err
		}
		looked, last, err := drainOutbox(ctx, conn, step.Community, done, end)
		if err != nil {
			return err
		}
		if step.Removed, err = drainRows(ctx, conn, step.Community, limit); err != nil {
			return err
		}
		step.Empty = !looked && step.Removed == 0
		_, err = conn.Exec(ctx, sqlNoteDrained, step.RequestID, step.Removed, last)
		return err
	})
	if err != nil {
		return Drained{}, fmt.Errorf("drain community: %w", err)
	}
	return step, nil
}

// drainRows removes up to limit rows.
func drainRows(ctx context.Context, conn *pgx.Conn, community int64, limit int) (removed int, err error) {
	for _, statement := range drains {
		if removed >= limit {
			break
		}
		if statement == sqlForgetDocuments {
			var n int
			if err := conn.QueryRow(ctx, statement, community, limit-removed).Scan(&n); err != nil {
				return 0, fmt.Errorf("remove documents: %w", err)
			}
			removed += n
			continue
		}
		tag, err := conn.Exec(ctx, statement, community, limit-removed)
		if err != nil {
			return 0, fmt.Errorf("remove rows: %w", err)
		}
		removed += int(tag.RowsAffected())
	}
	return removed, nil
}

// drainOutbox takes the community's envelopes out of one page of the outbox, so that none is published from there any more.
// It reports whether there was anything to look at, and how far it has come.
func drainOutbox(ctx context.Context, conn *pgx.Conn, community, done, end int64) (looked bool, last int64, err error) {
	if done >= end {
		return false, done, nil
	}
	rows, err := conn.Query(ctx, sqlOutboxPage, done, end, outboxPage)
	if err != nil {
		return false, done, fmt.Errorf("read outbox: %w", err)
	}
	b := &pgx.Batch{}
	found := 0
	var id int64
	var payload []byte
	if _, err := pgx.ForEachRow(rows, []any{&id, &payload}, func() error {
		found++
		last = id
		switch rest, changed := without(payload, community); {
		case changed && rest == nil:
			b.Queue(sqlDeleteRows, []int64{id})
		case changed:
			b.Queue(sqlRewriteRow, id, rest)
		}
		return nil
	}); err != nil {
		return false, done, fmt.Errorf("read outbox: %w", err)
	}
	if found < outboxPage {
		last = end
	}
	if b.Len() > 0 {
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			return false, done, fmt.Errorf("take from outbox: %w", err)
		}
	}
	return found > 0, last, nil
}

// without returns an outbox payload without the envelopes of a community, nil if it has no others, and whether it had any.
// What cannot be decoded cannot be published either, and is left to who looks after such rows. The messages keep
// their ids: one that was published with these envelopes is not published again, and one that was not is without them.
func without(payload []byte, community int64) (rest []byte, changed bool) {
	var p busv1.OutboxPayload
	if proto.Unmarshal(payload, &p) != nil {
		return payload, false
	}
	kept := make([]*busv1.PartitionBatch, 0, len(p.GetPartitions()))
	for _, partition := range p.GetPartitions() {
		var batch busv1.EnvelopeBatch
		if proto.Unmarshal(partition.GetBatch(), &batch) != nil {
			return payload, false
		}
		all := batch.GetEnvelopes()
		batch.Envelopes = nil
		for _, e := range all {
			if e.GetHeader().GetCommunity() != community {
				batch.Envelopes = append(batch.Envelopes, e)
			}
		}
		if len(batch.GetEnvelopes()) == len(all) {
			kept = append(kept, partition)
			continue
		}
		changed = true
		if len(batch.GetEnvelopes()) == 0 {
			continue
		}
		encoded, err := proto.Marshal(&batch)
		if err != nil {
			return payload, false
		}
		kept = append(kept, &busv1.PartitionBatch{Partition: partition.GetPartition(), Batch: encoded})
	}
	if !changed {
		return payload, false
	}
	if len(kept) == 0 {
		return nil, true
	}
	p.Partitions = kept
	rest, err := proto.Marshal(&p)
	if err != nil {
		return payload, false
	}
	return rest, true
}

// FinishDeletion removes the community itself, which DrainCommunity has found empty, and keeps its hosts from others. It
// reports false when another replica has taken the work over.
func (s *Store) FinishDeletion(ctx context.Context, requestID, replica string) (bool, error) {
	finished := false
	err := s.inTx(ctx, lockSet{}, func(conn *pgx.Conn) error {
		finished = false
		var community int64
		switch err := conn.QueryRow(ctx, sqlFinishDeletion, requestID, replica).Scan(&community); {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		finished = true
		_, err := conn.Exec(ctx, sqlDropCommunity, community)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("finish deletion: %w", err)
	}
	return finished, nil
}
