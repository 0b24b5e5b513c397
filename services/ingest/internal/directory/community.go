package directory

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// maxRequestID is the longest id of a deletion in bytes.
const maxRequestID = 128

// GetHost tells whether a community can be created for a host.
func (s *Service) GetHost(ctx context.Context, req *ingestv1.GetHostRequest) (*ingestv1.GetHostResponse, error) {
	host, err := normalize(req.GetHost())
	if err != nil {
		return nil, err
	}
	c, retired, err := s.Store.Host(ctx, host)
	if err != nil {
		return nil, failed(err)
	}
	_, invalid := newHost(host)
	resp := &ingestv1.GetHostResponse{Host: host, Available: c == nil && !retired && invalid == nil, Retired: retired}
	if c != nil {
		resp.Uuid = c.UUID
	}
	return resp, nil
}

// ListOwned lists the communities that a key owns.
func (s *Service) ListOwned(ctx context.Context, req *ingestv1.ListOwnedRequest) (*ingestv1.ListOwnedResponse, error) {
	owner, err := nostrpb.Fixed[nostr.PubKey](req.GetOwner(), "owner")
	if err != nil {
		return nil, err
	}
	list, err := s.Store.ListOwned(ctx, owner)
	if err != nil {
		return nil, failed(err)
	}
	resp := &ingestv1.ListOwnedResponse{MaxCommunitiesPerOwner: uint32(s.MaxOwned)}
	for i := range list {
		c := &list[i]
		resp.Communities = append(resp.Communities, &ingestv1.OwnedCommunity{
			Uuid: c.UUID, Host: c.Host(), CreateTime: timestamppb.New(c.Created), ArchiveTime: archiveTime(c),
		})
	}
	return resp, nil
}

// archiveTime is when a community was archived, nil if it is not.
func archiveTime(c *store.Community) *timestamppb.Timestamp {
	if c.Archived == nil {
		return nil
	}
	return timestamppb.New(*c.Archived)
}

// ArchiveCommunity ends all use of a community.
func (s *Service) ArchiveCommunity(ctx context.Context, req *ingestv1.ArchiveCommunityRequest) (*ingestv1.ArchiveCommunityResponse, error) {
	owner, err := optionalKey(req.GetOwner(), "owner")
	if err != nil {
		return nil, err
	}
	id, err := s.find(ctx, req.GetCommunity())
	if err != nil {
		return nil, err
	}
	c, version, err := s.Store.ArchiveCommunity(ctx, id, owner)
	if err != nil {
		return nil, failed(err)
	}
	// What is lost here is made up for by gateways, which ask again every now and then.
	announced := s.Announce(ctx, store.Revocation{Community: id, Whole: true, ACLVersion: version})
	return &ingestv1.ArchiveCommunityResponse{
		Uuid: c.UUID, Host: c.Host(), ArchiveTime: archiveTime(&c), Announced: announced == nil,
	}, nil
}

// UnarchiveCommunity undoes ArchiveCommunity.
func (s *Service) UnarchiveCommunity(ctx context.Context, req *ingestv1.UnarchiveCommunityRequest) (*ingestv1.UnarchiveCommunityResponse, error) {
	owner, err := optionalKey(req.GetOwner(), "owner")
	if err != nil {
		return nil, err
	}
	id, err := s.find(ctx, req.GetCommunity())
	if err != nil {
		return nil, err
	}
	c, err := s.Store.UnarchiveCommunity(ctx, id, owner)
	if err != nil {
		return nil, failed(err)
	}
	return &ingestv1.UnarchiveCommunityResponse{Uuid: c.UUID, Host: c.Host()}, nil
}

// TransferCommunity gives a community to another owner.
func (s *Service) TransferCommunity(ctx context.Context, req *ingestv1.TransferCommunityRequest) (*ingestv1.TransferCommunityResponse, error) {
	to, err := nostrpb.Fixed[nostr.PubKey](req.GetNewOwner(), "new_owner")
	if err != nil {
		return nil, err
	}
	expected, err := optionalKey(req.GetExpectedOwner(), "expected_owner")
	if err != nil {
		return nil, err
	}
	id, err := s.find(ctx, req.GetCommunity())
	if err != nil {
		return nil, err
	}
	done, err := s.Store.TransferCommunity(ctx, id, to, expected)
	if err != nil {
		return nil, failed(err)
	}
	return &ingestv1.TransferCommunityResponse{Uuid: done.UUID, Transferred: done.Changed, PreviousOwner: keyOf(done.Previous)}, nil
}

// DeleteCommunity has everything of an archived community removed.
func (s *Service) DeleteCommunity(ctx context.Context, req *ingestv1.DeleteCommunityRequest) (*ingestv1.DeleteCommunityResponse, error) {
	owner, err := nostrpb.Fixed[nostr.PubKey](req.GetOwner(), "owner")
	if err != nil {
		return nil, err
	}
	ref, err := parseRef(req.GetCommunity())
	if err != nil {
		return nil, err
	}
	if req.GetRequestId() == "" {
		return nil, fault.New(fault.Invalid, "request_id is needed")
	}
	if err := checkText("request_id", req.GetRequestId(), maxRequestID); err != nil {
		return nil, err
	}
	d, err := s.Store.DeleteCommunity(ctx, ref, owner, req.GetRequestId())
	if err != nil {
		return nil, failed(err)
	}
	resp := &ingestv1.DeleteCommunityResponse{
		Uuid: d.UUID, Host: d.Host(), RequestTime: timestamppb.New(d.Requested), Removed: d.Removed,
	}
	switch {
	case d.Finished:
		resp.Stage = ingestv1.DeletionStage_DELETION_STAGE_DELETED
	case d.Begun:
		resp.Stage = ingestv1.DeletionStage_DELETION_STAGE_DRAINING
	default:
		resp.Stage = ingestv1.DeletionStage_DELETION_STAGE_REQUESTED
		s.Drain()
	}
	return resp, nil
}

// PutHost gives a community another host.
func (s *Service) PutHost(ctx context.Context, req *ingestv1.PutHostRequest) (*ingestv1.PutHostResponse, error) {
	alias, err := newHost(req.GetAlias())
	if err != nil {
		return nil, err
	}
	id, err := s.find(ctx, req.GetCommunity())
	if err != nil {
		return nil, err
	}
	added, err := s.Store.AddHost(ctx, id, alias)
	if err != nil {
		return nil, failed(err)
	}
	return &ingestv1.PutHostResponse{Added: added}, nil
}

// RemoveHost takes a host from its community.
func (s *Service) RemoveHost(ctx context.Context, req *ingestv1.RemoveHostRequest) (*ingestv1.RemoveHostResponse, error) {
	alias, err := normalize(req.GetAlias())
	if err != nil {
		return nil, err
	}
	id, err := s.find(ctx, req.GetCommunity())
	if err != nil {
		return nil, err
	}
	if err := s.Store.RemoveHost(ctx, id, alias); err != nil {
		return nil, failed(err)
	}
	return &ingestv1.RemoveHostResponse{}, nil
}

// ReleaseHost lets a host go that a deleted community had.
func (s *Service) ReleaseHost(ctx context.Context, req *ingestv1.ReleaseHostRequest) (*ingestv1.ReleaseHostResponse, error) {
	host, err := normalize(req.GetHost())
	if err != nil {
		return nil, err
	}
	released, err := s.Store.ReleaseHost(ctx, host)
	if err != nil {
		return nil, failed(err)
	}
	return &ingestv1.ReleaseHostResponse{Released: released}, nil
}
