package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
)

// Bounds of an entry in the list of communities.
const (
	// MaxCounted is how many members are counted at most.
	MaxCounted = 100_000
	maxHosts   = 100
)

// ListedCommunity is a community as the operator sees it in a list.
type ListedCommunity struct {
	// ID is its surrogate key, which grows with every new community.
	ID tenant.ID
	// Name is shown to clients (NIP-11).
	Name string
	// Closed is true when only members may read and write.
	Closed bool
	// Created is when it was created.
	Created time.Time
	// Hosts are its authorities, the primary one first, then by name, at most 100.
	Hosts []string
	// Members is how many it has, at most MaxCounted.
	Members uint32
	// Archived is when it was archived, nil if it is not. Deleting is set when its rows are being removed.
	Archived *time.Time
	Deleting bool
	// UUID is its name for clients and operators.
	UUID string
}

// communities reads a page of $2 after the community $1.
//
// Index: communities_pkey, community_hosts_community, community_members_pkey.
const communities = `
SELECT c.id, c.name, c.access = 'closed', c.created_at,
    ARRAY(SELECT h.host FROM ingest.community_hosts h WHERE h.community_id = c.id ORDER BY h.is_primary DESC, h.host LIMIT $3),
    (SELECT count(*) FROM (SELECT FROM ingest.community_members m WHERE m.community_id = c.id LIMIT $4) AS counted),
    c.archived_at, c.deleting_at IS NOT NULL, c.uuid::text
FROM ingest.communities c WHERE c.id > $1 ORDER BY c.id LIMIT $2`

// Communities returns at most limit communities after the one named, the oldest first; 0 begins.
func (s *Store) Communities(ctx context.Context, after tenant.ID, limit int) (list []ListedCommunity, err error) {
	err = s.readBulk(ctx, func(ctx context.Context, conn *pgx.Conn, _ session) error {
		rows, err := conn.Query(ctx, communities, int64(after), limit, maxHosts, MaxCounted)
		if err != nil {
			return fmt.Errorf("list communities: %w", err)
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[ListedCommunity])
		if err != nil {
			return fmt.Errorf("list communities: %w", err)
		}
		return nil
	})
	return list, err
}

// Member is a member of a community.
type Member struct {
	// PubKey is its key.
	PubKey nostr.PubKey
	// Role is owner, admin or member.
	Role string
	// Added is when it became a member.
	Added time.Time
}

// members reads a page of $3 after the key $2.
//
// Index: community_members_pkey.
const members = `
SELECT pubkey, role, added_at FROM ingest.community_members WHERE community_id = $1 AND pubkey > $2 ORDER BY pubkey LIMIT $3`

// Members returns at most limit members of a community after a key, in the order of keys; an empty key begins.
func (s *Store) Members(ctx context.Context, community tenant.ID, after []byte, limit int) (list []Member, err error) {
	err = s.readBulk(ctx, func(ctx context.Context, conn *pgx.Conn, _ session) error {
		list = nil
		rows, err := conn.Query(ctx, members, int64(community), after, limit)
		if err != nil {
			return fmt.Errorf("list members: %w", err)
		}
		var m Member
		var key []byte
		if _, err := pgx.ForEachRow(rows, []any{&key, &m.Role, &m.Added}, func() error {
			copy(m.PubKey[:], key) // 32 bytes, says the schema
			list = append(list, m)
			return nil
		}); err != nil {
			return fmt.Errorf("list members: %w", err)
		}
		return nil
	})
	return list, err
}
