package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
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

	// By communities_pkey. The version rises only if the access changes.
	sqlUpdateCommunity = `
UPDATE ingest.communities
SET name = coalesce($2, name),
    acl_version = acl_version + CASE WHEN access <> $3 THEN 1 ELSE 0 END,
    access = coalesce($3, access)
WHERE id = $1
RETURNING acl_version`

	// By community_members_pkey. No row is affected when nothing changes.
	sqlPutMember = `
INSERT INTO ingest.community_members (community_id, pubkey, role) VALUES ($1, $2, $3)
ON CONFLICT (community_id, pubkey) DO UPDATE SET role = excluded.role
WHERE community_members.role <> excluded.role`

	// By community_members_pkey, channel_members_pubkey and channels_pkey: the member leaves the community and all
	// of its channels, and each channel that it was in gets a new version. Returns whether anything changed.
	sqlRemoveMember = `
WITH gone AS (
    DELETE FROM ingest.community_members WHERE community_id = $1 AND pubkey = $2 RETURNING 1
), left_channels AS (
    DELETE FROM ingest.channel_members WHERE community_id = $1 AND pubkey = $2 RETURNING channel_id
), raised AS (
    UPDATE ingest.channels SET acl_version = acl_version + 1
    WHERE community_id = $1 AND id IN (SELECT channel_id FROM left_channels)
)
SELECT EXISTS (SELECT FROM gone) OR EXISTS (SELECT FROM left_channels)`

	// By communities_pkey. $2 is what the version rises by.
	sqlRaiseVersion = `
UPDATE ingest.communities SET acl_version = acl_version + $2 WHERE id = $1 RETURNING acl_version`
)

// ErrNoCommunity says that no community has this host.
var ErrNoCommunity = errors.New("no community has this host")

var errHostTaken = errors.New("host was taken meanwhile")

// Access values of ingest.communities.
const (
	AccessOpen   = "open"
	AccessClosed = "closed"
)

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
		err = s.inTx(ctx, lockSet{}, func(conn *pgx.Conn) error {
			if err := conn.QueryRow(ctx, sqlInsertCommunity, c.Name, c.Access).Scan(&id); err != nil {
				return err
			}
			tag, err := conn.Exec(ctx, sqlInsertHost, c.Host, id)
			if err == nil && tag.RowsAffected() == 0 {
				return errHostTaken
			}
			if err == nil && c.Owner != nil {
				_, err = conn.Exec(ctx, sqlPutMember, id, c.Owner[:], "owner")
			}
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

// UpdateCommunity changes what is not nil and returns the access version after it.
func (s *Store) UpdateCommunity(ctx context.Context, community int64, name, access *string) (uint64, error) {
	return s.changeAccess(ctx, community, func(conn *pgx.Conn) (version int64, err error) {
		err = conn.QueryRow(ctx, sqlUpdateCommunity, community, name, access).Scan(&version)
		return version, err
	})
}

// PutMember adds a member or changes its role and returns the access version after it.
func (s *Store) PutMember(ctx context.Context, community int64, pubkey nostr.PubKey, role string) (uint64, error) {
	return s.changeAccess(ctx, community, func(conn *pgx.Conn) (version int64, err error) {
		tag, err := conn.Exec(ctx, sqlPutMember, community, pubkey[:], role)
		if err != nil {
			return 0, err
		}
		err = conn.QueryRow(ctx, sqlRaiseVersion, community, tag.RowsAffected()).Scan(&version)
		return version, err
	})
}

// RemoveMember removes a member from the community and from its channels, and returns the community's
// access version after it. What commits later carries that version, or a newer one.
func (s *Store) RemoveMember(ctx context.Context, community int64, pubkey nostr.PubKey) (uint64, error) {
	return s.changeAccess(ctx, community, func(conn *pgx.Conn) (version int64, err error) {
		var changed bool
		if err := conn.QueryRow(ctx, sqlRemoveMember, community, pubkey[:]).Scan(&changed); err != nil {
			return 0, err
		}
		raise := 0
		if changed {
			raise = 1
		}
		err = conn.QueryRow(ctx, sqlRaiseVersion, community, raise).Scan(&version)
		return version, err
	})
}

// changeAccess runs fn while no batch of the community is between its reading and its commit.
func (s *Store) changeAccess(ctx context.Context, community int64, fn func(*pgx.Conn) (int64, error)) (uint64, error) {
	locks := lockSet{}
	locks.exclusive(communityLock(community))
	var version int64
	err := s.inTx(ctx, locks, func(conn *pgx.Conn) (err error) {
		version, err = fn(conn)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("change access of community: %w", err)
	}
	return uint64(version), nil
}
