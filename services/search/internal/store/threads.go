package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/search/internal/access"
)

// maxParticipants is how many authors of a thread are named, as in the summaries that ingest publishes.
const maxParticipants = 10

// Thread is what is known of a thread.
type Thread struct {
	// Root is its first event.
	Root nostr.ID
	// Replies is how many answer the root itself, Descendants how many are in the thread.
	Replies, Descendants uint32
	// LastReplyAt is created_at of the newest, SummaryAt that of the summary that was published last.
	LastReplyAt, SummaryAt int64
	// Participants are the authors of the newest 32, at most 10, the latest first.
	Participants []nostr.PubKey
}

// threads reads the counts and the newest replies of those of $3 that are the root of a thread and may be read. A reply that has expired
// is counted until it is removed, and taken off here.
//
// Index: event_ids_pkey, events_time, reply_counts_pkey, replies_expiring, replies_root.
var threads = strings.NewReplacer("@community", "$1", "@keys", "$2").Replace(access.ReaderCTE + `
SELECT e.id, c.replies - x.replies, c.descendants - x.descendants, c.summary_at, r.created_at, r.pubkey
FROM unnest($3::bytea[]) AS q (id)
CROSS JOIN LATERAL (
    SELECT i.created_at FROM ingest.event_ids i WHERE i.community_id = @community AND i.id = q.id OFFSET 0
) AS i
CROSS JOIN LATERAL (
    SELECT e.id, e.pubkey, e.created_at, e.channel_id FROM ingest.events e
    WHERE e.community_id = @community AND e.created_at = i.created_at AND e.id = q.id
        AND (e.expires_at IS NULL OR e.expires_at > $4) OFFSET 0
) AS e
CROSS JOIN LATERAL (
    SELECT c.replies, c.descendants, c.summary_at FROM ingest.reply_counts c
    WHERE c.community_id = @community AND c.id = e.id AND c.descendants > 0 OFFSET 0
) AS c
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE x.parent_id = e.id) AS replies, count(*) AS descendants FROM ingest.replies x
    WHERE x.community_id = @community AND x.root_id = e.id AND x.expires_at <= $4 OFFSET 0
) AS x
CROSS JOIN LATERAL (
    SELECT r.created_at, r.pubkey FROM ingest.replies r
    WHERE r.community_id = @community AND r.root_id = e.id AND (r.expires_at IS NULL OR r.expires_at > $4)
    ORDER BY r.created_at DESC, r.id DESC LIMIT 32
) AS r
WHERE ` + access.Admitted + ` AND ` + access.ReadableEvent + ` AND ` + access.Present + `
ORDER BY e.id, r.created_at DESC`)

// Threads returns what is known of those of roots that the reader may read and that have replies.
func (s *Store) Threads(ctx context.Context, r access.Reader, roots []nostr.ID) (list []Thread, err error) {
	ids, keys := make([][]byte, len(roots)), make([][]byte, len(r.Keys))
	for i := range roots {
		ids[i] = roots[i][:]
	}
	for i := range r.Keys {
		keys[i] = r.Keys[i][:]
	}
	err = s.readBulk(ctx, func(ctx context.Context, conn *pgx.Conn, _ session) error {
		list = nil
		rows, err := conn.Query(ctx, threads, int64(r.Community), keys, ids, r.Now)
		if err != nil {
			return fmt.Errorf("read threads: %w", err)
		}
		var t Thread
		var id, author []byte
		var at int64
		_, err = pgx.ForEachRow(rows, []any{&id, &t.Replies, &t.Descendants, &t.SummaryAt, &at, &author}, func() error {
			if len(list) == 0 || list[len(list)-1].Root != nostr.ID(id) {
				t.Root, t.LastReplyAt = nostr.ID(id), at
				list = append(list, t)
			}
			last := &list[len(list)-1]
			if key := nostr.PubKey(author); len(last.Participants) < maxParticipants && !slices.Contains(last.Participants, key) {
				last.Participants = append(last.Participants, key)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read threads: %w", err)
		}
		return nil
	})
	return list, err
}

// Page is a part of the replies of a thread.
type Page struct {
	// Root is the thread's first event.
	Root nostr.ID
	// Depth is how deep replies are at most; those to the root are at 1.
	Depth uint32
	// Channel is the one that they are in, empty for any.
	Channel string
	// Kinds are those wanted, empty for all.
	Kinds []nostr.Kind
	// Newest has the newest come first, not the oldest.
	Newest bool
	// AfterCreatedAt and AfterID are the place of the reply before the first. Without AfterID it is the first of all that are
	// not older, or, of the newest first, of all.
	AfterCreatedAt int64
	AfterID        []byte
	// Limit is how many are returned at most.
	Limit int
}

// pageBytes is the size of a page that is only one reply longer; a message of gRPC has 8 MiB.
const pageBytes = 6 << 20

// maxDepth is how deep threads are, as ingest makes them: a page that goes as deep has nothing to pass over because of that.
const maxDepth = 100

// maxLook is how many replies one statement looks at, more than a page at most. Those that are not to be seen, or are of other kinds, are
// passed over as many at a time.
const maxLook = 1024

// oldest and newest read a page of the replies to $3, the others of those that are at most $6 deep. Of one second they are in the order of
// their ids either way.
var (
	// Index: replies_root, events_time, channels_pkey.
	oldest = repliesOf(ofAnyDepth("(k.created_at, k.id) > ($7, $8)", inOrder), inOrder)
	// Index: replies_newest, events_time, channels_pkey.
	newest = repliesOf(ofAnyDepth("k.created_at <= $7 AND (k.created_at < $7 OR k.id > $8)", inReverse), inReverse)
	// Index: replies_depth, replies_root, events_time, channels_pkey.
	oldestShallow = repliesOf(ofDepths(
		"(k.depth, k.created_at) >= (d.depth, $7) AND k.depth <= d.depth AND (k.created_at > $7 OR k.id > $8)",
		"k.depth, k.created_at", inOrder), inOrder)
	// Index: replies_depth, replies_root, events_time, channels_pkey.
	newestShallow = repliesOf(ofDepths(
		"(k.depth, k.created_at) <= (d.depth, $7) AND k.depth >= d.depth AND (k.created_at < $7 OR k.id > $8)",
		"k.depth DESC, k.created_at DESC", inReverse), inReverse)
)

// The orders of replies.
const (
	inOrder   = "k.created_at, k.id"
	inReverse = "k.created_at DESC, k.id"
)

// ofAnyDepth are the next replies of a thread, $10 of them.
func ofAnyDepth(behind, order string) string {
	return `
        SELECT k.created_at, k.id FROM ingest.replies k
        WHERE ` + access.Admitted + ` AND ` + openThread + ` AND k.community_id = @community AND k.root_id = $3 AND k.depth <= $6
            AND ` + behind + `
        ORDER BY ` + order + ` LIMIT $10`
}

// ofDepths is ofAnyDepth without reading what is deeper, of which there may be much more: it takes as many of each depth. The index has no
// ids, so that it serves both orders: all of the last second are read. One depth is written as a range of them, whose order no other
// index has.
func ofDepths(behind, along, order string) string {
	return `
        SELECT k.created_at, k.id FROM (SELECT n::smallint AS depth FROM generate_series(1, $6::bigint) AS n) AS d
        CROSS JOIN LATERAL (
            SELECT k.created_at, k.id FROM ingest.replies k
            WHERE k.community_id = @community AND k.root_id = $3 AND ` + behind + `
            ORDER BY ` + along + ` FETCH FIRST ($10) ROWS WITH TIES
        ) AS k
        WHERE ` + access.Admitted + ` AND ` + openThread + `
        ORDER BY ` + order + ` LIMIT $10`
}

// repliesOf is the statement for some replies k: which of them the reader may see and has asked for, and, as far as their bytes are
// below $11, the events. A thread is in one channel, since ingest takes no reply to what is in another: whether it may be
// read, and is in the channel asked for, is found out by one of its replies. So a thread that may not be read costs the same, however long it is.
func repliesOf(some, order string) string {
	return strings.NewReplacer("@community", "$1", "@keys", "$2").Replace(access.ReaderCTE + `
SELECT k.created_at, k.id, k.raw IS NOT NULL, CASE WHEN k.before < $11 THEN k.raw END
FROM (
    SELECT k.created_at, k.id, e.raw,
        coalesce(sum(octet_length(e.raw)) OVER (ORDER BY ` + order + ` ROWS UNBOUNDED PRECEDING) - octet_length(e.raw), 0) AS before
    FROM (` + some + `
    ) AS k
    LEFT JOIN LATERAL (
        SELECT e.raw FROM (
            SELECT e.created_at, e.id, e.pubkey, e.kind, e.channel_id, e.raw FROM ingest.events e
            WHERE e.community_id = @community AND e.created_at = k.created_at AND e.id = k.id
                AND (e.expires_at IS NULL OR e.expires_at > $4)
                AND ($5::int[] IS NULL OR e.kind = ANY ($5::int[])) OFFSET 0
        ) AS e
        WHERE ` + access.ReadableEvent + ` AND ` + access.Present + ` AND ` + access.Party + ` OFFSET 0
    ) AS e ON true
) AS k
ORDER BY ` + order)
}

// openThread holds if the thread of $3 is in a channel that the reader may read, and in $9 unless that is empty.
//
// Index: replies_root, events_time, channels_pkey.
const openThread = `EXISTS (
            SELECT FROM (
                SELECT k.created_at, k.id FROM ingest.replies k
                WHERE k.community_id = @community AND k.root_id = $3 ORDER BY k.created_at, k.id LIMIT 1
            ) AS k
            CROSS JOIN LATERAL (
                SELECT e.channel_id FROM ingest.events e
                WHERE e.community_id = @community AND e.created_at = k.created_at AND e.id = k.id OFFSET 0
            ) AS e
            CROSS JOIN LATERAL (
                SELECT ch.id, ch.visibility FROM ingest.channels ch
                WHERE ch.community_id = @community AND ch.id = e.channel_id AND ($9::text = '' OR ch.h = $9) OFFSET 0
            ) AS ch
            WHERE ` + access.ReadableChannel + ` OFFSET 0)`

// statement returns what looks at some replies of the page, and gives so many bytes of them.
func (p *Page) statement(r access.Reader, look, bytes int) (sql string, args []any) {
	keys := make([][]byte, len(r.Keys))
	for i := range r.Keys {
		keys[i] = r.Keys[i][:]
	}
	var kinds []int32 // NULL
	for _, k := range p.Kinds {
		kinds = append(kinds, int32(k))
	}
	at := p.AfterCreatedAt
	switch shallow := p.Depth < maxDepth; {
	case p.Newest && shallow:
		sql = newestShallow
	case p.Newest:
		sql = newest
	case shallow:
		sql = oldestShallow
	default:
		sql = oldest
	}
	if p.Newest && len(p.AfterID) == 0 {
		at = math.MaxInt64
	}
	return sql, []any{
		int64(r.Community), keys, p.Root[:], r.Now, kinds, int64(min(p.Depth, math.MaxInt16)),
		at, append([]byte{}, p.AfterID...), p.Channel, int64(look), int64(bytes),
	}
}

// candidate is a reply that was looked at.
type candidate struct {
	CreatedAt int64
	ID        []byte
	// Seen is set when it belongs to the page; Raw is nil when it does not, or when too many bytes came before.
	Seen bool
	Raw  []byte
}

// look looks at the next replies, at most so many.
func (p *Page) look(ctx context.Context, conn *pgx.Conn, r access.Reader, most, bytes int) ([]candidate, error) {
	sql, args := p.statement(r, most, bytes)
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read replies: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[candidate])
	if err != nil {
		return nil, fmt.Errorf("read replies: %w", err)
	}
	return found, nil
}

// Replies returns a page of the replies of a thread, raw, at most 6 MiB and one reply, and whether there are others behind it.
func (s *Store) Replies(ctx context.Context, r access.Reader, page Page) (raws [][]byte, more bool, err error) {
	err = s.readBulk(ctx, func(ctx context.Context, conn *pgx.Conn, _ session) error {
		raws, more = nil, false
		rest, left := page, pageBytes
		for most := page.Limit + 1; ; most = min(2*most, maxLook) {
			found, err := rest.look(ctx, conn, r, most, left)
			if err != nil {
				return err
			}
			for _, c := range found {
				if !c.Seen {
					continue
				}
				if len(raws) == page.Limit || c.Raw == nil {
					more = true
					return nil
				}
				raws, left = append(raws, c.Raw), left-len(c.Raw)
			}
			if len(found) < most {
				return nil
			}
			last := found[len(found)-1]
			rest.AfterCreatedAt, rest.AfterID = last.CreatedAt, last.ID
		}
	})
	return raws, more, err
}
