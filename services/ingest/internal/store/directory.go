package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Statements of the directory.
const (
	// By community_hosts_pkey.
	sqlHost = `SELECT community_id FROM ingest.community_hosts WHERE host = $1`

	sqlInsertCommunity = `INSERT INTO ingest.communities (name, access) VALUES ($1, $2) RETURNING id`

	// Conflicts on community_hosts_pkey: another call was first.
	sqlInsertHost = `
INSERT INTO ingest.community_hosts (host, community_id, is_primary) VALUES ($1, $2, true)
ON CONFLICT DO NOTHING`

	// By communities_pkey. Returns whether the access changed, of anybody.
	sqlUpdateCommunity = `
WITH old AS (SELECT access, agents FROM ingest.communities WHERE id = $1)
UPDATE ingest.communities c
SET name = coalesce($2, c.name), access = coalesce($3, c.access), unknown_kinds = coalesce($4, c.unknown_kinds),
    agents = coalesce($5, c.agents)
FROM old WHERE c.id = $1
RETURNING c.access <> old.access OR c.agents <> old.agents`
)

// ErrNoCommunity says that no community has this host.
var ErrNoCommunity = errors.New("no community has this host")

var errHostTaken = errors.New("host was taken meanwhile")

// Access values of ingest.communities.
const (
	AccessOpen   = "open"
	AccessClosed = "closed"
)

// UnknownKinds values of ingest.communities: what happens to kinds that the registry does not know.
const (
	UnknownKindsAllow        = "allow"
	UnknownKindsRegistryOnly = "registry-only"
)

// Agents values of ingest.communities: what a closed community does with agents of its members.
const (
	AgentsAdmit  = "admit"
	AgentsRefuse = "refuse"
)

// CommunityChange is what is to change of a community; nil leaves a value as it is.
type CommunityChange struct {
	// Name is shown to clients.
	Name *string
	// Access is AccessOpen or AccessClosed.
	Access *string
	// UnknownKinds is UnknownKindsAllow or UnknownKindsRegistryOnly.
	UnknownKinds *string
	// Agents is AgentsAdmit or AgentsRefuse.
	Agents *string
}

// CommunityByHost returns the community of a normalised host, or ErrNoCommunity.
func (s *Store) CommunityByHost(ctx context.Context, host string) (int64, error) {
	var id int64
	err := s.retry(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sqlHost, host).Scan(&id) })
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, ErrNoCommunity
	case err != nil:
		return 0, fmt.Errorf("look up host: %w", err)
	}
	return id, nil
}

// NewCommunity is what a community starts with.
type NewCommunity struct {
	// Host is normalised. Access is AccessOpen or AccessClosed.
	Host, Name, Access string
	// Owner becomes the first member, nil for none.
	Owner *nostr.PubKey
}

// CreateCommunity makes a community, or returns the one that the host has already with created = false.
func (s *Store) CreateCommunity(ctx context.Context, c NewCommunity) (id int64, created bool, err error) {
	for {
		if id, err = s.CommunityByHost(ctx, c.Host); !errors.Is(err, ErrNoCommunity) {
			return id, false, err
		}
		err = s.transact(ctx, lockSet{}, func(x *change) error { // nobody knows the community before it is committed
			if err := x.conn.QueryRow(ctx, sqlInsertCommunity, c.Name, c.Access).Scan(&id); err != nil {
				return err
			}
			tag, err := x.conn.Exec(ctx, sqlInsertHost, c.Host, id)
			switch {
			case err != nil:
				return err
			case tag.RowsAffected() == 0:
				return errHostTaken
			case c.Owner == nil:
				return nil
			}
			if err := x.enter(ctx, id); err != nil {
				return err
			}
			_, err = x.writeMember(ctx, *c.Owner, policy.RoleOwner)
			return err
		})
		switch {
		case errors.Is(err, errHostTaken): // committed by then, so the next look finds it
		case err != nil:
			return 0, false, fmt.Errorf("create community: %w", err)
		default:
			return id, true, nil
		}
	}
}

// UpdateCommunity changes a community and returns the access version after it, which only a change of access raises.
func (s *Store) UpdateCommunity(ctx context.Context, community int64, c CommunityChange) (uint64, error) {
	return s.changeCommunity(ctx, community, func(x *change) error {
		var changed bool
		err := x.conn.QueryRow(ctx, sqlUpdateCommunity, community, c.Name, c.Access, c.UnknownKinds, c.Agents).Scan(&changed)
		if err != nil || !changed {
			return err
		}
		return x.raise(ctx)
	})
}

// PutMember adds a member or changes its role and returns the access version after it. A key that is banned is
// refused with ErrBanned: to add it would look as if it could come in.
func (s *Store) PutMember(ctx context.Context, community int64, pubkey nostr.PubKey, role policy.Role) (uint64, error) {
	return s.changeCommunity(ctx, community, func(x *change) error {
		banned, err := x.isBanned(ctx, pubkey)
		switch {
		case err != nil:
			return err
		case banned:
			return ErrBanned
		}
		return x.putMember(ctx, pubkey, role)
	})
}

// RemoveMember removes a member from the community and from its channels, and returns the community's
// access version after it. What commits later carries that version, or a newer one.
func (s *Store) RemoveMember(ctx context.Context, community int64, pubkey nostr.PubKey) (uint64, error) {
	return s.changeCommunity(ctx, community, func(x *change) error { return x.expel(ctx, pubkey) })
}
