package store

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

const (
	// Conflicts on replies_pkey and reply_counts_pkey: what was not a reply yet is counted at its parent and at its
	// root. The counts are taken in ascending order, and come back as they are now; $10 is the time of a summary
	// unless the last one was as late.
	sqlClaimReplies = `
WITH made AS (
    INSERT INTO ingest.replies (community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at, expires_at)
    SELECT community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at, nullif(expires_at, 0)
    FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::smallint[], $6::boolean[], $7::bytea[], $8::bigint[], $9::bigint[])
        AS q (community_id, id, root_id, parent_id, depth, broadcast, pubkey, created_at, expires_at)
    ON CONFLICT DO NOTHING
    RETURNING community_id, root_id, parent_id
), more AS (
    SELECT community_id, id, sum(replies) AS replies, sum(descendants) AS descendants
    FROM (
        SELECT community_id, parent_id, 1, 0 FROM made
        UNION ALL
        SELECT community_id, root_id, 0, 1 FROM made
    ) AS each_reply (community_id, id, replies, descendants)
    GROUP BY community_id, id
)
INSERT INTO ingest.reply_counts AS c (community_id, id, replies, descendants, summary_at)
SELECT community_id, id, replies, descendants, $10::bigint FROM more ORDER BY community_id, id
ON CONFLICT (community_id, id) DO UPDATE
SET replies = c.replies + excluded.replies, descendants = c.descendants + excluded.descendants,
    summary_at = greatest(excluded.summary_at, c.summary_at + 1)
RETURNING community_id, id, replies, descendants, summary_at`

	// By replies_pkey, reply_counts_pkey and event_ids_pkey: the opposite. The counts stay, with 0, as long as there is
	// something that they count for: those of an event that is gone end with its last reply. Whoever runs this holds the
	// channel exclusively, or its community.
	sqlEraseReplies = `
WITH gone AS (
    DELETE FROM ingest.replies r USING unnest($1::bigint[], $2::bytea[]) AS q (community_id, id)
    WHERE r.community_id = q.community_id AND r.id = q.id
    RETURNING r.community_id, r.root_id, r.parent_id
), less AS (
    SELECT community_id, id, sum(replies) AS replies, sum(descendants) AS descendants
    FROM (
        SELECT community_id, parent_id, 1, 0 FROM gone
        UNION ALL
        SELECT community_id, root_id, 0, 1 FROM gone
    ) AS each_reply (community_id, id, replies, descendants)
    GROUP BY community_id, id
), rest AS (
    SELECT less.*, c.replies = less.replies AND c.descendants = less.descendants AND NOT EXISTS (
        SELECT FROM ingest.event_ids i WHERE i.community_id = c.community_id AND i.id = c.id) AS ended
    FROM less JOIN ingest.reply_counts c ON c.community_id = less.community_id AND c.id = less.id
), ended AS (
    DELETE FROM ingest.reply_counts c USING rest
    WHERE rest.ended AND c.community_id = rest.community_id AND c.id = rest.id
)
UPDATE ingest.reply_counts c
SET replies = c.replies - less.replies, descendants = c.descendants - less.descendants,
    summary_at = greatest($3::bigint, c.summary_at + 1)
FROM rest AS less
WHERE NOT less.ended AND c.community_id = less.community_id AND c.id = less.id
RETURNING c.community_id, c.id, c.replies, c.descendants, c.summary_at, less.descendants > 0`

	// By reply_counts_pkey: the counts of events that are erased, unless there are replies left.
	sqlEraseReplyCounts = `
DELETE FROM ingest.reply_counts c USING unnest($1::bigint[], $2::bytea[]) AS q (community_id, id)
WHERE c.community_id = q.community_id AND c.id = q.id AND c.replies = 0 AND c.descendants = 0`
)

// replyCount is what both statements return: the counts of an event, and, when replies are erased, whether it is the
// root of one.
type replyCount struct {
	community            int64
	id                   []byte
	replies, descendants int
	at                   int64
	root                 bool
}

func (c *replyCount) columns() []any {
	return []any{&c.community, &c.id, &c.replies, &c.descendants, &c.at, &c.root}
}

func (c *replyCount) key() policy.EventKey {
	return policy.EventKey{Community: c.community, ID: nostr.ID(c.id)}
}

// queueClaimReplies files replies in their threads. An event that is stored already is filed already, or was
// stored before threads were kept and is filed now.
func (t *transaction) queueClaimReplies(b *pgx.Batch, entries []*entry) {
	var replies []*entry
	for _, e := range entries {
		if e.Reply != nil && e.Reply.Depth > 0 {
			replies = append(replies, e)
		}
	}
	if len(replies) == 0 {
		return
	}
	slices.SortFunc(replies, compareIDs)
	n := len(replies)
	communities, ids, roots, parents := make([]int64, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
	depths, broadcasts, pubkeys, created, expires := make([]int16, n), make([]bool, n), make([][]byte, n), make([]int64, n), make([]int64, n)
	for i, e := range replies {
		communities[i], ids[i], roots[i], parents[i] = e.Community, e.Event.ID[:], bytesOf(e.Reply.Root), bytesOf(e.Reply.Parent)
		depths[i], broadcasts[i], pubkeys[i], created[i] = int16(e.Reply.Depth), e.Reply.Broadcast, e.Event.PubKey[:], e.Event.CreatedAt
		expires[i] = e.ExpiresAt
	}
	claim := b.Queue(sqlClaimReplies, communities, ids, roots, parents, depths, broadcasts, pubkeys, created, expires, t.begunAt/1e6)
	if t.key == nil {
		return
	}
	var touched ordered[policy.EventKey]
	for _, e := range replies {
		touched.add(policy.EventKey{Community: e.Community, ID: e.Reply.Root})
	}
	claim.Query(func(rows pgx.Rows) error {
		var c replyCount
		_, err := pgx.ForEachRow(rows, c.columns()[:5], func() error {
			if touched.seen[c.key()] {
				t.changed(c.key(), c.replies, c.descendants, c.at)
			}
			return nil
		})
		return err
	})
	t.queueThreads(b, touched.list)
}

// queueEraseReplies takes messages out of their threads.
func queueEraseReplies(b *pgx.Batch, list []stored) {
	if communities, ids := messageColumns(list); len(ids) > 0 {
		b.Queue(sqlEraseReplies, communities, ids, 0)
		b.Queue(sqlEraseReplyCounts, communities, ids)
	}
}

// messageColumns are those of the events that may be part of a thread.
func messageColumns(list []stored) (communities []int64, ids [][]byte) {
	for _, st := range list {
		if st.message {
			communities, ids = append(communities, st.community), append(ids, bytesOf(st.id))
		}
	}
	return communities, ids
}
