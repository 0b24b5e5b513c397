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

// threads reads the counts and the newest replies of those of $3 that are the root of a thread and may be read.
//
// Index: event_ids_pkey, events_time, reply_counts_pkey, replies_root.
var threads = strings.NewReplacer("@community", "$1", "@keys", "$2").Replace(access.ReaderCTE + `
SELECT e.id, c.replies, c.descendants, c.summary_at, r.created_at, r.pubkey
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
    SELECT r.created_at, r.pubkey FROM ingest.replies r
    WHERE r.community_id = @community AND r.root_id = e.id
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
	// AfterCreatedAt and AfterID are the place of the reply before the first; without AfterID it is the first of all.
	AfterCreatedAt int64
	AfterID        []byte
	// Limit is how many are returned at most.
	Limit int
}

// pageBytes is the size of a page that is only one reply longer; a message of gRPC has 8 MiB.
const pageBytes = 6 << 20

// replies reads a page of the replies to $3. Of one second they are in the order of their ids.
//
// Index: replies_root, events_time, channels_pkey.
var replies = strings.NewReplacer("@community", "$1", "@keys", "$2").Replace(access.ReaderCTE + `
SELECT raw FROM (
    SELECT e.created_at, e.id, e.raw,
        sum(octet_length(e.raw)) OVER (ORDER BY e.created_at, e.id ROWS UNBOUNDED PRECEDING) - octet_length(e.raw) AS before
    FROM (
        SELECT e.created_at, e.id, e.raw
        FROM ingest.replies k
        CROSS JOIN LATERAL (
            SELECT e.created_at, e.id, e.pubkey, e.kind, e.channel_id, e.raw FROM ingest.events e
            WHERE e.community_id = @community AND e.created_at = k.created_at AND e.id = k.id
                AND (e.expires_at IS NULL OR e.expires_at > $4)
                AND ($5::int[] IS NULL OR e.kind = ANY ($5::int[])) OFFSET 0
        ) AS e
        WHERE ` + access.Admitted + ` AND k.community_id = @community AND k.root_id = $3 AND k.depth <= $6
            AND (k.created_at, k.id) > ($7, $8)
            AND ` + access.ReadableEvent + ` AND ` + access.Present + ` AND ` + access.Party + `
            AND ($9::text = '' OR EXISTS (
                SELECT FROM ingest.channels ch WHERE ch.community_id = @community AND ch.id = e.channel_id AND ch.h = $9 OFFSET 0))
        ORDER BY k.created_at, k.id LIMIT $10
    ) AS e
) AS w
WHERE before < $11
ORDER BY created_at, id`)

// Replies returns a page of the replies of a thread, the oldest first, raw; at most 6 MiB and one reply.
func (s *Store) Replies(ctx context.Context, r access.Reader, page Page) (raws [][]byte, err error) {
	keys := make([][]byte, len(r.Keys))
	for i := range r.Keys {
		keys[i] = r.Keys[i][:]
	}
	var kinds []int32 // NULL
	for _, k := range page.Kinds {
		kinds = append(kinds, int32(k))
	}
	at := page.AfterCreatedAt
	if len(page.AfterID) == 0 {
		at = math.MinInt64
	}
	err = s.readBulk(ctx, func(ctx context.Context, conn *pgx.Conn, _ session) error {
		rows, err := conn.Query(ctx, replies, int64(r.Community), keys, page.Root[:], r.Now, kinds, min(page.Depth, math.MaxInt16),
			at, append([]byte{}, page.AfterID...), page.Channel, page.Limit, pageBytes)
		if err == nil {
			raws, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
		}
		if err != nil {
			return fmt.Errorf("read replies: %w", err)
		}
		return nil
	})
	return raws, err
}
