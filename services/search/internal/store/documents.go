package store

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
)

// Document is what the text index keeps of an event.
type Document struct {
	// Community and ID name the event.
	Community tenant.ID
	ID        nostr.ID
	// CreatedAt and Kind are the event's.
	CreatedAt int64
	Kind      nostr.Kind
	// Text is what is searched; no NUL.
	Text string
}

// insertDocuments adds what is not there yet and has not been deleted meanwhile. Besides the words of the
// text a document has one that no text can have (it holds a space): its community. With it the index finds
// the documents of one community, and neither the size nor the words of another make a difference.
//
// Index: event_ids_pkey, documents_pkey.
const insertDocuments = `
INSERT INTO search.documents (community_id, id, created_at, kind, words)
SELECT d.community_id, d.id, d.created_at, d.kind,
    quote_literal('community ' || d.community_id)::tsvector || to_tsvector('simple', d.content)
FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::int[], $5::text[]) AS d (community_id, id, created_at, kind, content)
WHERE EXISTS (SELECT FROM ingest.event_ids i WHERE i.community_id = d.community_id AND i.id = d.id OFFSET 0)
ON CONFLICT DO NOTHING`

// Bounds of one statement that adds documents.
const (
	batchDocuments = 256
	batchBytes     = 1 << 20
)

// Index adds documents to the text index; those that are there already, and those of events that were
// deleted, change nothing. It is not one transaction: after an error a part may have been added.
func (s *Store) Index(ctx context.Context, docs []Document) error {
	for len(docs) > 0 {
		n := fitDocuments(docs)
		err := s.readBulk(ctx, func(ctx context.Context, conn *pgx.Conn, _ session) error {
			return writeDocuments(ctx, conn, docs[:n])
		})
		if err != nil {
			return err
		}
		docs = docs[n:]
	}
	return nil
}

// fitDocuments returns how many of docs go into one statement.
func fitDocuments(docs []Document) int {
	size := 0
	for i := range docs {
		size += len(docs[i].Text)
		if i > 0 && (i == batchDocuments || size > batchBytes) {
			return i
		}
	}
	return len(docs)
}

// writing says that a transaction writes, on a connection that otherwise only reads.
var writing = pgx.TxOptions{AccessMode: pgx.ReadWrite}

func writeDocuments(ctx context.Context, conn *pgx.Conn, docs []Document) error {
	if len(docs) == 0 {
		return nil
	}
	communities, ids := make([]int64, len(docs)), make([][]byte, len(docs))
	times, kinds, texts := make([]int64, len(docs)), make([]int32, len(docs)), make([]string, len(docs))
	for i := range docs {
		d := &docs[i]
		communities[i], ids[i], times[i], kinds[i], texts[i] = int64(d.Community), d.ID[:], d.CreatedAt, int32(d.Kind), d.Text
	}
	return pgx.BeginTxFunc(ctx, conn, writing, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertDocuments, communities, ids, times, kinds, texts); err != nil {
			return fmt.Errorf("add documents: %w", err)
		}
		return nil
	})
}

// lockIndex is the advisory lock of who looks after the text index: "index".
const lockIndex = 0x696e646578

// Caretaker looks after the text index: it alone, of all replicas, and on one connection that it keeps
// until it is done. One goroutine at a time uses it.
type Caretaker struct {
	conn *pgx.Conn
	work time.Duration
}

// TakeCare calls fn unless another replica is looking after the index just now; it reports whether it did.
func (s *Store) TakeCare(ctx context.Context, fn func(context.Context, *Caretaker) error) (bool, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, s.wait, errNoConnection)
	defer cancel()
	if err := s.bulk.Acquire(waiting, 1); err != nil {
		return false, failure(ctx, fmt.Errorf("wait for other queries: %w", context.Cause(waiting)))
	}
	defer s.bulk.Release(1)
	conn, err := s.pool.Acquire(waiting)
	if err != nil {
		return false, fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	c := &Caretaker{conn: conn.Conn(), work: s.work}
	var mine bool
	err = c.do(ctx, func(ctx context.Context) error {
		if _, err := sessionOf(ctx, c.conn); err != nil {
			return err
		}
		return c.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(lockIndex)).Scan(&mine)
	})
	if err != nil || !mine {
		return false, err
	}
	err = fn(ctx, c)
	if unlock := c.do(ctx, func(ctx context.Context) error {
		recoverConn(ctx, c.conn)
		_, err := c.conn.Exec(ctx, `SELECT pg_advisory_unlock($1)`, int64(lockIndex))
		return err
	}); unlock != nil {
		// The lock lasts as long as the connection.
		_ = c.do(ctx, c.conn.Close)
	}
	return true, err
}

// do runs a piece of work to its end, also when ctx ends meanwhile (see the package comment).
func (c *Caretaker) do(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.work)
	defer cancel()
	return fn(ctx)
}

// nextCommunity finds the community after $1 that has a row or documents.
//
// Index: communities_pkey, documents_time.
const nextCommunity = `
SELECT coalesce(least((SELECT min(id) FROM ingest.communities WHERE id > $1),
    (SELECT min(community_id) FROM search.documents WHERE community_id > $1)), 0)`

// NextCommunity returns the community after the given one, 0 after the last.
func (c *Caretaker) NextCommunity(ctx context.Context, after tenant.ID) (next tenant.ID, err error) {
	err = c.do(ctx, func(ctx context.Context) error {
		if err := c.conn.QueryRow(ctx, nextCommunity, int64(after)).Scan(&next); err != nil {
			return fmt.Errorf("find next community: %w", err)
		}
		return nil
	})
	return next, err
}

// Place is a place in the order of events: before those that are older, or as old with a higher id.
type Place struct {
	CreatedAt int64
	ID        nostr.ID
}

// Newest is the place before all events.
func Newest() Place { return Place{CreatedAt: math.MaxInt64} }

// missingDocuments reads a page of the events of one kind, the raw JSON only of those without a document.
//
// Index: events_kind, documents_pkey.
const missingDocuments = `
SELECT e.created_at, e.id, CASE WHEN d.id IS NULL THEN e.raw END
FROM (
    SELECT e.created_at, e.id, e.raw FROM ingest.events e
    WHERE e.community_id = $1 AND e.kind = $2 AND e.created_at <= $3 AND (e.created_at < $3 OR e.id > $4)
    ORDER BY e.created_at DESC, e.id LIMIT $5
) AS e
LEFT JOIN LATERAL (
    SELECT d.id FROM search.documents d WHERE d.community_id = $1 AND d.id = e.id OFFSET 0
) AS d ON true
ORDER BY e.created_at DESC, e.id`

// Missing adds the documents that are missing for one page of events of a kind, at most limit, after a
// place. document makes them of raw JSON; false leaves one out. It returns the place of the last event,
// and how many were looked at and added.
func (c *Caretaker) Missing(
	ctx context.Context, community tenant.ID, kind nostr.Kind, after Place, limit int, document func(raw []byte) (string, bool),
) (last Place, seen, added int, err error) {
	last = after
	err = c.do(ctx, func(ctx context.Context) error {
		rows, err := c.conn.Query(ctx, missingDocuments, int64(community), int32(kind), after.CreatedAt, after.ID[:], limit)
		if err != nil {
			return fmt.Errorf("find missing documents: %w", err)
		}
		var docs []Document
		var id, raw []byte
		if _, err := pgx.ForEachRow(rows, []any{&last.CreatedAt, &id, &raw}, func() error {
			seen++
			last.ID = nostr.ID(id)
			if raw == nil {
				return nil
			}
			if text, ok := document(raw); ok {
				docs = append(docs, Document{Community: community, ID: last.ID, CreatedAt: last.CreatedAt, Kind: kind, Text: text})
			}
			return nil
		}); err != nil {
			return fmt.Errorf("read missing documents: %w", err)
		}
		added = len(docs)
		for len(docs) > 0 {
			n := fitDocuments(docs)
			if err := writeDocuments(ctx, c.conn, docs[:n]); err != nil {
				return err
			}
			docs = docs[n:]
		}
		return nil
	})
	return last, seen, added, err
}

// sweepDocuments removes, of a page of documents, those whose event is gone, and returns the page.
//
// Index: documents_time, documents_pkey, event_ids_pkey.
const sweepDocuments = `
WITH page AS MATERIALIZED (
    SELECT d.created_at, d.id FROM search.documents d
    WHERE d.community_id = $1 AND d.created_at <= $2 AND (d.created_at < $2 OR d.id > $3)
    ORDER BY d.created_at DESC, d.id LIMIT $4
), gone AS (
    DELETE FROM search.documents d
    WHERE d.community_id = $1 AND d.id = ANY (ARRAY(
        SELECT p.id FROM page p
        WHERE NOT EXISTS (SELECT FROM ingest.event_ids i WHERE i.community_id = $1 AND i.id = p.id OFFSET 0)))
)
SELECT created_at, id FROM page ORDER BY created_at DESC, id`

// Sweep removes documents of deleted events from one page, at most limit, after a place. It returns the
// place of the last document, and how many were looked at.
func (c *Caretaker) Sweep(ctx context.Context, community tenant.ID, after Place, limit int) (last Place, seen int, err error) {
	last = after
	err = c.do(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, c.conn, writing, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, sweepDocuments, int64(community), after.CreatedAt, after.ID[:], limit)
			if err != nil {
				return fmt.Errorf("sweep documents: %w", err)
			}
			var id []byte
			if _, err := pgx.ForEachRow(rows, []any{&last.CreatedAt, &id}, func() error {
				seen++
				last.ID = nostr.ID(id)
				return nil
			}); err != nil {
				return fmt.Errorf("sweep documents: %w", err)
			}
			return nil
		})
	})
	return last, seen, err
}
