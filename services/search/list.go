package search

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// The largest pages of the operator's lists.
const (
	maxCommunities = 100
	maxMembers     = 1000
)

// ListCommunities implements searchv1.DirectoryServiceServer.
func (s *Service) ListCommunities(ctx context.Context, req *searchv1.ListCommunitiesRequest) (resp *searchv1.ListCommunitiesResponse, err error) {
	end, err := s.admit(ctx, callList)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	var after tenant.ID
	if token := req.GetPageToken(); token != "" {
		n, err := strconv.ParseInt(token, 10, 64)
		if err != nil || n <= 0 {
			return nil, badToken(token)
		}
		after = tenant.ID(n)
	}
	size := pageSize(req.GetPageSize(), maxCommunities)
	list, err := s.store.Communities(ctx, after, size+1) // one more tells whether there is a next page
	if err != nil {
		return nil, err
	}
	resp = &searchv1.ListCommunitiesResponse{}
	if len(list) > size {
		list = list[:size]
		resp.NextPageToken = strconv.FormatInt(int64(list[size-1].ID), 10)
	}
	for _, c := range list {
		entry := &searchv1.CommunityEntry{
			Hosts: c.Hosts, Name: c.Name, Closed: c.Closed, Members: c.Members, CreateTime: timestamppb.New(c.Created),
			Deleting: c.Deleting, Uuid: c.UUID,
		}
		if c.Archived != nil {
			entry.ArchiveTime = timestamppb.New(*c.Archived)
		}
		resp.Communities = append(resp.Communities, entry)
	}
	return resp, nil
}

// ListMembers implements searchv1.DirectoryServiceServer.
func (s *Service) ListMembers(ctx context.Context, req *searchv1.ListMembersRequest) (resp *searchv1.ListMembersResponse, err error) {
	end, err := s.admit(ctx, callList)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	after := []byte{}
	if token := req.GetPageToken(); token != "" {
		key, err := nostr.ParsePubKey(token)
		if err != nil {
			return nil, badToken(token)
		}
		after = key[:]
	}
	community, err := s.directory.Find(ctx, req.GetHost())
	if err != nil {
		return nil, err
	}
	size := pageSize(req.GetPageSize(), maxMembers)
	list, err := s.store.Members(ctx, community.ID, after, size+1)
	if err != nil {
		return nil, err
	}
	resp = &searchv1.ListMembersResponse{}
	if len(list) > size {
		list = list[:size]
		resp.NextPageToken = hex.EncodeToString(list[size-1].PubKey[:])
	}
	for i := range list {
		m := &list[i]
		resp.Members = append(resp.Members, &searchv1.MemberEntry{Pubkey: m.PubKey[:], Role: m.Role, AddTime: timestamppb.New(m.Added)})
	}
	return resp, nil
}

func badToken(token string) error {
	return fault.New(fault.Invalid, fmt.Sprintf("no page begins at %.80q", token))
}

// pageSize is what was asked for, as far as it is allowed.
func pageSize(asked uint32, most int) int {
	if asked == 0 || asked > uint32(most) {
		return most
	}
	return int(asked)
}
