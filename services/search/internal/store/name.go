package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/tenant"
)

// Bounds of the profiles that are looked at for one name: those of members that mention it, and of these the first.
const (
	maxMentions     = 500
	maxClaims       = 32
	maxProfileBytes = 64 << 10
	// profilesTimeout bounds what it costs that others than members mention a name, as often as they like. A shorter limit stays.
	profilesTimeout = `SELECT set_config('statement_timeout', '2s', true)
WHERE current_setting('statement_timeout')::interval NOT BETWEEN '1ms' AND '2s'`
)

// profilesNaming finds the profiles of members that mention $2, those of who has been a member for longest first. A profile is a
// document like others in the text index, so none but those that mention it are read. Others than members may mention it
// as often as they like: the bound is of what members say, and of the time that it takes to find them.
//
// Index: documents_words, events_time, communities_pkey, community_members_pkey, banned_pubkeys_pkey, agents_pkey, vanished_pkey.
const profilesNaming = `
SELECT e.raw FROM (
    SELECT e.*, m.added_at FROM search.documents d
    CROSS JOIN LATERAL (
        SELECT e.pubkey, e.raw, e.created_at FROM ingest.events e
        WHERE e.community_id = $1 AND e.created_at = d.created_at AND e.id = d.id
            AND (e.expires_at IS NULL OR e.expires_at > $3) OFFSET 0
    ) AS e
    CROSS JOIN LATERAL (
        SELECT m.added_at FROM ingest.community_members m WHERE m.community_id = $1 AND m.pubkey = e.pubkey OFFSET 0
    ) AS m
    WHERE numnode(phraseto_tsquery('simple', $2::text)) > 0
        AND d.words @@ (phraseto_tsquery('simple', $2::text) && quote_literal('community ' || $1::bigint)::tsquery)
        AND d.community_id + 0 = $1 AND d.kind = 0
    LIMIT $4
) AS e
WHERE octet_length(e.raw) <= $6
    AND EXISTS (SELECT FROM ingest.communities c WHERE c.id = $1 AND c.archived_at IS NULL OFFSET 0)
    AND NOT EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = $1 AND b.pubkey = e.pubkey OFFSET 0)
    AND NOT EXISTS (SELECT FROM ingest.vanished v
        WHERE v.community_id = $1 AND v.pubkey = e.pubkey AND v.until >= e.created_at OFFSET 0)
ORDER BY e.added_at, e.pubkey LIMIT $5`

// Profiles returns the profiles (kind 0) of members of a community that mention a text, raw, at most 32 of at most 64 KiB:
// those of who has been a member for longest, first. now is the time in Unix seconds.
func (s *Store) Profiles(ctx context.Context, community tenant.ID, text string, now int64) ([][]byte, error) {
	var raws [][]byte
	err := s.readBulk(ctx, func(ctx context.Context, conn *pgx.Conn, _ session) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			for _, set := range []string{allowBitmaps, profilesTimeout} {
				if _, err := tx.Exec(ctx, set); err != nil {
					return fmt.Errorf("prepare profiles: %w", err)
				}
			}
			rows, err := tx.Query(ctx, profilesNaming, int64(community), text, now, maxMentions, maxClaims, maxProfileBytes)
			if err == nil {
				raws, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
			}
			if err != nil {
				return fmt.Errorf("find profiles: %w", err)
			}
			return nil
		})
	})
	return raws, err
}
