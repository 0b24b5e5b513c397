// Package directory serves the operator's calls about communities and their members. It owns the checks
// of what they ask for; the store owns what is done, and the order of a change of access against the
// batches that are being committed.
//
// A Service has no state and is safe for concurrent use.
package directory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/tenant"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// maxName is the longest name of a community in bytes.
const maxName = 256

// Store is what the directory is kept in; *store.Store does.
type Store interface {
	CommunityByHost(ctx context.Context, host string) (int64, error)
	CreateCommunity(ctx context.Context, c store.NewCommunity) (id int64, created bool, err error)
	UpdateCommunity(ctx context.Context, community int64, change store.CommunityChange) (uint64, error)
	PutMember(ctx context.Context, community int64, pubkey nostr.PubKey, role policy.Role) (uint64, error)
	RemoveMember(ctx context.Context, community int64, pubkey nostr.PubKey) (uint64, error)
}

// Service implements ingestv1.DirectoryServiceServer.
type Service struct {
	ingestv1.UnimplementedDirectoryServiceServer
	store Store
}

// New returns a service on the store.
func New(s Store) *Service { return &Service{store: s} }

// CreateCommunity makes a community for a host, or finds the one that it has.
func (s *Service) CreateCommunity(ctx context.Context, req *ingestv1.CreateCommunityRequest) (*ingestv1.CreateCommunityResponse, error) {
	host, err := normalize(req.GetHost())
	if err != nil {
		return nil, err
	}
	if err := tenant.ValidateHost(host); err != nil {
		return nil, fault.Wrap(fault.Invalid, "malformed host", err)
	}
	if err := checkName(req.GetName()); err != nil {
		return nil, err
	}
	c := store.NewCommunity{Host: host, Name: req.GetName()}
	switch req.GetAccess() {
	case ingestv1.Access_ACCESS_OPEN:
		c.Access = store.AccessOpen
	case ingestv1.Access_ACCESS_CLOSED:
		c.Access = store.AccessClosed
	default:
		return nil, fault.New(fault.Invalid, "access must be open or closed")
	}
	if len(req.GetOwner()) > 0 || c.Access == store.AccessClosed {
		owner, err := nostrpb.Fixed[nostr.PubKey](req.GetOwner(), "owner")
		if err != nil {
			return nil, err
		}
		c.Owner = &owner
	}
	id, created, err := s.store.CreateCommunity(ctx, c)
	if err != nil {
		return nil, failed(err)
	}
	return &ingestv1.CreateCommunityResponse{Community: id, Created: created}, nil
}

// UpdateCommunity changes what is set in the request.
func (s *Service) UpdateCommunity(ctx context.Context, req *ingestv1.UpdateCommunityRequest) (*ingestv1.UpdateCommunityResponse, error) {
	community, err := s.community(ctx, req.GetHost())
	if err != nil {
		return nil, err
	}
	if err := checkName(req.GetName()); err != nil {
		return nil, err
	}
	change := store.CommunityChange{Name: req.Name}
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
	version, err := s.store.UpdateCommunity(ctx, community, change)
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
	version, err := s.store.PutMember(ctx, community, pubkey, role)
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
	version, err := s.store.RemoveMember(ctx, community, pubkey)
	if err != nil {
		return nil, failed(err)
	}
	return &ingestv1.RemoveMemberResponse{AclVersion: version}, nil
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
	host, err := normalize(host)
	if err != nil {
		return 0, err
	}
	id, err := s.store.CommunityByHost(ctx, host)
	if err != nil {
		return 0, failed(err)
	}
	return id, nil
}

func normalize(host string) (string, error) {
	normal, err := tenant.NormalizeHost(host)
	if err != nil {
		return "", fault.Wrap(fault.Invalid, "malformed host", err)
	}
	return normal, nil
}

func checkName(name string) error {
	if len(name) > maxName || strings.ContainsRune(name, 0) || !utf8.ValidString(name) {
		return fault.New(fault.Invalid, fmt.Sprintf("name must be text of at most %d bytes", maxName))
	}
	return nil
}

// failed gives an error of the store its reason.
func failed(err error) error {
	switch {
	case errors.Is(err, store.ErrNoCommunity):
		return fault.Wrap(fault.NotFound, "no such community", err)
	case errors.Is(err, store.ErrBanned):
		return fault.Wrap(fault.Invalid, "the key is banned: lift the ban first", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case store.IsTransient(err):
		return fault.Wrap(fault.Overloaded, "cannot change the directory at the moment, try again", err)
	}
	return err
}
