package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Statements of requests to vanish (NIP-62).
const (
	// Conflicts on vanished_pkey; the later request covers what the earlier did.
	sqlInsertVanished = `
INSERT INTO ingest.vanished (community_id, pubkey, until, request_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (community_id, pubkey) DO UPDATE SET until = excluded.until, request_id = excluded.request_id
WHERE vanished.until < excluded.until`

	// By events_author of every partition: what the key wrote, deletions included. Requests to vanish stay.
	sqlVanishingEvents = `
SELECT 1::bigint, community_id, raw FROM ingest.events
WHERE community_id = $1 AND pubkey = $2 AND created_at <= $3 AND kind <> 62
LIMIT $4`

	// By event_tags_value and events_time of every partition: gift wraps to the key.
	sqlVanishingWraps = `
SELECT 1::bigint, e.community_id, e.raw
FROM ingest.event_tags t
JOIN ingest.events e ON e.community_id = t.community_id AND e.created_at = t.created_at AND e.id = t.id
WHERE t.community_id = $1 AND t.name = 'p' AND t.value = $2 AND t.created_at <= $3 AND t.kind = 1059
LIMIT $4`

	// By events_author and event_tags_value: the vanished of whom something is left. The value of a p tag is
	// short, so it is its own key.
	sqlUnfinishedVanished = `
SELECT v.community_id, v.pubkey, v.until FROM ingest.vanished v
WHERE EXISTS (
        SELECT FROM ingest.events e
        WHERE e.community_id = v.community_id AND e.pubkey = v.pubkey AND e.created_at <= v.until AND e.kind <> 62)
    OR EXISTS (
        SELECT FROM ingest.event_tags t
        WHERE t.community_id = v.community_id AND t.name = 'p' AND t.value = convert_to(encode(v.pubkey, 'hex'), 'UTF8')
            AND t.created_at <= v.until AND t.kind = 1059)
LIMIT $1`
)

// vanishPage is how many events, and as many gift wraps, one transaction removes for a request to vanish: it
// holds the community meanwhile. What is left is hidden from readers by the row of ingest.vanished.
const vanishPage = 500

// vanishing is one key of which something may be stored that must go.
type vanishing struct {
	community int64
	pubkey    nostr.PubKey
	until     int64
}

// queue reads the first page of it. full is called when there may be more.
func (v vanishing) queue(b *pgx.Batch, found func(stored), full func()) {
	for _, page := range []struct {
		query string
		key   []byte
	}{
		{sqlVanishingEvents, v.pubkey[:]},
		{sqlVanishingWraps, tagKey(v.pubkey.String())},
	} {
		n := 0
		count := collectStored(func(_ int, st stored) {
			found(st)
			if n++; n == vanishPage {
				full()
			}
		})
		b.Queue(page.query, v.community, page.key, v.until, vanishPage).Query(count)
	}
}

// queueVanishing reads what the request will erase. The exclusive lock on the community keeps it so.
func queueVanishing(b *pgx.Batch, e *entry) {
	vanishing{e.Community, e.Event.PubKey, e.Event.CreatedAt}.queue(b,
		func(st stored) { e.erase = append(e.erase, st) }, func() { e.more = true })
}

// SweepVanished removes up to a page of the events of each of up to limit keys that asked to vanish, which their
// requests left, and returns how many it removed; when that is 0 there are no more. It holds the communities
// exclusively, one after the other and briefly.
func (s *Store) SweepVanished(ctx context.Context, limit int) (int, error) {
	rows, err := s.pool.Query(ctx, sqlUnfinishedVanished, limit)
	if err != nil {
		return 0, fmt.Errorf("find vanished keys: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v vanishing, err error) {
		var pubkey []byte
		if err := row.Scan(&v.community, &pubkey, &v.until); err != nil {
			return v, err
		}
		v.pubkey = nostr.PubKey(pubkey)
		return v, nil
	})
	if err != nil {
		return 0, fmt.Errorf("find vanished keys: %w", err)
	}
	removed := 0
	for _, v := range list {
		n, err := s.sweepKey(ctx, v)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (s *Store) sweepKey(ctx context.Context, v vanishing) (int, error) {
	locks := lockSet{}
	locks.exclusive(communityLock(v.community))
	removed := 0
	err := s.inTx(ctx, locks, func(conn *pgx.Conn) error {
		var list []stored
		b := &pgx.Batch{}
		v.queue(b, func(st stored) { list = append(list, st) }, func() {})
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		removed = len(list)
		b = &pgx.Batch{}
		queueErase(b, list, true)
		return conn.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return 0, fmt.Errorf("remove events of a vanished key: %w", err)
	}
	return removed, nil
}
