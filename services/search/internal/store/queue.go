package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/tenant"
)

// Report is a report (NIP-56) and what became of it.
type Report struct {
	// Event is the report as it was signed.
	Event []byte
	// Status is open, resolved, dismissed or escalated.
	Status string
	// Action, By and At are the decision on this report; Action is empty while there is none.
	Action string
	By     []byte
	At     *time.Time
}

// Action is an entry of the log of moderation.
type Action struct {
	Action                           string
	Actor, Command, PubKey, ID, From []byte // From is the report
	Subject, Reason                  string
	Expires                          *time.Time
	At                               time.Time
}

// Restriction is a ban or a timeout that has not ended.
type Restriction struct {
	PubKey  []byte
	Banned  bool
	Reason  string
	By      []byte
	At      time.Time
	Expires *time.Time
}

const (
	// decisions says what became of the reports $2, whose first targets are $3. A decision on the target is one on every
	// report of it (NIP-86) that was made by then, at $4.
	//
	// Index: report_decisions_pkey, decided_reports_pkey, banned_events_pkey.
	decisions = `
SELECT coalesce(r.status, CASE
        WHEN EXISTS (SELECT FROM ingest.decided_reports d
                WHERE d.community_id = $1 AND d.target_id = q.target AND extract(epoch FROM d.decided_at) >= q.reported_at OFFSET 0)
            OR EXISTS (SELECT FROM ingest.banned_events b WHERE b.community_id = $1 AND b.id = q.target OFFSET 0)
        THEN 'resolved' ELSE 'open' END),
    coalesce(r.action, ''), r.decided_by, r.decided_at
FROM unnest($2::bytea[], $3::bytea[], $4::bigint[]) WITH ORDINALITY AS q (id, target, reported_at, n)
LEFT JOIN ingest.report_decisions r ON r.community_id = $1 AND r.report_id = q.id
ORDER BY q.n`

	// reports reads the newest reports, the newest first, as many of each member as are its share, with its agents. Of who is banned there
	// are those that moderators have decided on: what they did because of them is to be seen. Parameters: community, time, how many are looked at, a share in reports and in bytes, most bytes, most
	// reports. How much is written in a report is looked at without reading it.
	//
	// Index: events_kind, agents_pkey, banned_pubkeys_pkey, report_decisions_pkey, events_time.
	reports = `
WITH newest AS MATERIALIZED (
    SELECT e.created_at, e.id, e.pubkey, octet_length(e.raw) AS size FROM ingest.events e
    WHERE e.community_id = $1 AND e.kind = 1984 AND e.channel_id IS NULL AND (e.expires_at IS NULL OR e.expires_at > $2)
    ORDER BY e.created_at DESC, e.id LIMIT $3
), reporter AS MATERIALIZED (
    SELECT k.pubkey, coalesce((SELECT a.owner FROM ingest.agents a WHERE a.community_id = $1 AND a.pubkey = k.pubkey), k.pubkey) AS member,
        EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = $1 AND b.pubkey = k.pubkey OFFSET 0) AS banned
    FROM (SELECT DISTINCT pubkey FROM newest) AS k
), shared AS (
    SELECT n.created_at, n.id, n.size, row_number() OVER own AS nth, sum(n.size) OVER own AS bytes
    FROM newest n JOIN reporter r ON r.pubkey = n.pubkey
    WHERE NOT r.banned
        OR EXISTS (SELECT FROM ingest.report_decisions d WHERE d.community_id = $1 AND d.report_id = n.id OFFSET 0)
    WINDOW own AS (PARTITION BY r.member ORDER BY n.created_at DESC, n.id ROWS UNBOUNDED PRECEDING)
), chosen AS MATERIALIZED (
    SELECT created_at, id FROM (
        SELECT created_at, id, sum(size) OVER (ORDER BY created_at DESC, id ROWS UNBOUNDED PRECEDING) AS bytes
        FROM shared WHERE nth <= $4 AND bytes <= $5) AS s
    WHERE bytes <= $6 ORDER BY created_at DESC, id LIMIT $7
)
SELECT e.raw FROM chosen c
CROSS JOIN LATERAL (
    SELECT e.raw FROM ingest.events e WHERE e.community_id = $1 AND e.created_at = c.created_at AND e.id = c.id OFFSET 0) AS e
ORDER BY c.created_at DESC, c.id`

	// Index: moderation_actions_pkey.
	actions = `
SELECT action, actor, command_id, pubkey, event_id, report_id, subject, reason, expires_at, decided_at
FROM ingest.moderation_actions WHERE community_id = $1 ORDER BY id DESC LIMIT $2`

	// Index: the first column of each table's primary key; what a community has decided is sorted.
	restrictions = `
SELECT pubkey, true, reason, decided_by, decided_at, expires_at FROM ingest.banned_pubkeys
WHERE community_id = $1 AND (expires_at IS NULL OR expires_at > now())
UNION ALL
SELECT pubkey, false, reason, decided_by, decided_at, expires_at FROM ingest.timeouts
WHERE community_id = $1 AND expires_at > now()
ORDER BY 5 DESC, 1 LIMIT $2`
)

// Bounds of the reports that are looked at: how many of the newest there are, and how many and how many bytes of a member and its
// agents are taken of those, so that nobody can crowd out what others have reported.
const (
	maxNewest     = 100_000
	reporterShare = 500
	reporterBytes = 1 << 20
)

// readReports passes each report to each, the newest first: at most MaxEntries, and bytes of them.
func readReports(ctx context.Context, tx pgx.Tx, community tenant.ID, now, bytes int64, each func(raw []byte, e *nostr.Event)) error {
	rows, err := tx.Query(ctx, reports, int64(community), now, maxNewest, reporterShare, min(reporterBytes, bytes), bytes, MaxEntries)
	if err != nil {
		return fmt.Errorf("find reports: %w", err)
	}
	var raw []byte
	if _, err := pgx.ForEachRow(rows, []any{&raw}, func() error {
		e, err := wire.DecodeEvent(raw, wire.Limits{})
		if err != nil {
			return fmt.Errorf("decode report: %w", err)
		}
		each(raw, e)
		raw = nil // the next row is scanned into its own
		return nil
	}); err != nil {
		return fmt.Errorf("read reports: %w", err)
	}
	return nil
}

// Reports returns up to limit reports with a status, or with any if it is empty, the newest first. now and bytes are as for
// Reported. The error is Restricted unless actor moderates the community.
func (s *Store) Reports(
	ctx context.Context, community tenant.ID, actor nostr.PubKey, now, bytes int64, status string, limit int,
) (list []Report, err error) {
	err = s.asModerator(ctx, community, actor, func(ctx context.Context, tx pgx.Tx) error {
		list = nil
		var all []Report
		var ids, targets [][]byte
		var reported []int64
		err := readReports(ctx, tx, community, now, bytes, func(raw []byte, e *nostr.Event) {
			target := e.ID // of itself, if it names no event
			if text, ok := e.Tags.First("e"); ok {
				if id, err := nostr.ParseID(text); err == nil {
					target = id
				}
			}
			all = append(all, Report{Event: raw})
			ids, targets = append(ids, append([]byte(nil), e.ID[:]...)), append(targets, append([]byte(nil), target[:]...))
			reported = append(reported, e.CreatedAt)
		})
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, decisions, int64(community), ids, targets, reported)
		if err != nil {
			return fmt.Errorf("find decisions: %w", err)
		}
		n := 0
		var r Report
		if _, err := pgx.ForEachRow(rows, []any{&r.Status, &r.Action, &r.By, &r.At}, func() error {
			r.Event = all[n].Event
			n++
			if (status == "" || r.Status == status) && len(list) < limit {
				list = append(list, r)
			}
			r.By, r.At = nil, nil
			return nil
		}); err != nil {
			return fmt.Errorf("read decisions: %w", err)
		}
		return nil
	})
	return list, err
}

// Actions returns up to limit entries of the log, the latest first. The error is Restricted unless actor moderates the
// community.
func (s *Store) Actions(ctx context.Context, community tenant.ID, actor nostr.PubKey, limit int) ([]Action, error) {
	return ofModerator[Action](ctx, s, community, actor, actions, limit)
}

// Restrictions returns up to limit bans and timeouts that have not ended, the latest first. The error is Restricted unless
// actor moderates the community.
func (s *Store) Restrictions(ctx context.Context, community tenant.ID, actor nostr.PubKey, limit int) ([]Restriction, error) {
	return ofModerator[Restriction](ctx, s, community, actor, restrictions, limit)
}

func ofModerator[T any](ctx context.Context, s *Store, community tenant.ID, actor nostr.PubKey, query string, limit int) (list []T, err error) {
	err = s.asModerator(ctx, community, actor, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, int64(community), limit)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T])
		}
		if err != nil {
			return fmt.Errorf("read list: %w", err)
		}
		return nil
	})
	return list, err
}
