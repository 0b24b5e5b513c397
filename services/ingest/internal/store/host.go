package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Statements of hosts.
const (
	// By community_hosts_pkey. A host without a community is that of one that was deleted.
	sqlTakenHosts = `SELECT host, coalesce(community_id, 0), is_primary FROM ingest.community_hosts WHERE host = ANY($1::text[])`

	// By community_hosts_community.
	sqlCountHosts = `SELECT count(*) FROM ingest.community_hosts WHERE community_id = $1`

	// Conflicts on community_hosts_pkey.
	sqlInsertAlias = `INSERT INTO ingest.community_hosts (host, community_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`

	// By community_hosts_pkey.
	sqlRemoveAlias = `DELETE FROM ingest.community_hosts WHERE host = $1 AND community_id = $2 AND NOT is_primary`

	// By community_hosts_pkey.
	sqlReleaseHost = `DELETE FROM ingest.community_hosts WHERE host = $1 AND community_id IS NULL`
)

// MaxHosts is how many hosts a community can have: who authenticates is compared with each.
const MaxHosts = 64

var (
	// ErrTooManyHosts says that a community has MaxHosts.
	ErrTooManyHosts = errors.New("the community has as many hosts as it can have")
	// ErrPrimaryHost says that a host is the first that its community had.
	ErrPrimaryHost = errors.New("the first host of a community stays with it")
)

// HostError says that a host is taken.
type HostError struct {
	// Host is the one.
	Host string
	// Retired is set when no community has it: one that was deleted, or is about to be, had it.
	Retired bool
}

// Error says of which host, and how.
func (e *HostError) Error() string {
	if e.Retired {
		return e.Host + " was the host of a community that was deleted"
	}
	return e.Host + " is the host of another community"
}

// takenHost is a host that nobody else can have.
type takenHost struct {
	community int64 // 0 if it is retired
	primary   bool
}

// takenHosts returns those of some hosts that are taken.
func (s *Store) takenHosts(ctx context.Context, hosts []string) (taken map[string]takenHost, err error) {
	err = s.retry(ctx, func(conn *pgx.Conn) error {
		taken = make(map[string]takenHost, len(hosts))
		rows, err := conn.Query(ctx, sqlTakenHosts, hosts)
		if err != nil {
			return err
		}
		var host string
		var at takenHost
		_, err = pgx.ForEachRow(rows, []any{&host, &at.community, &at.primary}, func() error {
			taken[host] = at
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up hosts: %w", err)
	}
	return taken, nil
}

// CommunityByHost returns the community of a normalised host, or ErrNoCommunity.
func (s *Store) CommunityByHost(ctx context.Context, host string) (int64, error) {
	taken, err := s.takenHosts(ctx, []string{host})
	if err != nil {
		return 0, err
	}
	if id := taken[host].community; id != 0 {
		return id, nil
	}
	return 0, ErrNoCommunity
}

// Host returns the community of a normalised host, nil if it has none, and whether one that was deleted had it.
func (s *Store) Host(ctx context.Context, host string) (c *Community, retired bool, err error) {
	taken, err := s.takenHosts(ctx, []string{host})
	at, ok := taken[host]
	if err != nil || !ok || at.community == 0 {
		return nil, ok, err
	}
	found, err := s.community(ctx, at.community)
	if errors.Is(err, ErrNoCommunity) || (err == nil && found.Deleting) {
		return nil, true, nil
	}
	return &found, false, err
}

// AddHost gives a community another host, and reports whether it had not had it. Errors are a *HostError and ErrTooManyHosts.
func (s *Store) AddHost(ctx context.Context, community int64, host string) (added bool, err error) {
	_, err = s.administer(ctx, community, lockSet{}, func(x *change) error {
		var hosts int
		if err := x.conn.QueryRow(ctx, sqlCountHosts, community).Scan(&hosts); err != nil {
			return fmt.Errorf("count hosts: %w", err)
		}
		tag, err := x.conn.Exec(ctx, sqlInsertAlias, host, community)
		if err != nil {
			return fmt.Errorf("add host: %w", err)
		}
		added = tag.RowsAffected() > 0
		if added && hosts >= MaxHosts {
			return ErrTooManyHosts
		}
		return nil
	})
	if err != nil || added {
		return added, err
	}
	taken, err := s.takenHosts(ctx, []string{host})
	if at := taken[host]; err == nil && at.community != community {
		err = &HostError{Host: host, Retired: at.community == 0}
	}
	return false, err
}

// RemoveHost takes a host from a community, and raises its access version, so that gateways believe nobody who still sees
// the host with it. Errors are ErrNoCommunity, also if it is not a host of this one, and
// ErrPrimaryHost.
func (s *Store) RemoveHost(ctx context.Context, community int64, host string) error {
	taken, err := s.takenHosts(ctx, []string{host})
	switch {
	case err != nil:
		return err
	case taken[host].community != community:
		return ErrNoCommunity
	case taken[host].primary:
		return ErrPrimaryHost
	}
	_, err = s.administer(ctx, community, lockSet{}, func(x *change) error {
		tag, err := x.conn.Exec(ctx, sqlRemoveAlias, host, community)
		switch {
		case err != nil:
			return fmt.Errorf("remove host: %w", err)
		case tag.RowsAffected() == 0: // it was removed meanwhile
			return ErrNoCommunity
		}
		x.revokeAll() // those who are connected by it
		return x.raise(ctx)
	})
	return err
}

// ReleaseHost lets a host go that a community had which was deleted, and reports whether it was not free. If it belongs
// to a community the error is a *HostError.
func (s *Store) ReleaseHost(ctx context.Context, host string) (released bool, err error) {
	err = s.retry(ctx, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, sqlReleaseHost, host)
		released = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("release host: %w", err)
	}
	if released {
		return true, nil
	}
	if _, err := s.CommunityByHost(ctx, host); !errors.Is(err, ErrNoCommunity) {
		if err == nil {
			err = &HostError{Host: host}
		}
		return false, err
	}
	return false, nil
}
