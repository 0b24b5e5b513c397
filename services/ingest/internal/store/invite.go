package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements of invites. Whoever changes something, but the sweep, holds the community exclusively.
const (
	// By invites_pkey.
	sqlCountInvites = `SELECT count(*) FROM ingest.invites WHERE community_id = $1`

	sqlInsertInvite = `
INSERT INTO ingest.invites (community_id, code_hash, role, created_by, expires_at, max_uses)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5), nullif($6, 0))
RETURNING expires_at`

	// By invites_pkey, community_members_pkey, agents_pkey and banned_pubkeys_pkey: one row, also where there is no such code. A code is
	// worth what its maker may do now.
	sqlClaim = `
SELECT EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = $1 AND b.pubkey = $2),
    coalesce((SELECT m.role FROM ingest.community_members m WHERE m.community_id = $1 AND m.pubkey = $2), ''),
    coalesce(i.role, ''), coalesce(i.expires_at <= now(), false), coalesce(i.uses >= i.max_uses, false)
FROM (SELECT) AS one
LEFT JOIN ingest.invites i ON i.community_id = $1 AND i.code_hash = $3
    AND EXISTS (SELECT FROM ingest.community_members c
        WHERE c.community_id = $1 AND c.pubkey = i.created_by AND c.role IN ('owner', 'admin'))
    AND NOT EXISTS (SELECT FROM ingest.barred b WHERE b.community_id = $1 AND b.pubkey = i.created_by OFFSET 0)`

	// By invites_pkey: at most MaxInvites are read.
	sqlForgetInvitesOf = `DELETE FROM ingest.invites WHERE community_id = $1 AND created_by = $2`

	// By invites_pkey.
	sqlUseInvite = `UPDATE ingest.invites SET uses = uses + 1 WHERE community_id = $1 AND code_hash = $2`

	// By invites_expiry and invites_pkey.
	sqlForgetInvites = `
DELETE FROM ingest.invites i
USING (
    SELECT community_id, code_hash FROM ingest.invites
    WHERE expires_at < $1 ORDER BY expires_at LIMIT $2
    FOR UPDATE SKIP LOCKED) AS q
WHERE i.community_id = q.community_id AND i.code_hash = q.code_hash`
)

// MaxInvites is how many invites of a community may be open, those that have expired lately included.
const MaxInvites = 1000

// What is wrong with a claim, or with a wish for an invite.
var (
	// ErrInviteInvalid says that the community has no such code.
	ErrInviteInvalid = errors.New("no such invite")
	// ErrInviteExpired says that the code has expired.
	ErrInviteExpired = errors.New("invite is expired")
	// ErrInviteUsedUp says that as many have joined with the code as may.
	ErrInviteUsedUp = errors.New("invite is used up")
	// ErrAlreadyMember says that the key is a member without the code.
	ErrAlreadyMember = errors.New("key is a member already")
	// ErrPolicyRequired says that the code is good, and the policy was not accepted that has to be.
	ErrPolicyRequired = errors.New("the join policy has to be accepted")
	// ErrTooManyInvites says that MaxInvites are open.
	ErrTooManyInvites = errors.New("too many open invites")
	// ErrBanned says that the key is banned from the community.
	ErrBanned = errors.New("key is banned")
)

// Invite is an invite code that was just made.
type Invite struct {
	// Code is what the invited have to show. It is not kept, only its hash.
	Code string
	// ExpiresAt is when it can no longer be used.
	ExpiresAt time.Time
	// Event is the code as an event that the relay has signed (kind 28935), nil without a key. It is not stored.
	Event *nostr.Event
}

// codePrefix tells codes that are looked up from those of other relays of this family that carry their own proof.
const codePrefix = "v2."

func hashCode(code string) []byte {
	sum := sha256.Sum256([]byte(code))
	return sum[:]
}

// MintInvite makes an invite code if the actor is an owner or admin, with which up to uses keys may become members,
// any number if uses is 0. The errors are ErrNotModerator and ErrTooManyInvites.
func (s *Store) MintInvite(ctx context.Context, community int64, actor nostr.PubKey, life time.Duration, uses int) (Invite, error) {
	var random [18]byte
	_, _ = rand.Read(random[:]) // never fails: it ends the process instead (Go 1.24)
	invite := Invite{Code: codePrefix + base64.RawURLEncoding.EncodeToString(random[:])}
	if err := s.expectModerator(ctx, community, actor); err != nil {
		return Invite{}, fmt.Errorf("mint invite: %w", err)
	}
	_, err := s.changeCommunity(ctx, community, func(x *change) error {
		if err := x.requireModerator(ctx, actor); err != nil {
			return err
		}
		var open int
		if err := x.conn.QueryRow(ctx, sqlCountInvites, community).Scan(&open); err != nil {
			return err
		}
		if open >= MaxInvites {
			return ErrTooManyInvites
		}
		if err := x.conn.QueryRow(ctx, sqlInsertInvite, community, hashCode(invite.Code), policy.RoleMember, actor[:],
			life.Seconds(), uses).Scan(&invite.ExpiresAt); err != nil {
			return err
		}
		if x.key == nil {
			return nil
		}
		invite.Event = &nostr.Event{
			Kind: nostr.KindRelayInvite, CreatedAt: x.begunAt / 1e6, Tags: nostr.Tags{protected, {"claim", invite.Code}},
		}
		return invite.Event.Sign(x.key)
	})
	if err != nil {
		return Invite{}, fmt.Errorf("mint invite: %w", err)
	}
	return invite, nil
}

// Claim is what somebody shows to become a member.
type Claim struct {
	// Community is the tenant, PubKey who would join it.
	Community int64
	PubKey    nostr.PubKey
	// Code is the invite code, Receipt that of the join policy, empty without one.
	Code, Receipt string
}

// ClaimInvite makes a key a member by an invite code and returns its role. The errors are ErrInviteInvalid,
// ErrInviteExpired, ErrInviteUsedUp, ErrPolicyRequired, ErrBanned, and ErrAlreadyMember with the role that the member has.
//
// Anybody may ask, so the community waits for those only whose code is good: the claim is judged without any lock, and if
// it would be granted once more under it.
func (s *Store) ClaimInvite(ctx context.Context, c Claim) (policy.Role, error) {
	role, err := s.judgeClaim(ctx, c)
	if err == nil {
		_, err = s.changeCommunity(ctx, c.Community, func(x *change) (err error) {
			role, err = x.claimInvite(ctx, c)
			return err
		})
	}
	if err != nil {
		return role, fmt.Errorf("claim invite: %w", err)
	}
	return role, nil
}

// judgeClaim is the function judgeClaim on a connection of those that changes may use.
func (s *Store) judgeClaim(ctx context.Context, c Claim) (policy.Role, error) {
	if err := s.changes.Acquire(ctx, 1); err != nil {
		return "", fmt.Errorf("wait for other changes: %w", err)
	}
	defer s.changes.Release(1)
	return judgeClaim(ctx, s.pool, s.joins, c)
}

// querier asks for one row: a pool or a connection.
type querier interface {
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

// judgeClaim returns the role that a key would get by a code. The errors are those of ClaimInvite.
func judgeClaim(ctx context.Context, q querier, asks *policy.JoinPolicy, c Claim) (policy.Role, error) {
	var banned, expired, usedUp bool
	var has, gets policy.Role
	err := q.QueryRow(ctx, sqlClaim, c.Community, c.PubKey[:], hashCode(c.Code)).Scan(&banned, &has, &gets, &expired, &usedUp)
	switch {
	case err != nil:
		return "", fmt.Errorf("look up invite: %w", err)
	case banned:
		return "", ErrBanned
	case has != "":
		return has, ErrAlreadyMember
	case gets == "":
		return "", ErrInviteInvalid
	case expired:
		return "", ErrInviteExpired
	case usedUp:
		return "", ErrInviteUsedUp
	case asks != nil && !asks.Holds(c.Community, c.Code, c.Receipt):
		return "", ErrPolicyRequired
	}
	return gets, nil
}

// claimInvite is ClaimInvite under the lock.
func (x *change) claimInvite(ctx context.Context, c Claim) (policy.Role, error) {
	role, err := judgeClaim(ctx, x.conn, x.joins, c)
	if err != nil {
		return role, err
	}
	if _, err := x.conn.Exec(ctx, sqlUseInvite, x.community, hashCode(c.Code)); err != nil {
		return "", fmt.Errorf("use invite: %w", err)
	}
	return role, x.putMember(ctx, c.PubKey, role)
}

// forgetInvitesOf deletes the codes of a key that may no longer invite: they must not come to life again with its rights.
func (x *change) forgetInvitesOf(ctx context.Context, pubkey nostr.PubKey) error {
	if _, err := x.conn.Exec(ctx, sqlForgetInvitesOf, x.community, pubkey[:]); err != nil {
		return fmt.Errorf("forget invites of a key: %w", err)
	}
	return nil
}

// doom marks the commands that will be refused, as far as that can be told without a lock: they need not have the community wait for
// them.
func (t *transaction) doom(ctx context.Context, conn *pgx.Conn) error {
	for _, e := range t.entries {
		if e.Command == nil {
			continue
		}
		join, ok := e.Command.Asks.(*policy.JoinRelay)
		if !ok {
			var err error
			if e.doomed, err = (&change{conn: conn, community: e.Community}).isHopeless(ctx, e); err != nil {
				return err
			}
			continue
		}
		_, err := judgeClaim(ctx, conn, t.joins, claimOf(e, join))
		if e.doomed = err != nil && refusal(err) != (policy.Verdict{}); err != nil && !e.doomed {
			return err
		}
	}
	return nil
}

// refusal answers a request to join that judgeClaim has refused; the zero Verdict says that it is no refusal but a
// failure.
func refusal(err error) policy.Verdict {
	switch {
	case errors.Is(err, ErrInviteInvalid):
		return policy.InviteInvalid
	case errors.Is(err, ErrInviteExpired):
		return policy.InviteExpired
	case errors.Is(err, ErrInviteUsedUp):
		return policy.InviteUsedUp
	case errors.Is(err, ErrPolicyRequired):
		return policy.JoinPolicyRequired
	case errors.Is(err, ErrAlreadyMember):
		return policy.AlreadyMember
	case errors.Is(err, ErrBanned):
		return policy.Banned
	}
	return policy.Verdict{}
}

func claimOf(e *entry, j *policy.JoinRelay) Claim {
	return Claim{Community: e.Community, PubKey: e.Event.PubKey, Code: j.Claim, Receipt: j.Receipt}
}

// joinRelay makes the author of a request a member by the code that it names.
func (x *change) joinRelay(ctx context.Context, e *entry, j *policy.JoinRelay) (policy.Verdict, error) {
	var err error
	if e.doomed {
		// The community is not held exclusively, so nothing may change even if the code has become good meanwhile.
		if _, err = judgeClaim(ctx, x.conn, x.joins, claimOf(e, j)); err == nil {
			err = ErrInviteInvalid
		}
	} else {
		_, err = x.claimInvite(ctx, claimOf(e, j))
	}
	if v := refusal(err); !v.Accepted() {
		return v, nil
	}
	return policy.Welcome, err
}

// rejoin answers requests to join that were carried out before by what their authors are now: gateways take whoever is
// told that it has joined for a member.
func (t *transaction) rejoin(ctx context.Context, conn *pgx.Conn) error {
	for _, e := range t.entries {
		if e.verdict != policy.Processed || e.Event.Kind != nostr.KindRelayJoinRequest {
			continue
		}
		x := &change{transaction: t, conn: conn, community: e.Community}
		role, err := x.role(ctx, e.Event.PubKey)
		switch {
		case err != nil:
			return err
		case role == "":
			e.verdict = policy.NotMember
		default:
			e.verdict = policy.AlreadyMember
		}
	}
	return nil
}

// ForgetInvites forgets up to limit invites that had expired before a moment, and returns how many.
func (s *Store) ForgetInvites(ctx context.Context, before time.Time, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, sqlForgetInvites, before, limit)
	if err != nil {
		return 0, fmt.Errorf("forget invites: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
