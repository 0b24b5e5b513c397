// Package directory serves the operator's calls about communities, their hosts and their members. It owns the checks
// of what they ask for, and the words in which they are refused; the store owns what is done, and the order of a change of
// access against the batches that are being committed.
//
// A Service has no state and is safe for concurrent use.
package directory

import (
	"context"
	"errors"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// The longest texts of a community in bytes; the description is as long as NIP-86 lets it be.
const (
	maxName        = 256
	maxDescription = 4096
)

// Store is what the directory is kept in; *store.Store does.
type Store interface {
	Find(ctx context.Context, ref store.CommunityRef) (int64, error)
	Host(ctx context.Context, host string) (c *store.Community, retired bool, err error)
	CreateCommunity(ctx context.Context, c store.NewCommunity) (store.Made, error)
	UpdateCommunity(ctx context.Context, community int64, change store.CommunityChange) (uint64, error)
	ListOwned(ctx context.Context, owner nostr.PubKey) ([]store.Community, error)
	ArchiveCommunity(ctx context.Context, community int64, owner *nostr.PubKey) (store.Community, uint64, error)
	UnarchiveCommunity(ctx context.Context, community int64, owner *nostr.PubKey) (store.Community, error)
	TransferCommunity(ctx context.Context, community int64, to nostr.PubKey, expected *nostr.PubKey) (store.Transfer, error)
	DeleteCommunity(ctx context.Context, ref store.CommunityRef, owner nostr.PubKey, requestID string) (store.Deletion, error)
	AddHost(ctx context.Context, community int64, host string) (bool, error)
	RemoveHost(ctx context.Context, community int64, host string) error
	ReleaseHost(ctx context.Context, host string) (bool, error)
	PutMember(ctx context.Context, community int64, pubkey nostr.PubKey, role policy.Role) (uint64, error)
	RemoveMember(ctx context.Context, community int64, pubkey nostr.PubKey) (store.Removal, error)
}

// Deps is what a Service uses.
type Deps struct {
	// Store keeps the directory.
	Store Store
	// Announce tells gateways that a community was archived. It must not block.
	Announce func(ctx context.Context, r store.Revocation) error
	// Drain has the rows of deleted communities removed soon. It must not block.
	Drain func()
	// MaxOwned is how many communities a key can own, as the store enforces it; 0 is any number.
	MaxOwned int
}

// Service implements ingestv1.DirectoryServiceServer.
type Service struct {
	ingestv1.UnimplementedDirectoryServiceServer
	Deps
}

// New returns a service.
func New(d Deps) *Service { return &Service{Deps: d} }

// CreateCommunity makes a community for a host, or finds the one that it has.
func (s *Service) CreateCommunity(ctx context.Context, req *ingestv1.CreateCommunityRequest) (*ingestv1.CreateCommunityResponse, error) {
	c, err := newCommunity(req)
	if err != nil {
		return nil, err
	}
	made, err := s.Store.CreateCommunity(ctx, c)
	if err != nil {
		return nil, failed(err)
	}
	return &ingestv1.CreateCommunityResponse{
		Community: made.ID, Created: made.Created, Uuid: made.UUID, Owner: keyOf(made.Owner), Differences: made.Differences,
		MaxCommunitiesPerOwner: uint32(s.MaxOwned),
	}, nil
}

// newCommunity checks what is asked for.
func newCommunity(req *ingestv1.CreateCommunityRequest) (c store.NewCommunity, err error) {
	c = store.NewCommunity{Name: req.GetName(), Description: req.GetDescription()}
	if c.Host, err = newHost(req.GetHost()); err != nil {
		return c, err
	}
	if len(req.GetAliases()) >= store.MaxHosts {
		return c, failed(store.ErrTooManyHosts)
	}
	for _, alias := range req.GetAliases() {
		host, err := newHost(alias)
		if err != nil {
			return c, err
		}
		c.Aliases = append(c.Aliases, host)
	}
	if err := errors.Join(checkText("name", c.Name, maxName), checkText("description", c.Description, maxDescription)); err != nil {
		return c, err
	}
	switch req.GetAccess() {
	case ingestv1.Access_ACCESS_OPEN:
		c.Access = store.AccessOpen
	case ingestv1.Access_ACCESS_CLOSED:
		c.Access = store.AccessClosed
	default:
		return c, fault.New(fault.Invalid, "access must be open or closed")
	}
	if len(req.GetOwner()) > 0 || c.Access == store.AccessClosed {
		owner, err := nostrpb.Fixed[nostr.PubKey](req.GetOwner(), "owner")
		if err != nil {
			return c, err
		}
		c.Owner = &owner
	}
	switch req.GetExisting() {
	case ingestv1.Existing_EXISTING_UNSPECIFIED:
	case ingestv1.Existing_EXISTING_REFUSE:
		c.Existing = store.RefuseExisting
	case ingestv1.Existing_EXISTING_ROTATE_OWNER:
		c.Existing = store.RotateOwner
	default:
		return c, fault.New(fault.Invalid, "existing is not known")
	}
	return c, nil
}

// UpdateCommunity changes what is set in the request.
func (s *Service) UpdateCommunity(ctx context.Context, req *ingestv1.UpdateCommunityRequest) (*ingestv1.UpdateCommunityResponse, error) {
	community, err := s.community(ctx, req.GetHost())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkText("name", req.GetName(), maxName), checkText("description", req.GetDescription(), maxDescription)); err != nil {
		return nil, err
	}
	change := store.CommunityChange{Name: req.Name, Description: req.Description}
	switch req.GetAccess() {
	case ingestv1.Access_ACCESS_UNSPECIFIED:
	case ingestv1.Access_ACCESS_OPEN:
		change.Access = new(store.AccessOpen)
	case ingestv1.Access_ACCESS_CLOSED:
		change.Access = new(store.AccessClosed)
	default:
		return nil, fault.New(fault.Invalid, "access must be open or closed")
	}
	switch req.GetUnknownKinds() {
	case ingestv1.UnknownKinds_UNKNOWN_KINDS_UNSPECIFIED:
	case ingestv1.UnknownKinds_UNKNOWN_KINDS_ALLOW:
		change.UnknownKinds = new(store.UnknownKindsAllow)
	case ingestv1.UnknownKinds_UNKNOWN_KINDS_REGISTRY_ONLY:
		change.UnknownKinds = new(store.UnknownKindsRegistryOnly)
	default:
		return nil, fault.New(fault.Invalid, "unknown_kinds must be allow or registry-only")
	}
	switch req.GetAgents() {
	case ingestv1.Agents_AGENTS_UNSPECIFIED:
	case ingestv1.Agents_AGENTS_ADMIT:
		change.Agents = new(store.AgentsAdmit)
	case ingestv1.Agents_AGENTS_REFUSE:
		change.Agents = new(store.AgentsRefuse)
	default:
		return nil, fault.New(fault.Invalid, "agents must be admit or refuse")
	}
	version, err := s.Store.UpdateCommunity(ctx, community, change)
	if err != nil {
		return nil, failed(err)
	}
	return &ingestv1.UpdateCommunityResponse{AclVersion: version}, nil
}

// PutMember adds a member or changes its role.
func (s *Service) PutMember(ctx context.Context, req *ingestv1.PutMemberRequest) (*ingestv1.PutMemberResponse, error) {
	community, pubkey, err := s.member(ctx, req.GetHost(), req.GetPubkey())
	if err != nil {
		return nil, err
	}
	role := policy.Role(req.GetRole())
	switch role {
	case policy.RoleOwner, policy.RoleAdmin, policy.RoleMember:
	default:
		return nil, fault.New(fault.Invalid, "role must be owner, admin or member")
	}
	version, err := s.Store.PutMember(ctx, community, pubkey, role)
	if err != nil {
		return nil, failed(err)
	}
	return &ingestv1.PutMemberResponse{AclVersion: version}, nil
}

// RemoveMember removes a member from the community and its channels.
func (s *Service) RemoveMember(ctx context.Context, req *ingestv1.RemoveMemberRequest) (*ingestv1.RemoveMemberResponse, error) {
	community, pubkey, err := s.member(ctx, req.GetHost(), req.GetPubkey())
	if err != nil {
		return nil, err
	}
	done, err := s.Store.RemoveMember(ctx, community, pubkey)
	if err != nil {
		return nil, failed(err)
	}
	return &ingestv1.RemoveMemberResponse{
		AclVersion: done.ACLVersion, Removed: done.Removed, AdmittedBy: keyOf(done.AdmittedBy),
	}, nil
}

func (s *Service) member(ctx context.Context, host string, key []byte) (int64, nostr.PubKey, error) {
	pubkey, err := nostrpb.Fixed[nostr.PubKey](key, "pubkey")
	if err != nil {
		return 0, pubkey, err
	}
	community, err := s.community(ctx, host)
	return community, pubkey, err
}

func (s *Service) community(ctx context.Context, host string) (int64, error) {
	return s.find(ctx, &ingestv1.CommunityRef{By: &ingestv1.CommunityRef_Host{Host: host}})
}
