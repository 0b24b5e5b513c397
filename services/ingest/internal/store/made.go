package store

import (
	"context"
	"fmt"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Types of channels that are counted together.
var (
	channelTypes      = []string{string(policy.Stream), string(policy.Forum), string(policy.Workflow)}
	conversationTypes = []string{string(policy.Direct)}
)

// By agents_pkey, agents_owner, community_members_pkey and channels_made, of which no more is read than may be there. Whoever runs this
// holds what is counted.
const sqlMade = `
WITH member AS MATERIALIZED (
    SELECT coalesce((SELECT a.owner FROM ingest.agents a WHERE a.community_id = $1 AND a.pubkey = $2), $2) AS key
), maker AS MATERIALIZED (
    SELECT key FROM member
    UNION ALL
    SELECT a.pubkey FROM member JOIN ingest.agents a ON a.owner = member.key AND a.community_id = $1
)
SELECT
    (SELECT count(*) FROM (
        SELECT FROM maker CROSS JOIN unnest($3::text[]) AS t (type)
        CROSS JOIN LATERAL (
            SELECT FROM ingest.channels c WHERE c.type = t.type AND c.community_id = $1 AND c.created_by = maker.key LIMIT $4
        ) AS c LIMIT $4) AS made),
    (SELECT count(*) FROM (
        SELECT FROM unnest($3::text[]) AS t (type)
        CROSS JOIN LATERAL (SELECT FROM ingest.channels c WHERE c.type = t.type AND c.community_id = $1 LIMIT $5) AS c
        LIMIT $5) AS made),
    EXISTS (SELECT FROM ingest.community_members m WHERE m.community_id = $1 AND m.pubkey = $2 AND m.role IN ('owner', 'admin'))`

// WithMost bounds how many channels and conversations there may be. What there is already stays.
func WithMost(channels, conversations policy.Most) Option {
	return func(s *Store) { s.counts = counts{channels, conversations} }
}

// counts are how many channels and conversations there may be.
type counts struct{ channels, conversations policy.Most }

// mayMake decides whether a key may make one more channel of some types.
func (x *change) mayMake(ctx context.Context, author nostr.PubKey, most policy.Most, types []string, what string) (policy.Verdict, error) {
	if most == (policy.Most{}) {
		return policy.Verdict{}, nil
	}
	var made policy.Made
	err := x.conn.QueryRow(ctx, sqlMade, x.community, author[:], types, most.Member, most.Community).
		Scan(&made.Member, &made.Community, &made.Moderator)
	if err != nil {
		return policy.Verdict{}, fmt.Errorf("count %s: %w", what, err)
	}
	return most.Judge(made, what), nil
}
