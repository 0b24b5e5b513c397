package store

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/postgres"
)

// Statements of moderation.
const (
	// By community_members_pkey.
	sqlRole = `SELECT role FROM ingest.community_members WHERE community_id = $1 AND pubkey = $2`

	// Conflicts on banned_pubkeys_pkey: the first decision stands.
	sqlBanPubKey = `
INSERT INTO ingest.banned_pubkeys (community_id, pubkey, reason, decided_by) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING`

	// By banned_pubkeys_pkey.
	sqlUnbanPubKey = `DELETE FROM ingest.banned_pubkeys WHERE community_id = $1 AND pubkey = $2`

	// Conflicts on community_members_pkey: whoever is a member keeps the role.
	sqlAllowPubKey = `
INSERT INTO ingest.community_members (community_id, pubkey, role) VALUES ($1, $2, 'member')
ON CONFLICT DO NOTHING`

	// By event_ids_pkey and events_time.
	sqlEvent = `
SELECT 1::bigint, e.community_id, e.raw
FROM ingest.event_ids i
JOIN ingest.events e ON e.community_id = i.community_id AND e.created_at = i.created_at AND e.id = i.id
WHERE i.community_id = $1 AND i.id = $2`

	// Conflicts on banned_events_pkey.
	sqlBanEvent = `
INSERT INTO ingest.banned_events (community_id, id, reason, decided_by) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING`

	// By banned_events_pkey.
	sqlUnbanEvent = `DELETE FROM ingest.banned_events WHERE community_id = $1 AND id = $2`

	// Conflicts on decided_reports_pkey.
	sqlDecideReports = `
INSERT INTO ingest.decided_reports (community_id, target_id, decided_by) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING`

	// Conflicts on allowed_kinds_pkey.
	sqlAllowKind = `INSERT INTO ingest.allowed_kinds (community_id, kind) VALUES ($1, $2) ON CONFLICT DO NOTHING`

	// By allowed_kinds_pkey.
	sqlDisallowKind = `DELETE FROM ingest.allowed_kinds WHERE community_id = $1 AND kind = $2`

	// By blocked_networks_pkey.
	sqlCountNetworks = `SELECT count(*) FROM ingest.blocked_networks WHERE community_id = $1 AND network <> $2`

	// Conflicts on blocked_networks_pkey.
	sqlBlockNetwork = `
INSERT INTO ingest.blocked_networks (community_id, network, reason, decided_by) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING`

	// By blocked_networks_pkey.
	sqlUnblockNetwork = `DELETE FROM ingest.blocked_networks WHERE community_id = $1 AND network = $2`

	// By communities_pkey. What is NULL stays.
	sqlDescribe = `
UPDATE ingest.communities
SET name = coalesce($2, name), description = coalesce($3, description), icon = coalesce($4, icon), min_pow = coalesce($5, min_pow)
WHERE id = $1`

	// Conflicts on http_tokens_pkey.
	sqlConsume = `
INSERT INTO ingest.http_tokens (community_id, event_id, expires_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`

	// By http_tokens_expiry and http_tokens_pkey.
	sqlForget = `
DELETE FROM ingest.http_tokens t
USING (
    SELECT community_id, event_id FROM ingest.http_tokens
    WHERE expires_at < $1 ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED) AS q
WHERE t.community_id = q.community_id AND t.event_id = q.event_id`
)

// MaxNetworks is how many networks a community can block: every gateway has them all in memory.
const MaxNetworks = 1024

// What moderation refuses.
var (
	// ErrNotModerator says that the actor is neither owner nor admin of the community.
	ErrNotModerator = errors.New("actor is no moderator")
	// ErrOwner says that a change would take an owner's access away.
	ErrOwner = errors.New("key is an owner")
	// ErrTooManyNetworks says that MaxNetworks are blocked.
	ErrTooManyNetworks = errors.New("too many blocked networks")
	// ErrTokenUsed says that the token was consumed before.
	ErrTokenUsed = errors.New("token was used")
)

// Moderator is who changes something, where and why.
type Moderator struct {
	// Community is the tenant.
	Community int64
	// Actor is the authenticated key.
	Actor nostr.PubKey
	// Reason is kept for the lists; may be empty.
	Reason string
}

// Change is one change of a community's moderation. It runs in a transaction that holds the community, and
// returns whether it changed who may read or write.
type Change func(ctx context.Context, conn *pgx.Conn, m Moderator) (access bool, err error)

// Moderate makes one change if the actor is an owner or admin at that moment, and returns the community's access
// version after it. Every change is idempotent.
func (s *Store) Moderate(ctx context.Context, m Moderator, change Change) (uint64, error) {
	return s.changeAccess(ctx, m.Community, func(conn *pgx.Conn) (version int64, err error) {
		role, err := roleOf(ctx, conn, m.Community, m.Actor)
		if err != nil {
			return 0, err
		}
		if role != "owner" && role != "admin" {
			return 0, ErrNotModerator
		}
		access, err := change(ctx, conn, m)
		if err != nil {
			return 0, err
		}
		raise := 0
		if access {
			raise = 1
		}
		err = conn.QueryRow(ctx, sqlRaiseVersion, m.Community, raise).Scan(&version)
		return version, err
	})
}

// roleOf returns a member's role, empty for who is none.
func roleOf(ctx context.Context, conn *pgx.Conn, community int64, pubkey nostr.PubKey) (string, error) {
	var role string
	err := conn.QueryRow(ctx, sqlRole, community, pubkey[:]).Scan(&role)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return role, err
}

// exec makes a Change of one statement, which changes access if any row is affected and access is set.
func exec(access bool, query string, args func(m Moderator) []any) Change {
	return func(ctx context.Context, conn *pgx.Conn, m Moderator) (bool, error) {
		tag, err := conn.Exec(ctx, query, args(m)...)
		return access && tag.RowsAffected() > 0, err
	}
}

// both makes one Change of two.
func both(a, b Change) Change {
	return func(ctx context.Context, conn *pgx.Conn, m Moderator) (bool, error) {
		first, err := a(ctx, conn, m)
		if err != nil {
			return false, err
		}
		second, err := b(ctx, conn, m)
		return first || second, err
	}
}

// BanPubKey takes a key's membership, of channels as well, and refuses it from then on.
func BanPubKey(pubkey nostr.PubKey) Change {
	return both(UnallowPubKey(pubkey), exec(true, sqlBanPubKey, func(m Moderator) []any {
		return []any{m.Community, pubkey[:], m.Reason, m.Actor[:]}
	}))
}

// UnbanPubKey lifts the ban of a key.
func UnbanPubKey(pubkey nostr.PubKey) Change {
	return exec(true, sqlUnbanPubKey, func(m Moderator) []any { return []any{m.Community, pubkey[:]} })
}

// AllowPubKey makes a key a member, and lifts a ban of it.
func AllowPubKey(pubkey nostr.PubKey) Change {
	return both(UnbanPubKey(pubkey), exec(true, sqlAllowPubKey, func(m Moderator) []any { return []any{m.Community, pubkey[:]} }))
}

// UnallowPubKey takes a key's membership, of channels as well. An owner keeps it.
func UnallowPubKey(pubkey nostr.PubKey) Change {
	return func(ctx context.Context, conn *pgx.Conn, m Moderator) (changed bool, err error) {
		role, err := roleOf(ctx, conn, m.Community, pubkey)
		if err != nil {
			return false, err
		}
		if role == "owner" {
			return false, ErrOwner
		}
		err = conn.QueryRow(ctx, sqlRemoveMember, m.Community, pubkey[:]).Scan(&changed)
		return changed, err
	}
}

// BanEvent removes an event, whoever wrote it, and refuses it from then on. Reports of it are decided.
func BanEvent(id nostr.ID) Change {
	return func(ctx context.Context, conn *pgx.Conn, m Moderator) (bool, error) {
		var found []stored
		b := &pgx.Batch{}
		b.Queue(sqlEvent, m.Community, id[:]).Query(collectStored(func(_ int, st stored) { found = append(found, st) }))
		b.Queue(sqlBanEvent, m.Community, id[:], m.Reason, m.Actor[:])
		b.Queue(sqlDecideReports, m.Community, id[:], m.Actor[:])
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			return false, err
		}
		b = &pgx.Batch{}
		queueErase(b, found, true)
		return false, conn.SendBatch(ctx, b).Close()
	}
}

// AllowEvent decides the reports of an event, and lifts a ban of it.
func AllowEvent(id nostr.ID) Change {
	return both(
		exec(false, sqlUnbanEvent, func(m Moderator) []any { return []any{m.Community, id[:]} }),
		exec(false, sqlDecideReports, func(m Moderator) []any { return []any{m.Community, id[:], m.Actor[:]} }),
	)
}

// AllowKind adds a kind to the only ones that are taken.
func AllowKind(kind nostr.Kind) Change {
	return exec(false, sqlAllowKind, func(m Moderator) []any { return []any{m.Community, int32(kind)} })
}

// DisallowKind takes a kind from the only ones that are taken; with none left, all are.
func DisallowKind(kind nostr.Kind) Change {
	return exec(false, sqlDisallowKind, func(m Moderator) []any { return []any{m.Community, int32(kind)} })
}

// BlockNetwork refuses clients of a network, which must be masked and not of IPv4 mapped into IPv6.
func BlockNetwork(network netip.Prefix) Change {
	return func(ctx context.Context, conn *pgx.Conn, m Moderator) (bool, error) {
		var others int
		if err := conn.QueryRow(ctx, sqlCountNetworks, m.Community, network).Scan(&others); err != nil {
			return false, err
		}
		if others >= MaxNetworks {
			return false, ErrTooManyNetworks
		}
		_, err := conn.Exec(ctx, sqlBlockNetwork, m.Community, network, m.Reason, m.Actor[:])
		return false, err
	}
}

// UnblockNetwork takes clients of a network again.
func UnblockNetwork(network netip.Prefix) Change {
	return exec(false, sqlUnblockNetwork, func(m Moderator) []any { return []any{m.Community, network} })
}

// Description is what a community says of itself; what is nil stays.
type Description struct {
	// Name, About and Icon are shown to clients (NIP-11).
	Name, About, Icon *string
	// MinPow is the least difficulty of an event in bits (NIP-13), 0 to 64.
	MinPow *int16
}

// Describe changes what a community says of itself.
func Describe(d Description) Change {
	return exec(false, sqlDescribe, func(m Moderator) []any { return []any{m.Community, d.Name, d.About, d.Icon, d.MinPow} })
}

// ConsumeToken remembers the id of an HTTP token until it expires, or returns ErrTokenUsed. It is not tried
// again: an insertion whose outcome is unknown must not make its own repetition look like a thief's.
func (s *Store) ConsumeToken(ctx context.Context, community int64, id nostr.ID, expires time.Time) error {
	tag, err := s.pool.Exec(ctx, sqlConsume, community, id[:], expires)
	switch {
	case postgres.IsForeignKeyViolation(err):
		return ErrNoCommunity
	case err != nil:
		return fmt.Errorf("consume token: %w", err)
	case tag.RowsAffected() == 0:
		return ErrTokenUsed
	}
	return nil
}

// ExpireTokens forgets up to limit tokens that had expired before a moment, and returns how many.
func (s *Store) ExpireTokens(ctx context.Context, before time.Time, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, sqlForget, before, limit)
	if err != nil {
		return 0, fmt.Errorf("expire tokens: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
