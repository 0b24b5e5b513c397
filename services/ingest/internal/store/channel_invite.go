package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements of invites to channels. Whoever runs them, but the sweep, holds the channel exclusively.
const (
	// By channel_invites_pkey.
	sqlCountChannelInvites = `SELECT count(*) FROM ingest.channel_invites WHERE community_id = $1 AND channel_id = $2`

	// Conflicts on channel_invites_pkey: who makes a code again wants it to be good.
	sqlPutChannelInvite = `
INSERT INTO ingest.channel_invites (community_id, channel_id, code_hash, created_by, expires_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (community_id, channel_id, code_hash) DO UPDATE SET created_by = excluded.created_by, expires_at = excluded.expires_at`

	// By channel_invites_pkey, channel_members_pkey, agents_pkey and banned_pubkeys_pkey. A code is worth what its maker may do now.
	sqlChannelInvite = `
SELECT i.expires_at > now() FROM ingest.channel_invites i
JOIN ingest.channel_members m ON m.community_id = i.community_id AND m.channel_id = i.channel_id AND m.pubkey = i.created_by
    AND m.role IN ('owner', 'admin')
WHERE i.community_id = $1 AND i.channel_id = $2 AND i.code_hash = $3
    AND NOT EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = i.community_id AND b.pubkey = i.created_by OFFSET 0)`

	// By channel_invites_pkey: at most policy.MaxChannelInvites are read.
	sqlForgetChannelInvitesOf = `
DELETE FROM ingest.channel_invites WHERE community_id = $1 AND channel_id = $2 AND created_by = $3`

	// By channel_members_pubkey and channel_invites_pkey.
	sqlForgetAllChannelInvitesOf = `
DELETE FROM ingest.channel_invites i
USING ingest.channel_members m
WHERE m.community_id = $1 AND m.pubkey = $2
    AND i.community_id = $1 AND i.channel_id = m.channel_id AND i.created_by = $2`

	// By channel_invites_expiry and channel_invites_pkey.
	sqlForgetChannelInvites = `
DELETE FROM ingest.channel_invites i
USING (
    SELECT community_id, channel_id, code_hash FROM ingest.channel_invites
    WHERE expires_at < $1 ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED) AS q
WHERE i.community_id = q.community_id AND i.channel_id = q.channel_id AND i.code_hash = q.code_hash`
)

// inviteToChannel makes a code that opens a channel.
func (x *change) inviteToChannel(ctx context.Context, e *entry, c *policy.ChannelInvite) (policy.Verdict, error) {
	actor := e.Event.PubKey
	g, err := x.group(ctx, e.Channel, actor, actor)
	if err != nil {
		return policy.Verdict{}, err
	}
	var open int
	if err := x.conn.QueryRow(ctx, sqlCountChannelInvites, x.community, g.id).Scan(&open); err != nil {
		return policy.Verdict{}, fmt.Errorf("count invites of channel: %w", err)
	}
	if v := c.Judge(g.Group, open); !v.Accepted() {
		return v, nil
	}
	_, err = x.conn.Exec(ctx, sqlPutChannelInvite, x.community, g.id, hashCode(c.Code), actor[:], time.Unix(c.ExpiresAt, 0))
	if err != nil {
		return policy.Verdict{}, fmt.Errorf("put invite of channel: %w", err)
	}
	return policy.Verdict{}, nil
}

// isChannelInvite reports whether a code opens the channel.
func (x *change) isChannelInvite(ctx context.Context, g *group, code string) (bool, error) {
	if code == "" || !g.Exists {
		return false, nil
	}
	var good bool
	err := x.conn.QueryRow(ctx, sqlChannelInvite, x.community, g.id, hashCode(code)).Scan(&good)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("look up invite of channel: %w", err)
	}
	return good, nil
}

// closeInvitesOf deletes the codes of a key that may no longer invite to a channel.
func (x *change) closeInvitesOf(ctx context.Context, g *group, key nostr.PubKey) error {
	if _, err := x.conn.Exec(ctx, sqlForgetChannelInvitesOf, x.community, g.id, key[:]); err != nil {
		return fmt.Errorf("forget invites of a key to a channel: %w", err)
	}
	return nil
}

// forgetChannelInvitesOf deletes the codes of a key that is about to leave all channels that it is in.
func (x *change) forgetChannelInvitesOf(ctx context.Context, key nostr.PubKey) error {
	if _, err := x.conn.Exec(ctx, sqlForgetAllChannelInvitesOf, x.community, key[:]); err != nil {
		return fmt.Errorf("forget invites of a key to channels: %w", err)
	}
	return nil
}

// ForgetChannelInvites forgets up to limit invites to channels that had expired before a moment, and returns how many.
func (s *Store) ForgetChannelInvites(ctx context.Context, before time.Time, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, sqlForgetChannelInvites, before, limit)
	if err != nil {
		return 0, fmt.Errorf("forget invites to channels: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
