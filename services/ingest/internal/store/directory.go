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

// Statements of the directory.
const (
	sqlInsertCommunity = `INSERT INTO ingest.communities (name, description, access) VALUES ($1, $2, $3) RETURNING id`

	// Conflicts on community_hosts_pkey: another call was first. The first host is the primary one.
	sqlInsertHosts = `
INSERT INTO ingest.community_hosts (host, community_id, is_primary)
SELECT q.host, $2, q.n = 1 FROM unnest($1::text[]) WITH ORDINALITY AS q (host, n)
ON CONFLICT DO NOTHING`

	// By communities_pkey. Returns whether the access changed, of anybody.
	sqlUpdateCommunity = `
WITH old AS (SELECT access, agents FROM ingest.communities WHERE id = $1)
UPDATE ingest.communities c
SET name = coalesce($2, c.name), description = coalesce($6, c.description), access = coalesce($3, c.access), unknown_kinds = coalesce($4, c.unknown_kinds),
    agents = coalesce($5, c.agents)
FROM old WHERE c.id = $1
RETURNING c.access <> old.access OR c.agents <> old.agents`

	// By community_members_pkey.
	sqlHasMembers = `SELECT EXISTS (SELECT 1 FROM ingest.community_members WHERE community_id = $1)`
)

var (
	// ErrNoCommunity says that there is no such community, or none any more.
	ErrNoCommunity = errors.New("no such community")
	// ErrCommunityExists says that a host has a community already.
	ErrCommunityExists = errors.New("community already exists")
	// ErrNoMembers says that a community that is to be closed has nobody who could use it then.
	ErrNoMembers = errors.New("the community has no members")

	errHostTaken = errors.New("host was taken meanwhile")
)

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
	// Name and Description are shown to clients.
	Name, Description *string
	// Access is AccessOpen or AccessClosed.
	Access *string
	// UnknownKinds is UnknownKindsAllow or UnknownKindsRegistryOnly.
	UnknownKinds *string
	// Agents is AgentsAdmit or AgentsRefuse.
	Agents *string
}

// Existing says what CreateCommunity does with a community that its host has already.
type Existing int

// What happens to a community that exists already.
const (
	// LeaveExisting returns it as it is.
	LeaveExisting Existing = iota
	// RefuseExisting is ErrCommunityExists.
	RefuseExisting
	// RotateOwner makes the owner that is asked for one of it, and an admin of the one before.
	RotateOwner
)

// NewCommunity is what a community starts with.
type NewCommunity struct {
	// Host is normalised, and so are Aliases, which are other hosts. Access is AccessOpen or AccessClosed.
	Host, Name, Description, Access string
	Aliases                         []string
	// Owner becomes the first member, nil for none.
	Owner *nostr.PubKey
	// Existing says what happens when the host has a community already.
	Existing Existing
}

// hosts are all hosts that are asked for, each once, the primary one first.
func (c *NewCommunity) hosts() []string {
	var o ordered[string]
	for _, h := range append([]string{c.Host}, c.Aliases...) {
		o.add(h)
	}
	return o.list
}

// Made is what CreateCommunity has made or found.
type Made struct {
	Community
	// Created is false when the host had the community before.
	Created bool
	// Differences name what it has otherwise than was asked for.
	Differences []string
}

// CreateCommunity makes a community, or finds the one that the host has already. Errors are ErrCommunityExists, a
// *HostError and a *TooManyError, and with RotateOwner those of TransferCommunity.
func (s *Store) CreateCommunity(ctx context.Context, c NewCommunity) (Made, error) {
	hosts := c.hosts()
	for {
		taken, err := s.takenHosts(ctx, hosts)
		if err != nil {
			return Made{}, err
		}
		if at, ok := taken[c.Host]; ok && at.community != 0 {
			return s.converge(ctx, at.community, c)
		}
		for _, host := range hosts {
			if at, ok := taken[host]; ok {
				return Made{}, &HostError{Host: host, Retired: at.community == 0}
			}
		}
		id, err := s.insertCommunity(ctx, c, hosts)
		switch {
		case errors.Is(err, errHostTaken): // committed by then, so the next look finds it
		case err != nil:
			return Made{}, fmt.Errorf("create community: %w", err)
		default:
			found, err := s.community(ctx, id)
			return Made{Community: found, Created: true}, err
		}
	}
}

// insertCommunity makes a community that nobody knows before it is committed.
func (s *Store) insertCommunity(ctx context.Context, c NewCommunity, hosts []string) (id int64, err error) {
	locks := lockSet{}
	if c.Owner != nil {
		locks.exclusive(ownerLock(*c.Owner))
	}
	err = s.transact(ctx, locks, func(x *change) error {
		if c.Owner != nil {
			if err := s.requireRoom(ctx, x, *c.Owner); err != nil {
				return err
			}
		}
		if err := x.conn.QueryRow(ctx, sqlInsertCommunity, c.Name, c.Description, c.Access).Scan(&id); err != nil {
			return err
		}
		tag, err := x.conn.Exec(ctx, sqlInsertHosts, hosts, id)
		switch {
		case err != nil:
			return err
		case tag.RowsAffected() < int64(len(hosts)):
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
	return id, err
}

// converge does with a community that exists what was asked for.
func (s *Store) converge(ctx context.Context, id int64, c NewCommunity) (Made, error) {
	if c.Existing == RefuseExisting {
		return Made{}, ErrCommunityExists
	}
	if c.Existing == RotateOwner && c.Owner != nil {
		_, err := s.handOver(ctx, id, *c.Owner, nil, policy.RoleAdmin)
		if err != nil && !errors.Is(err, ErrNoCommunity) { // which is told below
			return Made{}, err
		}
	}
	found, err := s.community(ctx, id)
	switch {
	case errors.Is(err, ErrNoCommunity), err == nil && found.Deleting:
		return Made{}, &HostError{Host: c.Host, Retired: true}
	case err != nil:
		return Made{}, err
	}
	made := Made{Community: found}
	differs := func(what string, does bool) {
		if does {
			made.Differences = append(made.Differences, what)
		}
	}
	differs("name", found.Name != c.Name)
	differs("description", found.Description != c.Description)
	differs("access", found.Access != c.Access)
	differs("aliases", slices.ContainsFunc(c.hosts(), func(h string) bool { return !slices.Contains(found.Hosts, h) }))
	differs("archived", found.Archived != nil)
	if c.Owner != nil {
		owns, err := s.owns(ctx, id, *c.Owner)
		if err != nil {
			return Made{}, err
		}
		differs("owner", !owns)
		if owns {
			made.Owner = c.Owner
		}
	}
	return made, nil
}

// UpdateCommunity changes a community and returns the access version after it, which only a change of access raises. One
// without members cannot be closed: ErrNoMembers.
func (s *Store) UpdateCommunity(ctx context.Context, community int64, c CommunityChange) (uint64, error) {
	return s.administer(ctx, community, lockSet{}, func(x *change) error {
		var changed bool
		err := x.conn.QueryRow(ctx, sqlUpdateCommunity, community, c.Name, c.Access, c.UnknownKinds, c.Agents, c.Description).Scan(&changed)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNoCommunity
		}
		if err != nil || !changed {
			return err
		}
		if c.Access != nil && *c.Access == AccessClosed {
			var members bool
			if err := x.conn.QueryRow(ctx, sqlHasMembers, community).Scan(&members); err != nil {
				return fmt.Errorf("look for members: %w", err)
			}
			if !members {
				return ErrNoMembers
			}
		}
		x.revokeAll()
		return x.raise(ctx)
	})
}

// PutMember adds a member or changes its role and returns the access version after it. A key that is banned is
// refused with ErrBanned: to add it would look as if it could come in. One that owns as many communities as it may is
// refused with a *TooManyError as the owner of another.
func (s *Store) PutMember(ctx context.Context, community int64, pubkey nostr.PubKey, role policy.Role) (uint64, error) {
	locks := lockSet{}
	if role == policy.RoleOwner {
		locks.exclusive(ownerLock(pubkey))
	}
	return s.administer(ctx, community, locks, func(x *change) error {
		before, err := x.role(ctx, pubkey)
		if err != nil {
			return err
		}
		banned, err := x.isBanned(ctx, pubkey)
		switch {
		case err != nil:
			return err
		case banned:
			return ErrBanned
		case role == policy.RoleOwner && before != role:
			if err := s.requireRoom(ctx, x, pubkey); err != nil {
				return err
			}
		}
		return x.putMember(ctx, pubkey, role)
	})
}

// Removal is what RemoveMember has done.
type Removal struct {
	// ACLVersion is the community's access version after it. What commits later carries that version, or a newer one.
	ACLVersion uint64
	// Removed is false when the key was no member, neither of the community nor of a channel of it.
	Removed bool
	// AdmittedBy is the owner of an agent that its owner admits all the same (NIP-OA), removed or not, else nil.
	AdmittedBy *nostr.PubKey
}

// RemoveMember removes a member from the community and from its channels.
func (s *Store) RemoveMember(ctx context.Context, community int64, pubkey nostr.PubKey) (done Removal, err error) {
	done.ACLVersion, err = s.administer(ctx, community, lockSet{}, func(x *change) error {
		before := x.state.Communities[community].ACLVersion
		err := x.expel(ctx, pubkey)
		done.Removed = x.state.Communities[community].ACLVersion != before // only then is it raised
		done.AdmittedBy = x.admittedBy
		return err
	})
	return done, err
}
