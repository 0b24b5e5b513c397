package search

import (
	"context"
	"fmt"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/tenant"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/directory"
)

// ResolveCommunity implements searchv1.SearchServiceServer.
func (s *Service) ResolveCommunity(ctx context.Context, req *searchv1.ResolveCommunityRequest) (resp *searchv1.ResolveCommunityResponse, err error) {
	end, err := s.admit(ctx, callResolve)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	c, err := s.directory.Resolve(ctx, req.GetHost(), directory.Least{
		Community: tenant.ID(req.GetCommunity()), Version: req.GetMinAclVersion(),
	})
	if err != nil {
		return nil, err
	}
	return &searchv1.ResolveCommunityResponse{
		Community: int64(c.ID), Name: c.Name, Description: c.Description, Icon: c.Icon,
		Closed: c.Closed, Hosts: c.Hosts, AclVersion: c.Version,
		MinPow: c.MinPoW, BlockedNetworks: c.Blocked, Owner: c.Owner, Uuid: c.UUID,
	}, nil
}

// CheckAccess implements searchv1.SearchServiceServer.
func (s *Service) CheckAccess(ctx context.Context, req *searchv1.CheckAccessRequest) (resp *searchv1.CheckAccessResponse, err error) {
	end, err := s.admit(ctx, callAccess)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	keys, err := parseKeys(req.GetPubkeys(), maxAccessKeys)
	if err == nil && req.GetCommunity() <= 0 {
		err = fmt.Errorf("community %d", req.GetCommunity())
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err.Error(), err)
	}
	topic, err := s.directory.Access(ctx, tenant.ID(req.GetCommunity()), req.GetChannel(), keys,
		access.Least{Community: req.GetMinCommunityAclVersion(), Channel: req.GetMinChannelAclVersion(), Time: req.GetMinTime()})
	if err != nil {
		return nil, err
	}
	resp = &searchv1.CheckAccessResponse{
		Allowed: topic.Decide(req.GetChannel(), keys), Moderator: topic.Moderate(keys), Until: topic.Until(keys),
		CommunityAclVersion: topic.CommunityVersion, Gone: !topic.Exists,
	}
	for _, key := range topic.Banned {
		resp.Banned = append(resp.Banned, key[:])
	}
	for _, a := range topic.Agents {
		resp.Agents = append(resp.Agents, &searchv1.Agent{Pubkey: a.Key[:], Owner: a.Owner[:]})
	}
	if topic.Channel != nil {
		resp.ChannelAclVersion = topic.Channel.Version
	}
	return resp, nil
}
