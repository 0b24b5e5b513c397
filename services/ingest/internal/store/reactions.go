package store

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

const (
	// Conflicts on reactions_pkey; what comes back is the first of its kind. Sorted by key.
	sqlClaimReactions = `
INSERT INTO ingest.reactions (community_id, target_id, pubkey, emoji, id)
SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[])
ON CONFLICT DO NOTHING
RETURNING community_id, id`

	// By reactions_pkey.
	sqlEraseReactions = `
DELETE FROM ingest.reactions r
USING unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[])
    AS q (community_id, target_id, pubkey, emoji, id)
WHERE r.community_id = q.community_id AND r.target_id = q.target_id AND r.pubkey = q.pubkey AND r.emoji = q.emoji
    AND r.id = q.id`
)

// reactionRow is a row of ingest.reactions.
type reactionRow struct {
	policy.Reaction
	community int64
	pubkey    nostr.PubKey
	id        nostr.ID
}

func compareReactions(a, b reactionRow) int {
	return cmp.Or(
		cmp.Compare(a.community, b.community),
		bytes.Compare(a.Target[:], b.Target[:]),
		bytes.Compare(a.pubkey[:], b.pubkey[:]),
		cmp.Compare(a.Emoji, b.Emoji),
	)
}

// reactionColumns are the arguments of both statements.
func reactionColumns(list []reactionRow) []any {
	communities, targets, pubkeys := make([]int64, len(list)), make([][]byte, len(list)), make([][]byte, len(list))
	emojis, ids := make([][]byte, len(list)), make([][]byte, len(list))
	for i, r := range list {
		communities[i], targets[i], pubkeys[i] = r.community, bytesOf(r.Target), bytesOf(r.pubkey)
		emojis[i], ids[i] = []byte(r.Emoji), bytesOf(r.id)
	}
	return []any{communities, targets, pubkeys, emojis, ids}
}

// reactionClaims are the reactions of a batch whose targets are here.
type reactionClaims struct {
	entries []*entry
	first   map[policy.EventKey]bool // there was no such reaction before
}

func (c *reactionClaims) queue(b *pgx.Batch) {
	if len(c.entries) == 0 {
		return
	}
	list := make([]reactionRow, len(c.entries))
	for i, e := range c.entries {
		list[i] = reactionRow{*e.Reaction, e.Community, e.Event.PubKey, e.Event.ID}
	}
	slices.SortFunc(list, compareReactions)
	c.first = make(map[policy.EventKey]bool, len(list))
	b.Queue(sqlClaimReactions, reactionColumns(list)...).Query(func(rows pgx.Rows) error {
		var community int64
		var id []byte
		_, err := pgx.ForEachRow(rows, []any{&community, &id}, func() error {
			c.first[policy.EventKey{Community: community, ID: nostr.ID(id)}] = true
			return nil
		})
		return err
	})
}

// judge refuses what somebody has said already. An event that is stored is a duplicate whatever it says.
func (c *reactionClaims) judge() {
	for _, e := range c.entries {
		if e.verdict.Accepted() && !c.first[e.Key()] {
			e.verdict = policy.ReactionExists
		}
	}
}

func queueEraseReactions(b *pgx.Batch, list []stored) {
	var reactions []reactionRow
	for _, st := range list {
		if st.reaction != nil {
			reactions = append(reactions, *st.reaction)
		}
	}
	if len(reactions) > 0 {
		b.Queue(sqlEraseReactions, reactionColumns(reactions)...)
	}
}
