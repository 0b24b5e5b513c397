package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements of reminders.
const (
	// Conflicts on reminders_pkey with the row of an event that went without it.
	sqlAwaitReminders = `
INSERT INTO ingest.reminders (community_id, due_at, id, created_at)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[]) ON CONFLICT DO NOTHING`

	// By reminders_pkey.
	sqlCancelReminders = `
DELETE FROM ingest.reminders r
USING unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS q (community_id, due_at, id)
WHERE r.community_id = q.community_id AND r.due_at = q.due_at AND r.id = q.id`

	// By reminders_due and communities_pkey: whose communities have something to do, the longest waiting first. In one that
	// is archived nobody is reminded of anything until it is served again.
	sqlRemindCommunities = `
SELECT community_id FROM (
    SELECT r.community_id, r.due_at FROM ingest.reminders r
    WHERE r.due_at <= $1 AND EXISTS (SELECT FROM ingest.communities c WHERE c.id = r.community_id AND c.archived_at IS NULL)
    ORDER BY r.due_at LIMIT $2) AS due
GROUP BY community_id ORDER BY min(due_at)`

	// By reminders_pkey and events_time. Rows that another replica has in hand are left to it, and so are those of versions
	// that are being replaced. raw is NULL of what is not to be passed on: it is gone, has expired, or its author has asked to
	// vanish. Of what is beyond $4 bytes together, each with an envelope of $5, only the size is told, except for the first.
	sqlDueReminders = `
WITH due AS MATERIALIZED (
    SELECT community_id, due_at, id, created_at FROM ingest.reminders
    WHERE community_id = $1 AND due_at <= $2 ORDER BY due_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
), found AS (
    SELECT d.due_at, d.id, e.raw, coalesce(octet_length(e.raw) + $5, 0) AS size,
        sum(coalesce(octet_length(e.raw) + $5, 0)) OVER (ORDER BY d.due_at, d.id ROWS UNBOUNDED PRECEDING) AS total
    FROM due d
    LEFT JOIN ingest.events e ON e.community_id = d.community_id AND e.created_at = d.created_at AND e.id = d.id
        AND (e.expires_at IS NULL OR e.expires_at > $2)
        AND NOT EXISTS (SELECT FROM ingest.vanished v
            WHERE v.community_id = e.community_id AND v.pubkey = e.pubkey AND v.until >= e.created_at)
)
SELECT due_at, id, size, CASE WHEN total <= $4 OR total = size THEN raw END FROM found ORDER BY due_at, id`
)

// remindBytes is how many bytes of reminders one message passes on, envelopes included; one always goes.
const remindBytes = policy.FollowUpBytes

// reminderColumns are rows of ingest.reminders as the arrays of a statement.
type reminderColumns struct {
	communities, dueAt []int64
	ids                [][]byte
}

func (c *reminderColumns) add(community, dueAt int64, id []byte) {
	c.communities, c.dueAt, c.ids = append(c.communities, community), append(c.dueAt, dueAt), append(c.ids, id)
}

// queueReminders notes which of the entries have to be passed on once more when their time comes. One whose time has come is
// passed on now.
func (t *transaction) queueReminders(b *pgx.Batch, accepted []*entry) {
	var c reminderColumns
	var created []int64
	for _, e := range accepted {
		if e.DueAt > t.begunAt/1e6 {
			c.add(e.Community, e.DueAt, e.Event.ID[:])
			created = append(created, e.Event.CreatedAt)
		}
	}
	if len(c.ids) > 0 {
		b.Queue(sqlAwaitReminders, c.communities, c.dueAt, c.ids, created)
	}
}

// queueCancel forgets what events that are removed were waiting for.
func queueCancel(b *pgx.Batch, list []stored) {
	var c reminderColumns
	for _, st := range list {
		if st.dueAt != 0 {
			c.add(st.community, st.dueAt, bytesOf(st.id))
		}
	}
	c.queueCancel(b)
}

func (c *reminderColumns) queueCancel(b *pgx.Batch) {
	if len(c.ids) > 0 {
		b.Queue(sqlCancelReminders, c.communities, c.dueAt, c.ids)
	}
}

// Remind passes on reminders (NIP-ER) that are due by now, once more and as they were signed, and returns how many.
// It looks at up to limit of them; when it found as many there may be more. What is passed on and the removal of the note
// that it has to be are one transaction, so that of several replicas one does it, and if that dies the outbox has it or
// the note is still there.
func (s *Store) Remind(ctx context.Context, now time.Time, limit int) (passed, found int, err error) {
	rows, err := s.pool.Query(ctx, sqlRemindCommunities, now.Unix(), limit)
	var communities []int64
	if err == nil {
		communities, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	for _, community := range communities {
		p, f, failed := s.remind(ctx, community, now, limit)
		passed, found, err = passed+p, found+f, errors.Join(err, failed)
	}
	if err != nil {
		return passed, found, fmt.Errorf("pass on reminders: %w", err)
	}
	return passed, found, nil
}

// remind passes on those of one community. It holds it shared, as whoever writes an event: the envelopes carry the access
// version that is true at their commit.
func (s *Store) remind(ctx context.Context, community int64, now time.Time, limit int) (passed, found int, err error) {
	locks := lockSet{}
	locks.shared(communityLock(community))
	err = s.transact(ctx, locks, func(x *change) error {
		passed, found = 0, 0
		switch err := x.enter(ctx, community); {
		case errors.Is(err, ErrNoCommunity), err == nil && x.state.Communities[community].Archived:
			return nil // meanwhile
		case err != nil:
			return err
		}
		var done reminderColumns
		room := remindBytes
		if s.most != nil {
			room = min(room, s.most())
		}
		rows, err := x.conn.Query(ctx, sqlDueReminders, community, now.Unix(), limit, room, policy.EnvelopeOverhead)
		if err != nil {
			return err
		}
		var dueAt, size int64
		var id, raw []byte
		if _, err := pgx.ForEachRow(rows, []any{&dueAt, &id, &size, &raw}, func() error {
			found++
			if raw == nil && size > 0 {
				return nil // for the next message
			}
			done.add(community, dueAt, append([]byte(nil), id...))
			if raw == nil || s.most != nil && int(size) > s.most() {
				return nil // the bus has come to take less than when it was accepted
			}
			return x.remind(raw, dueAt)
		}); err != nil {
			return err
		}
		passed = len(x.due)
		b := &pgx.Batch{}
		done.queueCancel(b)
		return x.conn.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return 0, 0, err
	}
	return passed, found, nil
}

// remind has a stored reminder passed on.
func (x *change) remind(raw []byte, dueAt int64) error {
	raw = append([]byte(nil), raw...)
	ev, err := wire.DecodeEvent(raw, wire.Limits{})
	if err != nil {
		return fmt.Errorf("decode reminder: %w", err)
	}
	e := &entry{Candidate: &policy.Candidate{Event: ev}, dueAt: dueAt}
	e.Community, e.Raw, e.Principal = x.community, raw, []nostr.PubKey{ev.PubKey}
	x.due = append(x.due, e)
	return nil
}
