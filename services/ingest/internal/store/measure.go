package store

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements of measures against keys. Whoever runs them, but the sweep, holds the community exclusively.
const (
	// By banned_pubkeys_pkey and agents_pkey.
	sqlIsBanned = `SELECT EXISTS (SELECT FROM ingest.barred WHERE community_id = $1 AND pubkey = $2)`

	// Conflicts on banned_pubkeys_pkey: the last decision stands.
	sqlBanPubKey = `
INSERT INTO ingest.banned_pubkeys (community_id, pubkey, reason, decided_by, expires_at)
VALUES ($1, $2, $3, $4, to_timestamp(nullif($5::bigint, 0)))
ON CONFLICT (community_id, pubkey) DO UPDATE
SET reason = excluded.reason, decided_by = excluded.decided_by, decided_at = excluded.decided_at, expires_at = excluded.expires_at`

	// By banned_pubkeys_pkey.
	sqlUnbanPubKey = `DELETE FROM ingest.banned_pubkeys WHERE community_id = $1 AND pubkey = $2`

	// Conflicts on timeouts_pkey: the last decision stands.
	sqlTimeOut = `
INSERT INTO ingest.timeouts (community_id, pubkey, reason, decided_by, expires_at) VALUES ($1, $2, $3, $4, to_timestamp($5::bigint))
ON CONFLICT (community_id, pubkey) DO UPDATE
SET reason = excluded.reason, decided_by = excluded.decided_by, decided_at = excluded.decided_at, expires_at = excluded.expires_at`

	// By timeouts_pkey.
	sqlUntimeout = `DELETE FROM ingest.timeouts WHERE community_id = $1 AND pubkey = $2`

	// By moderation_actions_pkey.
	sqlRecord = `
INSERT INTO ingest.moderation_actions (community_id, action, actor, command_id, pubkey, event_id, report_id, subject, reason, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, to_timestamp(nullif($10::bigint, 0)))`

	// By moderation_actions_pkey: of each community the oldest entries that are old, except the newest $3 of all. They are
	// looked at in the order in which they were written, which is about that of their time.
	sqlForgetActions = `
DELETE FROM ingest.moderation_actions a
USING (
    SELECT old.community_id, old.id
    FROM ingest.communities c
    CROSS JOIN LATERAL (
        SELECT m.id FROM ingest.moderation_actions m WHERE m.community_id = c.id ORDER BY m.id DESC OFFSET $3 LIMIT 1
    ) AS newest
    CROSS JOIN LATERAL (
        SELECT m.community_id, m.id, m.decided_at FROM ingest.moderation_actions m
        WHERE m.community_id = c.id AND m.id <= newest.id ORDER BY m.id LIMIT $2
    ) AS old
    WHERE old.decided_at < $1
    LIMIT $2
) AS q
WHERE a.community_id = q.community_id AND a.id = q.id`

	// By banned_pubkeys_expiry.
	sqlEndedBans = `
SELECT community_id FROM ingest.banned_pubkeys WHERE expires_at <= now() GROUP BY community_id ORDER BY min(expires_at) LIMIT $1`

	// By banned_pubkeys_pkey.
	sqlEndBans = `DELETE FROM ingest.banned_pubkeys WHERE community_id = $1 AND expires_at <= now()`

	// By timeouts_expiry and timeouts_pkey.
	sqlForgetTimeouts = `
DELETE FROM ingest.timeouts t
USING (
    SELECT community_id, pubkey FROM ingest.timeouts
    WHERE expires_at < $1 ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED) AS q
WHERE t.community_id = q.community_id AND t.pubkey = q.pubkey`
)

// Action is an entry of the log of moderation.
type Action struct {
	// Name says what was done, in the words of nips.md.
	Name string
	// PubKey, Event and Report are what it was done to, nil if it is none of these.
	PubKey, Event, Report []byte
	// Subject is what else it was about: a kind, a network; may be empty.
	Subject string
	// Until is when it ends by itself, in Unix seconds; 0 is never.
	Until int64
}

// Revocation says that a committed change took somebody's access.
type Revocation struct {
	// Community is the tenant.
	Community int64
	// PubKey is the key that may no longer use it, nil if Network is meant.
	PubKey *nostr.PubKey
	// Network is the network whose clients are refused from now on.
	Network netip.Prefix
	// Whole is set when it was taken from whoever it may be: the community was archived or closed, refuses agents, or has
	// lost a host.
	Whole bool
	// ACLVersion is the community's access version from which on this holds.
	ACLVersion uint64
}

// record writes the log. It is never cut: it has as many rows as moderators have made decisions.
func (x *change) record(ctx context.Context, m Moderator, a Action) error {
	if _, err := x.conn.Exec(ctx, sqlRecord, x.community, a.Name, m.Actor[:], m.Command, a.PubKey, a.Event, a.Report,
		a.Subject, m.Reason, a.Until); err != nil {
		return fmt.Errorf("log moderation: %w", err)
	}
	return nil
}

// judge decides whether the actor may remove, ban or time out a key.
func (x *change) judge(ctx context.Context, m Moderator, target nostr.PubKey) (policy.Verdict, error) {
	actor, role, err := x.rolesOf(ctx, m.Actor, target)
	return policy.JudgeMeasure(actor, role), err
}

// judgeCascade is judge for what covers the agents of a key as well, a ban or a timeout: it must not reach whom the actor may not
// act against.
func (x *change) judgeCascade(ctx context.Context, m Moderator, target nostr.PubKey) (policy.Verdict, error) {
	v, err := x.judge(ctx, m, target)
	if err != nil || !v.Accepted() {
		return v, err
	}
	var agent policy.Role
	switch err := x.conn.QueryRow(ctx, sqlAgentRole, x.community, target[:]).Scan(&agent); {
	case errors.Is(err, pgx.ErrNoRows):
		return v, nil
	case err != nil:
		return v, fmt.Errorf("read roles of agents: %w", err)
	}
	actor, err := x.role(ctx, m.Actor)
	return policy.JudgeMeasure(actor, agent), err
}

// revoke has gateways look at the sockets of a key once the change is committed.
func (x *change) revoke(pubkey nostr.PubKey) {
	x.revoked = append(x.revoked, Revocation{Community: x.community, PubKey: &pubkey})
}

// revokeAll has gateways look at all sockets of the community once the change is committed.
func (x *change) revokeAll() {
	x.revoked = append(x.revoked, Revocation{Community: x.community, Whole: true})
}

// expel is dropMember by somebody else: the key's sockets are closed if it needs to be a member, and whether its owner admits it
// all the same is in admittedBy.
func (x *change) expel(ctx context.Context, pubkey nostr.PubKey) error {
	if err := x.dropMember(ctx, pubkey); err != nil {
		return err
	}
	if x.state.Communities[x.community].Closed {
		x.revoke(pubkey)
	}
	return x.noteAdmitted(ctx, pubkey)
}

func (x *change) isBanned(ctx context.Context, pubkey nostr.PubKey) (banned bool, err error) {
	if err := x.conn.QueryRow(ctx, sqlIsBanned, x.community, pubkey[:]).Scan(&banned); err != nil {
		return false, fmt.Errorf("look for ban: %w", err)
	}
	return banned, nil
}

// ban takes a key's membership, of channels as well, and refuses it until a moment in Unix seconds, 0 for ever.
func (x *change) ban(ctx context.Context, m Moderator, pubkey nostr.PubKey, until int64) error {
	if err := x.dropMember(ctx, pubkey); err != nil {
		return err
	}
	before, err := x.isBanned(ctx, pubkey)
	if err != nil {
		return err
	}
	if _, err := x.conn.Exec(ctx, sqlBanPubKey, x.community, pubkey[:], m.Reason, m.Actor[:], until); err != nil {
		return fmt.Errorf("ban: %w", err)
	}
	x.revoke(pubkey)
	if before {
		return nil
	}
	return x.raise(ctx)
}

func (x *change) unban(ctx context.Context, pubkey nostr.PubKey) error {
	tag, err := x.conn.Exec(ctx, sqlUnbanPubKey, x.community, pubkey[:])
	if err != nil {
		return fmt.Errorf("lift ban: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	return x.raise(ctx)
}

func (x *change) timeOut(ctx context.Context, m Moderator, pubkey nostr.PubKey, until int64) error {
	if _, err := x.conn.Exec(ctx, sqlTimeOut, x.community, pubkey[:], m.Reason, m.Actor[:], until); err != nil {
		return fmt.Errorf("time out: %w", err)
	}
	return nil
}

// commanded is the moderator who sent a command.
func commanded(e *entry, reason string) Moderator {
	return Moderator{Community: e.Community, Actor: e.Event.PubKey, Reason: reason, Command: e.Event.ID[:]}
}

func (x *change) banByCommand(ctx context.Context, e *entry, b *policy.Ban) (policy.Verdict, error) {
	m := commanded(e, b.Reason)
	if v, err := x.judgeCascade(ctx, m, b.Target); err != nil || !v.Accepted() {
		return v, err
	}
	if err := x.ban(ctx, m, b.Target, b.Until); err != nil {
		return policy.Verdict{}, err
	}
	return policy.Verdict{}, x.record(ctx, m, Action{Name: ActionBan, PubKey: b.Target[:], Until: b.Until})
}

func (x *change) unbanByCommand(ctx context.Context, e *entry, u *policy.Unban) (policy.Verdict, error) {
	m := commanded(e, u.Reason)
	if v, err := x.judge(ctx, m, u.Target); err != nil || !v.Accepted() {
		return v, err
	}
	if err := x.unban(ctx, u.Target); err != nil {
		return policy.Verdict{}, err
	}
	return policy.Verdict{}, x.record(ctx, m, Action{Name: ActionUnban, PubKey: u.Target[:]})
}

func (x *change) timeOutByCommand(ctx context.Context, e *entry, t *policy.Timeout) (policy.Verdict, error) {
	m := commanded(e, t.Reason)
	if v, err := x.judgeCascade(ctx, m, t.Target); err != nil || !v.Accepted() {
		return v, err
	}
	if err := x.timeOut(ctx, m, t.Target, t.Until); err != nil {
		return policy.Verdict{}, err
	}
	return policy.Verdict{}, x.record(ctx, m, Action{Name: ActionTimeout, PubKey: t.Target[:], Until: t.Until})
}

// untimeoutByCommand is a right of every moderator, also over its own timeout: an admin may have been silenced before
// it became one.
func (x *change) untimeoutByCommand(ctx context.Context, e *entry, u *policy.Untimeout) (policy.Verdict, error) {
	m := commanded(e, u.Reason)
	actor, err := x.role(ctx, m.Actor)
	switch {
	case err != nil:
		return policy.Verdict{}, err
	case !actor.Moderates():
		return policy.ModeratorsOnly, nil
	}
	if _, err := x.conn.Exec(ctx, sqlUntimeout, x.community, u.Target[:]); err != nil {
		return policy.Verdict{}, fmt.Errorf("lift timeout: %w", err)
	}
	return policy.Verdict{}, x.record(ctx, m, Action{Name: ActionUntimeout, PubKey: u.Target[:]})
}

// EndBans takes away the bans that have ended, in up to limit communities, and gives these a new access version: who
// has kept a decision asks again. It returns how many communities it looked at.
func (s *Store) EndBans(ctx context.Context, limit int) (int, error) {
	rows, err := s.pool.Query(ctx, sqlEndedBans, limit)
	if err != nil {
		return 0, fmt.Errorf("find ended bans: %w", err)
	}
	communities, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("find ended bans: %w", err)
	}
	for _, community := range communities {
		if _, err := s.administer(ctx, community, lockSet{}, func(x *change) error {
			tag, err := x.conn.Exec(ctx, sqlEndBans, community)
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			return x.raise(ctx)
		}); err != nil && !errors.Is(err, ErrNoCommunity) { // which is being deleted, bans and all
			return 0, fmt.Errorf("end bans: %w", err)
		}
	}
	return len(communities), nil
}

// ForgetTimeouts forgets up to limit timeouts that had ended before a moment, and returns how many.
func (s *Store) ForgetTimeouts(ctx context.Context, before time.Time, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, sqlForgetTimeouts, before, limit)
	if err != nil {
		return 0, fmt.Errorf("forget timeouts: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// ForgetActions removes up to limit entries of the log of moderation from before a moment, and returns how many. The
// entries that moderators may still see in their list stay.
func (s *Store) ForgetActions(ctx context.Context, before time.Time, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, sqlForgetActions, before, limit, tenant.MaxModerationList)
	if err != nil {
		return 0, fmt.Errorf("forget moderation: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
