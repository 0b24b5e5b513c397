package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements that decide who is first. Their input is sorted by key.
const (
	// Conflicts on event_ids_pkey; what comes back was not there.
	sqlClaimIDs = `
INSERT INTO ingest.event_ids (community_id, id, created_at)
SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[])
ON CONFLICT DO NOTHING
RETURNING community_id, id`

	// Conflicts on addresses_pkey. Together with sqlLockAddresses, which sees all the rows, it tells who was
	// there before; ON CONFLICT DO UPDATE could not return what it replaced.
	sqlClaimAddresses = `
INSERT INTO ingest.addresses (community_id, kind, pubkey, d, created_at, id)
SELECT * FROM unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bytea[])
ON CONFLICT DO NOTHING
RETURNING community_id, id`

	// By addresses_pkey. The rows are locked after the sort, in order; they stay ours until the end.
	sqlLockAddresses = `
SELECT q.n, a.created_at, a.id
FROM unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[])
    WITH ORDINALITY AS q (community_id, kind, pubkey, d, n)
JOIN ingest.addresses a
    ON a.community_id = q.community_id AND a.kind = q.kind AND a.pubkey = q.pubkey AND a.d = q.d
ORDER BY q.n
FOR UPDATE OF a`

	// By addresses_pkey and events_time: the stored version of each address.
	sqlVersions = `
SELECT q.n, e.community_id, e.raw
FROM unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[])
    WITH ORDINALITY AS q (community_id, kind, pubkey, d, n)
JOIN ingest.addresses a
    ON a.community_id = q.community_id AND a.kind = q.kind AND a.pubkey = q.pubkey AND a.d = q.d
JOIN ingest.events e
    ON e.community_id = a.community_id AND e.created_at = a.created_at AND e.id = a.id`

	// By event_ids_pkey and events_time, and event_tags_value for gift wraps: the targets of deletions that are
	// stored and the author's own, or gift wraps for the author (NIP-59). A deletion cannot be deleted
	// (NIP-09), nor can a request to vanish (NIP-62), nor the record of what was done in a channel (NIP-29).
	// Of what is beyond $4 bytes together, only the existence is told.
	sqlTargets = `
SELECT q.n, e.community_id,
    CASE WHEN sum(octet_length(e.raw)) OVER (ORDER BY q.n ROWS UNBOUNDED PRECEDING) <= $4 THEN e.raw END
FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) WITH ORDINALITY AS q (community_id, id, pubkey, n)
JOIN ingest.event_ids i ON i.community_id = q.community_id AND i.id = q.id
JOIN ingest.events e
    ON e.community_id = i.community_id AND e.created_at = i.created_at AND e.id = i.id
WHERE e.kind NOT IN (5, 62) AND e.kind NOT BETWEEN 9000 AND 9022 AND (e.pubkey = q.pubkey OR (e.kind = 1059 AND EXISTS (
    SELECT FROM ingest.event_tags p
    WHERE p.community_id = e.community_id AND p.name = 'p' AND p.value = convert_to(encode(q.pubkey, 'hex'), 'UTF8')
        AND p.created_at = e.created_at AND p.id = e.id)))`

	// By addresses_pkey and events_time: likewise of the addresses that a deletion of $6 names.
	sqlTargetVersions = `
SELECT q.n, e.community_id,
    CASE WHEN sum(octet_length(e.raw)) OVER (ORDER BY q.n ROWS UNBOUNDED PRECEDING) <= $5 THEN e.raw END
FROM unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[])
    WITH ORDINALITY AS q (community_id, kind, pubkey, d, n)
JOIN ingest.addresses a
    ON a.community_id = q.community_id AND a.kind = q.kind AND a.pubkey = q.pubkey AND a.d = q.d
JOIN ingest.events e
    ON e.community_id = a.community_id AND e.created_at = a.created_at AND e.id = a.id
WHERE a.created_at <= $6`
)

// claim inserts what must be unique and finds what has to make room. After it every entry has its verdict.
func (t *transaction) claim(ctx context.Context, conn *pgx.Conn) error {
	var plain, addressed, deletions []*entry
	var reactions reactionClaims
	b := &pgx.Batch{}
	for _, e := range t.accepted() {
		switch _, ok := e.Addressed(); {
		case !e.IsStored():
			continue // done, and not kept
		case ok:
			addressed = append(addressed, e)
		default:
			plain = append(plain, e)
		}
		if e.Deletion != nil {
			deletions = append(deletions, e)
		}
		if e.Vanish != nil {
			queueVanishing(b, e)
		}
		if e.Reaction != nil {
			reactions.entries = append(reactions.entries, e)
		}
	}
	queueClaimIDs(b, plain)
	claims := newAddressClaims(addressed)
	claims.queue(b)
	reactions.queue(b)
	t.queueClaimReplies(b, plain)
	queueTargets(b, deletions, t.eraseBytes)
	if b.Len() > 0 {
		// Another transaction may have been waited for, and what ends at a time may have ended meanwhile.
		b.Queue(sqlClock).QueryRow(func(row pgx.Row) error { return row.Scan(&t.judgedAt) })
	}
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("claim ids: %w", err)
	}
	for _, e := range plain {
		if !e.fresh && (e.verdict.Accepted() || e.verdict == policy.DeletesTooMuch) {
			e.verdict = policy.Duplicate
		}
	}
	reactions.judge()
	if err := claims.judge(t); err != nil {
		return err
	}
	for _, e := range t.entries {
		if e.done && !e.verdict.Accepted() || e.followUp && !e.verdict.Accepted() {
			return errMoved // nobody else writes under these locks what would refuse it now
		}
	}
	return nil
}

// queueClaimIDs claims the ids of entries that have no address. Entries with one are claimed by it: a
// version that wins cannot be stored yet, since its address would name it.
func queueClaimIDs(b *pgx.Batch, entries []*entry) {
	if len(entries) == 0 {
		return
	}
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, compareIDs)
	b.Queue(sqlClaimIDs, idColumns(sorted)...).Query(markFresh(sorted))
}

func compareIDs(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.Community, b.Community), bytes.Compare(a.Event.ID[:], b.Event.ID[:]))
}

// idColumns are the arguments of sqlClaimIDs.
func idColumns(entries []*entry) []any {
	communities, ids, created := make([]int64, len(entries)), make([][]byte, len(entries)), make([]int64, len(entries))
	for i, e := range entries {
		communities[i], ids[i], created[i] = e.Community, e.Event.ID[:], e.Event.CreatedAt
	}
	return []any{communities, ids, created}
}

func markFresh(entries []*entry) func(pgx.Rows) error {
	byKey := make(map[policy.EventKey]*entry, len(entries))
	for _, e := range entries {
		byKey[e.Key()] = e
	}
	return func(rows pgx.Rows) error {
		var community int64
		var id []byte
		_, err := pgx.ForEachRow(rows, []any{&community, &id}, func() error {
			if e := byKey[policy.EventKey{Community: community, ID: nostr.ID(id)}]; e != nil {
				e.fresh = true
			}
			return nil
		})
		return err
	}
}

// addressClaims are entries with an address, sorted by it, and the versions found there.
type addressClaims struct {
	entries []*entry
	current []*version // as the locked rows name it; nil: no row
	stored  [][]stored // the current version's event, if it is not the entry itself
}

type version struct {
	createdAt int64
	id        nostr.ID
}

func newAddressClaims(entries []*entry) *addressClaims {
	slices.SortFunc(entries, func(a, b *entry) int {
		return compareAddresses(addressOf(a.Community, a.Event), addressOf(b.Community, b.Event))
	})
	return &addressClaims{entries, make([]*version, len(entries)), make([][]stored, len(entries))}
}

func (c *addressClaims) queue(b *pgx.Batch) {
	if len(c.entries) == 0 {
		return
	}
	a := newAddressColumns(len(c.entries))
	created, ids := make([]int64, len(c.entries)), make([][]byte, len(c.entries))
	for i, e := range c.entries {
		a.add(addressOf(e.Community, e.Event))
		created[i], ids[i] = e.Event.CreatedAt, e.Event.ID[:]
	}
	b.Queue(sqlClaimAddresses, a.communities, a.kinds, a.pubkeys, a.ds, created, ids).Query(markFresh(c.entries))
	b.Queue(sqlLockAddresses, a.communities, a.kinds, a.pubkeys, a.ds).Query(func(rows pgx.Rows) error {
		var n, createdAt int64
		var id []byte
		_, err := pgx.ForEachRow(rows, []any{&n, &createdAt, &id}, func() error {
			c.current[n-1] = &version{createdAt, nostr.ID(id)}
			return nil
		})
		return err
	})
	b.Queue(sqlVersions, a.communities, a.kinds, a.pubkeys, a.ds).Query(collectStored(func(i int, st stored) {
		c.stored[i] = append(c.stored[i], st)
	}))
}

// judge decides who wins each address.
func (c *addressClaims) judge(t *transaction) error {
	for i, e := range c.entries {
		current := c.current[i]
		switch {
		case current == nil:
			return errMoved // removed by the sweep of expired events between the two statements
		case e.fresh:
		case current.id == e.Event.ID:
			e.verdict = policy.Duplicate
		case !newer(e.Event.CreatedAt, e.Event.ID, current.createdAt, current.id):
			e.verdict = policy.Superseded
		default:
			e.erase = append(e.erase, c.stored[i]...)
			t.winners = append(t.winners, e)
		}
	}
	return nil
}

// queueTargets reads what the deletions will erase, of each up to limit bytes by id and as many by address;
// one that covers more is refused. The exclusive lock on the community keeps it so.
func queueTargets(b *pgx.Batch, deletions []*entry, limit int64) {
	for _, e := range deletions {
		queueDeletedFrom(b, e)
		keep := collectSome(
			func(_ int, st stored) { e.erase = append(e.erase, st) },
			func() { e.verdict = policy.DeletesTooMuch },
		)
		if len(e.Deletion.IDs) > 0 {
			communities, ids, pubkeys := deletionColumns(e)
			b.Queue(sqlTargets, communities, ids, pubkeys, limit).Query(keep)
		}
		if len(e.Deletion.Addresses) > 0 {
			a := deletionAddresses(e)
			b.Queue(sqlTargetVersions, a.communities, a.kinds, a.pubkeys, a.ds, limit, e.Event.CreatedAt).Query(keep)
		}
	}
}

func deletionColumns(e *entry) (communities []int64, ids, pubkeys [][]byte) {
	for _, id := range e.Deletion.IDs {
		communities = append(communities, e.Community)
		ids = append(ids, bytesOf(id))
		pubkeys = append(pubkeys, e.Event.PubKey[:])
	}
	return communities, ids, pubkeys
}

func deletionAddresses(e *entry) *addressColumns {
	a := newAddressColumns(len(e.Deletion.Addresses))
	for _, at := range e.Deletion.Addresses {
		a.add(addressAt(e.Community, e.Event.PubKey, at))
	}
	return a
}
