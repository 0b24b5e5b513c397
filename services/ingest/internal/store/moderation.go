package store

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements of moderation.
const (
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

	// Conflicts on decided_reports_pkey: the last decision stands, for what was reported until then.
	sqlDecideReports = `
INSERT INTO ingest.decided_reports (community_id, target_id, decided_by) VALUES ($1, $2, $3)
ON CONFLICT (community_id, target_id) DO UPDATE SET decided_by = excluded.decided_by, decided_at = excluded.decided_at`

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

	// Conflicts on operator_tokens_pkey.
	sqlConsumeOperators = `
INSERT INTO ingest.operator_tokens (event_id, expires_at) VALUES ($1, $2) ON CONFLICT DO NOTHING`

	// By operator_tokens_expiry and operator_tokens_pkey.
	sqlForgetOperators = `
DELETE FROM ingest.operator_tokens t
USING (
    SELECT event_id FROM ingest.operator_tokens
    WHERE expires_at < $1 ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED) AS q
WHERE t.event_id = q.event_id`

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
	// Command is the id of the event that asks for it, nil if none does (NIP-86).
	Command []byte
}

// RefusedError is a verdict on a change that is no event.
type RefusedError struct{ Verdict policy.Verdict }

// Error returns what may be said in public.
func (e *RefusedError) Error() string { return e.Verdict.Message }

// The names of actions in the log, besides those of policy.ReportAction.
const (
	ActionBan          = "ban"
	ActionUnban        = "unban"
	ActionTimeout      = "timeout"
	ActionUntimeout    = "untimeout"
	ActionAllow        = "allow"
	ActionKick         = "kick"
	ActionRole         = "role"
	ActionDelete       = "delete"
	ActionAllowEvent   = "allow-event"
	ActionAllowKind    = "allow-kind"
	ActionDisallowKind = "disallow-kind"
	ActionBlock        = "block"
	ActionUnblock      = "unblock"
	ActionDescribe     = "describe"
)

// Change is one change of a community's moderation.
type Change struct {
	action Action
	// do runs in a transaction that holds the community, which it gives a new access version if it changes who may
	// read or write.
	do func(ctx context.Context, x *change, m Moderator) error
}

// Moderated is what a change has come to.
type Moderated struct {
	// ACLVersion is the community's access version after it.
	ACLVersion uint64
	// AdmittedBy is the owner of an agent that was removed and that its owner admits all the same (NIP-OA), else nil.
	AdmittedBy *nostr.PubKey
}

// Moderate makes one change if the actor is an owner or admin at that moment, and logs it. Every change is idempotent. The error is ErrNotModerator, ErrTooManyNetworks, ErrNoCommunity, or a
// RefusedError.
func (s *Store) Moderate(ctx context.Context, m Moderator, c Change) (Moderated, error) {
	var done Moderated
	if err := s.expectModerator(ctx, m.Community, m.Actor); err != nil {
		return done, err
	}
	var err error
	done.ACLVersion, err = s.changeCommunity(ctx, m.Community, func(x *change) error {
		if err := x.requireModerator(ctx, m.Actor); err != nil {
			return err
		}
		if err := c.do(ctx, x, m); err != nil {
			return err
		}
		done.AdmittedBy = x.admittedBy
		return x.record(ctx, m, c.action)
	})
	return done, err
}

// requireModerator returns ErrNotModerator unless a key is that of an owner or admin, and not banned, which an agent with a
// role of its own is together with its owner.
func (x *change) requireModerator(ctx context.Context, pubkey nostr.PubKey) error {
	role, err := x.role(ctx, pubkey)
	if err != nil {
		return err
	}
	banned, err := x.isBanned(ctx, pubkey)
	if err == nil && (banned || !role.Moderates()) {
		return ErrNotModerator
	}
	return err
}

// expectModerator is requireModerator without a lock: the community does not wait for those who may not change it.
func (s *Store) expectModerator(ctx context.Context, community int64, pubkey nostr.PubKey) error {
	if err := s.changes.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for other changes: %w", err)
	}
	defer s.changes.Release(1)
	return s.retry(ctx, func(conn *pgx.Conn) error {
		return (&change{conn: conn, community: community}).requireModerator(ctx, pubkey)
	})
}

// isHopeless reports whether a command is refused because of what its author is in the community, whatever else is true. Of
// requests to join, judgeClaim says it.
func (x *change) isHopeless(ctx context.Context, e *entry) (bool, error) {
	switch asks := e.Command.Asks.(type) {
	case *policy.AddMember, *policy.RemoveMember, *policy.ChangeRole,
		*policy.Ban, *policy.Unban, *policy.Timeout, *policy.Untimeout, *policy.ResolveReport:
		role, err := x.role(ctx, e.Event.PubKey)
		return !role.Moderates(), err
	case *policy.LeaveRelay:
		role, err := x.role(ctx, e.Event.PubKey)
		return !asks.Judge(role).Accepted(), err
	case *policy.SetProfile:
		v, err := x.judgeProfile(ctx, e, asks)
		return !v.Accepted(), err
	}
	return false, nil
}

// exec does one statement.
func exec(query string, args func(m Moderator) []any) func(context.Context, *change, Moderator) error {
	return func(ctx context.Context, x *change, m Moderator) error {
		_, err := x.conn.Exec(ctx, query, args(m)...)
		return err
	}
}

// against does something to a key if the judge lets the actor.
func against(
	pubkey nostr.PubKey, judge func(*change, context.Context, Moderator, nostr.PubKey) (policy.Verdict, error), do func(context.Context, *change, Moderator) error,
) func(context.Context, *change, Moderator) error {
	return func(ctx context.Context, x *change, m Moderator) error {
		v, err := judge(x, ctx, m, pubkey)
		switch {
		case err != nil:
			return err
		case !v.Accepted():
			return &RefusedError{v}
		}
		return do(ctx, x, m)
	}
}

// BanPubKey takes a key's membership, of channels as well, and refuses it from then on.
func BanPubKey(pubkey nostr.PubKey) Change {
	return Change{Action{Name: ActionBan, PubKey: pubkey[:]}, against(pubkey, (*change).judgeCascade, func(ctx context.Context, x *change, m Moderator) error {
		return x.ban(ctx, m, pubkey, 0)
	})}
}

// UnbanPubKey lifts the ban of a key.
func UnbanPubKey(pubkey nostr.PubKey) Change {
	return Change{Action{Name: ActionUnban, PubKey: pubkey[:]}, func(ctx context.Context, x *change, _ Moderator) error {
		return x.unban(ctx, pubkey)
	}}
}

// AllowPubKey makes a key a member, and lifts a ban of it. Whoever is a member keeps the role. A key that stays banned with its
// owner is refused: to add it would look as if it could come in.
func AllowPubKey(pubkey nostr.PubKey) Change {
	return Change{Action{Name: ActionAllow, PubKey: pubkey[:]}, func(ctx context.Context, x *change, _ Moderator) error {
		if err := x.unban(ctx, pubkey); err != nil {
			return err
		}
		role, err := x.role(ctx, pubkey)
		if err != nil || role != "" {
			return err
		}
		switch banned, err := x.isBanned(ctx, pubkey); {
		case err != nil:
			return err
		case banned:
			return &RefusedError{policy.OwnerBanned}
		}
		return x.putMember(ctx, pubkey, policy.RoleMember)
	}}
}

// UnallowPubKey takes a key's membership, of channels as well.
func UnallowPubKey(pubkey nostr.PubKey) Change {
	return Change{Action{Name: ActionKick, PubKey: pubkey[:]}, against(pubkey, (*change).judge, func(ctx context.Context, x *change, _ Moderator) error {
		return x.expel(ctx, pubkey)
	})}
}

// BanEvent removes an event, whoever wrote it, and refuses it from then on. Reports of it are decided.
func BanEvent(id nostr.ID) Change {
	return Change{Action{Name: ActionDelete, Event: id[:]}, func(ctx context.Context, x *change, m Moderator) error {
		return x.banEvent(ctx, m, id)
	}}
}

func (x *change) banEvent(ctx context.Context, m Moderator, id nostr.ID) error {
	var found []stored
	b := &pgx.Batch{}
	b.Queue(sqlEvent, m.Community, id[:]).Query(collectStored(func(_ int, st stored) { found = append(found, st) }))
	b.Queue(sqlBanEvent, m.Community, id[:], m.Reason, m.Actor[:])
	b.Queue(sqlDecideReports, m.Community, id[:], m.Actor[:])
	if err := x.conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	if err := x.leaveThreads(ctx, x.conn, found, 1); err != nil {
		return err
	}
	b = &pgx.Batch{}
	queueErase(b, found, true)
	return x.conn.SendBatch(ctx, b).Close()
}

// AllowEvent decides the reports of an event, and lifts a ban of it.
func AllowEvent(id nostr.ID) Change {
	return Change{Action{Name: ActionAllowEvent, Event: id[:]}, func(ctx context.Context, x *change, m Moderator) error {
		b := &pgx.Batch{}
		b.Queue(sqlUnbanEvent, m.Community, id[:])
		b.Queue(sqlDecideReports, m.Community, id[:], m.Actor[:])
		return x.conn.SendBatch(ctx, b).Close()
	}}
}

// AllowKind adds a kind to the only ones that are taken.
func AllowKind(kind nostr.Kind) Change {
	return Change{
		Action{Name: ActionAllowKind, Subject: strconv.Itoa(int(kind))},
		exec(sqlAllowKind, func(m Moderator) []any { return []any{m.Community, int32(kind)} }),
	}
}

// DisallowKind takes a kind from the only ones that are taken; with none left, all are.
func DisallowKind(kind nostr.Kind) Change {
	return Change{
		Action{Name: ActionDisallowKind, Subject: strconv.Itoa(int(kind))},
		exec(sqlDisallowKind, func(m Moderator) []any { return []any{m.Community, int32(kind)} }),
	}
}

// BlockNetwork refuses clients of a network, which must be masked and not of IPv4 mapped into IPv6.
func BlockNetwork(network netip.Prefix) Change {
	return Change{Action{Name: ActionBlock, Subject: network.String()}, func(ctx context.Context, x *change, m Moderator) error {
		var others int
		if err := x.conn.QueryRow(ctx, sqlCountNetworks, m.Community, network).Scan(&others); err != nil {
			return err
		}
		if others >= MaxNetworks {
			return ErrTooManyNetworks
		}
		x.revoked = append(x.revoked, Revocation{Community: m.Community, Network: network})
		_, err := x.conn.Exec(ctx, sqlBlockNetwork, m.Community, network, m.Reason, m.Actor[:])
		return err
	}}
}

// UnblockNetwork takes clients of a network again.
func UnblockNetwork(network netip.Prefix) Change {
	return Change{
		Action{Name: ActionUnblock, Subject: network.String()},
		exec(sqlUnblockNetwork, func(m Moderator) []any { return []any{m.Community, network} }),
	}
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
	return Change{
		Action{Name: ActionDescribe},
		exec(sqlDescribe, func(m Moderator) []any { return []any{m.Community, d.Name, d.About, d.Icon, d.MinPow} }),
	}
}

// ConsumeToken remembers the id of an HTTP token until it expires, or returns ErrTokenUsed. Community 0 is that of operators'
// requests, which belong to none. It is not tried again: an insertion whose outcome is unknown must not make its own
// repetition look like a thief's.
func (s *Store) ConsumeToken(ctx context.Context, community int64, id nostr.ID, expires time.Time) error {
	query, args := sqlConsume, []any{community, id[:], expires}
	if community == 0 {
		query, args = sqlConsumeOperators, args[1:]
	}
	tag, err := s.pool.Exec(ctx, query, args...)
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
	return s.expireTokens(ctx, sqlForget, before, limit)
}

// ExpireOperatorTokens is ExpireTokens for those of operators.
func (s *Store) ExpireOperatorTokens(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.expireTokens(ctx, sqlForgetOperators, before, limit)
}

func (s *Store) expireTokens(ctx context.Context, query string, before time.Time, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, query, before, limit)
	if err != nil {
		return 0, fmt.Errorf("expire tokens: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
