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

// Statements about communities as a whole.
const (
	// By communities_pkey, community_hosts_community and community_members_pkey.
	sqlCommunity = `
SELECT c.id, c.uuid::text, c.name, c.description, c.access, c.created_at, c.archived_at, c.deleting_at IS NOT NULL,
    ARRAY(SELECT h.host FROM ingest.community_hosts h WHERE h.community_id = c.id ORDER BY h.is_primary DESC, h.host),
    (SELECT m.pubkey FROM ingest.community_members m
        WHERE m.community_id = c.id AND m.role = 'owner' ORDER BY m.added_at, m.pubkey LIMIT 1)
FROM ingest.communities c WHERE c.id = $1`

	// By communities_uuid_key.
	sqlCommunityByUUID = `SELECT id FROM ingest.communities WHERE uuid = $1::uuid`

	// By community_members_owner and communities_pkey.
	sqlOwned = `
SELECT c.id, c.uuid::text, c.name, c.description, c.access, c.created_at, c.archived_at, false,
    ARRAY(SELECT h.host FROM ingest.community_hosts h WHERE h.community_id = c.id AND h.is_primary), m.pubkey
FROM ingest.community_members m
JOIN ingest.communities c ON c.id = m.community_id AND c.deleting_at IS NULL
WHERE m.pubkey = $1 AND m.role = 'owner'
ORDER BY c.id LIMIT $2`

	// By community_members_owner and communities_pkey.
	sqlCountOwned = `
SELECT count(*) FROM ingest.community_members m
JOIN ingest.communities c ON c.id = m.community_id AND c.deleting_at IS NULL
WHERE m.pubkey = $1 AND m.role = 'owner'`

	// By community_members_pkey.
	sqlFirstOwner = `
SELECT pubkey FROM ingest.community_members WHERE community_id = $1 AND role = 'owner' ORDER BY added_at, pubkey LIMIT 1`

	// By communities_pkey.
	sqlArchive = `
UPDATE ingest.communities SET archived_at = coalesce(archived_at, now()) WHERE id = $1 RETURNING archived_at`

	// By communities_pkey.
	sqlUnarchive = `UPDATE ingest.communities SET archived_at = NULL WHERE id = $1`
)

// MaxListedOwned is how many communities ListOwned returns.
const MaxListedOwned = 1000

var (
	// ErrNoOwner says that a community has no owner.
	ErrNoOwner = errors.New("the community has no owner")
	// ErrOwnerConflict says that somebody else owns a community than was expected.
	ErrOwnerConflict = errors.New("somebody else owns the community")
)

// TooManyError says that a key owns as many communities as it may.
type TooManyError struct {
	// Most is how many it may own.
	Most int
}

// Error says how many that are.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("the key owns %d communities, as many as it may", e.Most)
}

// Community is a community as operators see it.
type Community struct {
	// ID is its surrogate key, UUID its name for clients and operators.
	ID   int64
	UUID string
	// Name and Description are shown to clients, Access is AccessOpen or AccessClosed.
	Name, Description, Access string
	// Created is when it was created, Archived when it was archived, nil if it is not.
	Created  time.Time
	Archived *time.Time
	// Deleting is set when its rows are being removed.
	Deleting bool
	// Hosts are its hosts, the first it had before the others, which come by name; of those in a list the first one alone.
	Hosts []string
	// Owner is who has owned it longest, nil if nobody does.
	Owner *nostr.PubKey
}

// Host is the first host that the community had.
func (c *Community) Host() string { return firstOf(c.Hosts) }

func firstOf(hosts []string) string {
	if len(hosts) == 0 {
		return ""
	}
	return hosts[0]
}

// CommunityRef chooses a community, by a host (normalised) or by its UUID.
type CommunityRef struct{ Host, UUID string }

// Find returns the community that ref chooses, or ErrNoCommunity.
func (s *Store) Find(ctx context.Context, ref CommunityRef) (int64, error) {
	if ref.UUID == "" {
		return s.CommunityByHost(ctx, ref.Host)
	}
	var id int64
	err := s.retry(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sqlCommunityByUUID, ref.UUID).Scan(&id) })
	return id, noCommunity(err, "look up community")
}

// noCommunity gives the error of a query for one community its meaning.
func noCommunity(err error, what string) error {
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNoCommunity
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func scanCommunity(row pgx.CollectableRow) (c Community, err error) {
	var owner []byte
	err = row.Scan(&c.ID, &c.UUID, &c.Name, &c.Description, &c.Access, &c.Created, &c.Archived, &c.Deleting, &c.Hosts, &owner)
	if len(owner) == len(nostr.PubKey{}) {
		c.Owner = new(nostr.PubKey(owner))
	}
	return c, err
}

// community reads a community, or returns ErrNoCommunity.
func (s *Store) community(ctx context.Context, id int64) (c Community, err error) {
	err = s.retry(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, sqlCommunity, id)
		if err != nil {
			return err
		}
		c, err = pgx.CollectExactlyOneRow(rows, scanCommunity)
		return err
	})
	return c, noCommunity(err, "read community")
}

// owns reports whether a key owns a community.
func (s *Store) owns(ctx context.Context, id int64, pubkey nostr.PubKey) (owns bool, err error) {
	err = s.retry(ctx, func(conn *pgx.Conn) error {
		role := policy.Role("")
		err := conn.QueryRow(ctx, sqlRole, id, pubkey[:]).Scan(&role)
		owns = role == policy.RoleOwner
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("read role: %w", err)
	}
	return owns, nil
}

// ListOwned returns the communities that a key owns, the oldest MaxListedOwned, without those that are being deleted.
func (s *Store) ListOwned(ctx context.Context, owner nostr.PubKey) (list []Community, err error) {
	err = s.retry(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, sqlOwned, owner[:], MaxListedOwned)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanCommunity)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list communities of an owner: %w", err)
	}
	return list, nil
}

// requireRoom returns a *TooManyError if a key, whose lock is held, can own no other community.
func (s *Store) requireRoom(ctx context.Context, x *change, owner nostr.PubKey) error {
	if s.maxOwned == 0 {
		return nil
	}
	var owned int
	if err := x.conn.QueryRow(ctx, sqlCountOwned, owner[:]).Scan(&owned); err != nil {
		return fmt.Errorf("count communities of an owner: %w", err)
	}
	if owned >= s.maxOwned {
		return &TooManyError{Most: s.maxOwned}
	}
	return nil
}

// requireOwner returns ErrNoCommunity unless a key owns the community: who does not is told nothing of it. nil is everybody.
func (x *change) requireOwner(ctx context.Context, owner *nostr.PubKey) error {
	if owner == nil {
		return nil
	}
	role, err := x.role(ctx, *owner)
	if err == nil && role != policy.RoleOwner {
		return ErrNoCommunity
	}
	return err
}

// ArchiveCommunity has a community served to nobody from the commit on, and returns when that began and the access version
// since. If owner is not nil it must own the community. To archive it again changes nothing.
func (s *Store) ArchiveCommunity(ctx context.Context, id int64, owner *nostr.PubKey) (c Community, version uint64, err error) {
	version, err = s.administer(ctx, id, lockSet{}, func(x *change) error {
		if err := x.requireOwner(ctx, owner); err != nil {
			return err
		}
		was := x.state.Communities[id].Archived
		var at time.Time
		switch err := x.conn.QueryRow(ctx, sqlArchive, id).Scan(&at); {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrNoCommunity
		case err != nil || was:
			return err
		}
		return x.raise(ctx)
	})
	if err != nil {
		return Community{}, 0, err
	}
	c, err = s.community(ctx, id)
	return c, version, err
}

// UnarchiveCommunity undoes ArchiveCommunity.
func (s *Store) UnarchiveCommunity(ctx context.Context, id int64, owner *nostr.PubKey) (Community, error) {
	if _, err := s.administer(ctx, id, lockSet{}, func(x *change) error {
		if err := x.requireOwner(ctx, owner); err != nil || !x.state.Communities[id].Archived {
			return err
		}
		if _, err := x.conn.Exec(ctx, sqlUnarchive, id); err != nil {
			return fmt.Errorf("unarchive: %w", err)
		}
		return x.raise(ctx)
	}); err != nil {
		return Community{}, err
	}
	return s.community(ctx, id)
}

// Transfer is what a change of owners did.
type Transfer struct {
	Community
	// Changed is false when the new owner was one already.
	Changed bool
	// Previous is who is an owner no more, nil if nobody was one.
	Previous *nostr.PubKey
}

// TransferCommunity gives a community from one owner, who becomes a member, to another. Without an expected owner it is
// whoever has owned it longest, or nobody. Errors are ErrNoOwner if one was expected, ErrOwnerConflict, ErrBanned and a *TooManyError.
func (s *Store) TransferCommunity(ctx context.Context, id int64, to nostr.PubKey, expected *nostr.PubKey) (done Transfer, err error) {
	if done, err = s.handOver(ctx, id, to, expected, policy.RoleMember); err != nil {
		return Transfer{}, err
	}
	done.Community, err = s.community(ctx, id)
	return done, err
}

// handOver makes a key an owner, and gives the one before, as expected or for longest, another role. The Community of what it
// returns is not read.
func (s *Store) handOver(
	ctx context.Context, id int64, to nostr.PubKey, expected *nostr.PubKey, becomes policy.Role,
) (done Transfer, err error) {
	locks := lockSet{}
	locks.exclusive(ownerLock(to))
	_, err = s.administer(ctx, id, locks, func(x *change) error {
		done = Transfer{}
		role, err := x.role(ctx, to)
		if err != nil || role == policy.RoleOwner {
			return err
		}
		from, err := x.ownerBefore(ctx, expected)
		if err != nil {
			return err
		}
		switch banned, err := x.isBanned(ctx, to); {
		case err != nil:
			return err
		case banned:
			return ErrBanned
		}
		if err := s.requireRoom(ctx, x, to); err != nil {
			return err
		}
		if from != nil {
			if err := x.putMember(ctx, *from, becomes); err != nil {
				return err
			}
		}
		done = Transfer{Changed: true, Previous: from}
		return x.putMember(ctx, to, policy.RoleOwner)
	})
	return done, err
}

// ownerBefore returns the owner that was expected, or whoever has owned the community longest, nil if nobody does.
func (x *change) ownerBefore(ctx context.Context, expected *nostr.PubKey) (*nostr.PubKey, error) {
	var first []byte
	switch err := x.conn.QueryRow(ctx, sqlFirstOwner, x.community).Scan(&first); {
	case errors.Is(err, pgx.ErrNoRows) && expected == nil:
		return nil, nil //nolint:nilnil // nobody is an answer
	case errors.Is(err, pgx.ErrNoRows):
		return nil, ErrNoOwner
	case err != nil:
		return nil, fmt.Errorf("read owner: %w", err)
	case expected == nil:
		return new(nostr.PubKey(first)), nil
	}
	role, err := x.role(ctx, *expected)
	if err == nil && role != policy.RoleOwner {
		err = ErrOwnerConflict
	}
	return expected, err
}
