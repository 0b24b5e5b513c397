package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements of the roster. Whoever runs them holds the community exclusively.
const (
	// By community_members_pkey.
	sqlRole = `SELECT role FROM ingest.community_members WHERE community_id = $1 AND pubkey = $2`

	// By community_members_pkey. No row comes back when nothing changes; whether it was inserted, xmax says.
	sqlPutMember = `
INSERT INTO ingest.community_members (community_id, pubkey, role) VALUES ($1, $2, $3)
ON CONFLICT (community_id, pubkey) DO UPDATE SET role = excluded.role
WHERE community_members.role <> excluded.role
RETURNING xmax = 0`

	// By community_members_pkey.
	sqlRemoveMember = `DELETE FROM ingest.community_members WHERE community_id = $1 AND pubkey = $2`

	// By agents_pkey, communities_pkey, community_members_pkey and banned_pubkeys_pkey: the owner through whom a key is admitted,
	// asked when it is no member.
	sqlAdmittedBy = `
SELECT a.owner FROM ingest.agents a
WHERE a.community_id = $1 AND a.pubkey = $2
    AND EXISTS (SELECT FROM ingest.admitted m WHERE m.community_id = $1 AND m.pubkey = $2 OFFSET 0)
    AND NOT EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = $1 AND b.pubkey = $2 OFFSET 0)`

	// By community_members_pkey: those who decide first, then by when they came.
	sqlRoster = `
SELECT pubkey, role FROM ingest.community_members WHERE community_id = $1
ORDER BY CASE role WHEN 'owner' THEN 0 WHEN 'admin' THEN 1 ELSE 2 END, added_at, pubkey
LIMIT $2`

	// By community_members_pkey.
	sqlHasModerator = `
SELECT EXISTS (SELECT FROM ingest.community_members WHERE community_id = $1 AND role IN ('owner', 'admin'))`

	// By communities_pkey.
	sqlSetIcon = `UPDATE ingest.communities SET icon = $2 WHERE id = $1`
)

// maxListed is how many members a signed list names: each takes at most 90 bytes of policy.FollowUpBytes. The list
// need not be complete (NIP-43).
const maxListed = 2500

// roles are what kind 33534 says of each role.
var roles = []struct {
	role               policy.Role
	label, description string
}{
	{policy.RoleOwner, "Owner", "Runs the community and names its admins."},
	{policy.RoleAdmin, "Admin", "Invites and removes members, and moderates."},
	{policy.RoleMember, "Member", "Reads and writes."},
}

// role returns a key's role in the community, empty for who is no member.
func (x *change) role(ctx context.Context, pubkey nostr.PubKey) (policy.Role, error) {
	var role policy.Role
	err := x.conn.QueryRow(ctx, sqlRole, x.community, pubkey[:]).Scan(&role)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read role: %w", err)
	}
	return role, nil
}

// putMember makes a key a member or changes its role, and has the relay say so.
func (x *change) putMember(ctx context.Context, pubkey nostr.PubKey, role policy.Role) error {
	changed, err := x.writeMember(ctx, pubkey, role)
	if err != nil || !changed {
		return err
	}
	return x.raise(ctx)
}

// writeMember is putMember without a new access version, for a community that nobody knows yet. It reports whether
// anything changed.
func (x *change) writeMember(ctx context.Context, pubkey nostr.PubKey, role policy.Role) (bool, error) {
	var added bool
	err := x.conn.QueryRow(ctx, sqlPutMember, x.community, pubkey[:], role).Scan(&added)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("put member: %w", err)
	}
	if added {
		x.draft(draft{kind: nostr.KindRelayMemberAdded, tags: nostr.Tags{protected, {"p", pubkey.String()}}})
	}
	x.roster = x.key != nil
	if !added && !role.Moderates() {
		return true, x.forgetInvitesOf(ctx, pubkey)
	}
	return true, nil
}

// dropMember removes a key from the community and from its channels, its agents from theirs, and has the relay say so.
// What commits later carries a newer access version, so that the keys get nothing of it. The invites that they made are no
// longer good.
func (x *change) dropMember(ctx context.Context, pubkey nostr.PubKey) error {
	if err := x.forgetInvitesOf(ctx, pubkey); err != nil {
		return err
	}
	agents, dependent, err := x.agentsOf(ctx, pubkey)
	if err != nil {
		return err
	}
	keys := slices.Concat(dependent, []nostr.PubKey{pubkey})
	for _, key := range keys {
		if err := x.forgetChannelInvitesOf(ctx, key); err != nil {
			return err
		}
	}
	inChannels, err := x.leaveChannels(ctx, keys)
	if err != nil {
		return err
	}
	for _, agent := range agents {
		x.revoke(agent)
	}
	tag, err := x.conn.Exec(ctx, sqlRemoveMember, x.community, pubkey[:])
	if err != nil {
		return fmt.Errorf("remove member: %w", err)
	}
	member := tag.RowsAffected() > 0
	if member {
		x.draft(draft{kind: nostr.KindRelayMemberRemoved, tags: nostr.Tags{protected, {"p", pubkey.String()}}})
		x.roster = x.key != nil
	}
	if !member && !inChannels {
		return nil
	}
	return x.raise(ctx)
}

func (x *change) addMember(ctx context.Context, e *entry, a *policy.AddMember) (policy.Verdict, error) {
	actor, err := x.role(ctx, e.Event.PubKey)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := a.Judge(actor); !v.Accepted() {
		return v, nil
	}
	done := Action{Name: ActionAllow, PubKey: a.Target[:], Subject: string(a.Role)}
	switch target, err := x.role(ctx, a.Target); {
	case err != nil:
		return policy.Verdict{}, err
	case target != "":
		done.Subject = string(target) // which it keeps
		return policy.Verdict{}, x.record(ctx, commanded(e, ""), done)
	}
	if banned, err := x.isBanned(ctx, a.Target); err != nil || banned {
		return policy.TargetBanned, err
	}
	if err := x.putMember(ctx, a.Target, a.Role); err != nil {
		return policy.Verdict{}, err
	}
	return policy.Verdict{}, x.record(ctx, commanded(e, ""), done)
}

func (x *change) removeMember(ctx context.Context, e *entry, r *policy.RemoveMember) (policy.Verdict, error) {
	actor, target, err := x.rolesOf(ctx, e.Event.PubKey, r.Target)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := r.Judge(e.Event.PubKey, actor, target); !v.Accepted() {
		return v, nil
	}
	v, err := x.expelSaying(ctx, r.Target)
	if err != nil {
		return policy.Verdict{}, err
	}
	return v, x.record(ctx, commanded(e, ""), Action{Name: ActionKick, PubKey: r.Target[:]})
}

// expelSaying is expel with the answer to who has removed a key by a command.
func (x *change) expelSaying(ctx context.Context, pubkey nostr.PubKey) (policy.Verdict, error) {
	if err := x.expel(ctx, pubkey); err != nil || x.admittedBy == nil {
		return policy.Verdict{}, err
	}
	return policy.AdmittedByOwner(*x.admittedBy), nil
}

// noteAdmitted finds out for who has removed a key, and so may see who is a member, whether it is an agent that its owner
// admits all the same. An open community admits everybody, and nothing is said of it.
func (x *change) noteAdmitted(ctx context.Context, removed nostr.PubKey) error {
	x.admittedBy = nil
	if !x.state.Communities[x.community].Closed {
		return nil
	}
	var owner []byte
	switch err := x.conn.QueryRow(ctx, sqlAdmittedBy, x.community, removed[:]).Scan(&owner); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("look whether a removed key is admitted: %w", err)
	}
	x.admittedBy = new(nostr.PubKey(owner))
	return nil
}

func (x *change) changeRole(ctx context.Context, e *entry, r *policy.ChangeRole) (policy.Verdict, error) {
	actor, target, err := x.rolesOf(ctx, e.Event.PubKey, r.Target)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := r.Judge(e.Event.PubKey, actor, target); !v.Accepted() {
		return v, nil
	}
	if r.Role.Moderates() { // a member can be banned with its owner, and a ban that reaches a moderator would be refused
		if banned, err := x.isBanned(ctx, r.Target); err != nil || banned {
			return policy.TargetBanned, err
		}
	}
	if err := x.putMember(ctx, r.Target, r.Role); err != nil {
		return policy.Verdict{}, err
	}
	return policy.Verdict{}, x.record(ctx, commanded(e, ""), Action{Name: ActionRole, PubKey: r.Target[:], Subject: string(r.Role)})
}

func (x *change) rolesOf(ctx context.Context, a, b nostr.PubKey) (roleA, roleB policy.Role, err error) {
	if roleA, err = x.role(ctx, a); err != nil {
		return "", "", err
	}
	roleB, err = x.role(ctx, b)
	return roleA, roleB, err
}

func (x *change) judgeProfile(ctx context.Context, e *entry, p *policy.SetProfile) (policy.Verdict, error) {
	actor, err := x.role(ctx, e.Event.PubKey)
	if err != nil {
		return policy.Verdict{}, err
	}
	var looksAfter bool
	if err := x.conn.QueryRow(ctx, sqlHasModerator, x.community).Scan(&looksAfter); err != nil {
		return policy.Verdict{}, fmt.Errorf("look for a moderator: %w", err)
	}
	return p.Judge(actor, looksAfter), nil
}

func (x *change) setProfile(ctx context.Context, e *entry, p *policy.SetProfile) (policy.Verdict, error) {
	v, err := x.judgeProfile(ctx, e, p)
	if err != nil || !v.Accepted() || p.Icon == nil {
		return v, err
	}
	if _, err := x.conn.Exec(ctx, sqlSetIcon, x.community, *p.Icon); err != nil {
		return policy.Verdict{}, fmt.Errorf("set icon: %w", err)
	}
	actor, err := x.role(ctx, e.Event.PubKey)
	if err != nil || !actor.Moderates() { // where nobody looks after the community, anybody may
		return policy.Verdict{}, err
	}
	return policy.Verdict{}, x.record(ctx, commanded(e, ""), Action{Name: ActionDescribe})
}

func (x *change) leaveRelay(ctx context.Context, e *entry, l *policy.LeaveRelay) (policy.Verdict, error) {
	actor, err := x.role(ctx, e.Event.PubKey)
	if err != nil {
		return policy.Verdict{}, err
	}
	if v := l.Judge(actor); !v.Accepted() {
		return v, nil
	}
	return policy.Left, x.dropMember(ctx, e.Event.PubKey)
}
