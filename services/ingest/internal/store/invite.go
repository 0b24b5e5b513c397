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

// Statements of invites. Whoever runs them, but the sweep, holds the community exclusively.
const (
	// By invites_pkey.
	sqlCountInvites = `SELECT count(*) FROM ingest.invites WHERE community_id = $1`

	sqlInsertInvite = `
INSERT INTO ingest.invites (community_id, code_hash, role, created_by, expires_at, max_uses)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5), nullif($6, 0))
RETURNING expires_at`

	// By invites_pkey.
	sqlInvite = `
SELECT role, expires_at <= now(), coalesce(uses >= max_uses, false) FROM ingest.invites WHERE community_id = $1 AND code_hash = $2`

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

// ClaimInvite makes a key a member by an invite code and returns its role. The errors are ErrInviteInvalid,
// ErrInviteExpired, ErrInviteUsedUp, ErrBanned, and ErrAlreadyMember with the role that the member has.
func (s *Store) ClaimInvite(ctx context.Context, community int64, pubkey nostr.PubKey, code string) (policy.Role, error) {
	var role policy.Role
	_, err := s.changeCommunity(ctx, community, func(x *change) (err error) {
		banned, err := x.isBanned(ctx, pubkey)
		switch {
		case err != nil:
			return err
		case banned:
			return ErrBanned
		}
		role, err = x.claimInvite(ctx, pubkey, code)
		return err
	})
	if err != nil {
		return role, fmt.Errorf("claim invite: %w", err)
	}
	return role, nil
}

// claimInvite is ClaimInvite for a key that is not banned.
func (x *change) claimInvite(ctx context.Context, pubkey nostr.PubKey, code string) (policy.Role, error) {
	role, err := x.role(ctx, pubkey)
	switch {
	case err != nil:
		return "", err
	case role != "":
		return role, ErrAlreadyMember
	}
	var expired, usedUp bool
	switch err := x.conn.QueryRow(ctx, sqlInvite, x.community, hashCode(code)).Scan(&role, &expired, &usedUp); {
	case errors.Is(err, pgx.ErrNoRows):
		return "", ErrInviteInvalid
	case err != nil:
		return "", fmt.Errorf("look up invite: %w", err)
	case expired:
		return "", ErrInviteExpired
	case usedUp:
		return "", ErrInviteUsedUp
	}
	if _, err := x.conn.Exec(ctx, sqlUseInvite, x.community, hashCode(code)); err != nil {
		return "", fmt.Errorf("use invite: %w", err)
	}
	return role, x.putMember(ctx, pubkey, role)
}

// ForgetInvites forgets up to limit invites that had expired before a moment, and returns how many.
func (s *Store) ForgetInvites(ctx context.Context, before time.Time, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, sqlForgetInvites, before, limit)
	if err != nil {
		return 0, fmt.Errorf("forget invites: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
