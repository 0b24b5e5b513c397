package search

import (
	"context"
	"fmt"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/store"
)

// maxRoots is how many threads are described at once, maxReplies how many replies are returned.
const (
	maxRoots   = 200
	maxReplies = 500
)

// DescribeThreads implements searchv1.SearchServiceServer.
func (s *Service) DescribeThreads(ctx context.Context, req *searchv1.DescribeThreadsRequest) (resp *searchv1.DescribeThreadsResponse, err error) {
	end, err := s.admit(ctx, callQuery)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	keys, err := parseKeys(req.GetPrincipal().GetPubkeys(), maxPrincipal)
	if n := len(req.GetRoots()); err == nil && (req.GetCommunity() <= 0 || n > maxRoots) {
		err = fmt.Errorf("%d threads of community %d", n, req.GetCommunity())
	}
	roots := make([]nostr.ID, len(req.GetRoots()))
	for i, root := range req.GetRoots() {
		if err == nil && len(root) != len(nostr.ID{}) {
			err = fmt.Errorf("id of %d bytes", len(root))
		}
		copy(roots[i][:], root)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err.Error(), err)
	}
	list, err := s.store.Threads(ctx, access.Reader{Community: tenant.ID(req.GetCommunity()), Keys: keys, Now: s.now().Unix()}, roots)
	if err != nil {
		return nil, err
	}
	resp = &searchv1.DescribeThreadsResponse{}
	for i := range list {
		t := &list[i]
		one := &searchv1.Thread{
			Root: t.Root[:], Replies: t.Replies, Descendants: t.Descendants, LastReplyAt: t.LastReplyAt, SummaryAt: t.SummaryAt,
		}
		for k := range t.Participants {
			one.Participants = append(one.Participants, t.Participants[k][:])
		}
		resp.Threads = append(resp.Threads, one)
	}
	return resp, nil
}

// QueryThread implements searchv1.SearchServiceServer.
func (s *Service) QueryThread(ctx context.Context, req *searchv1.QueryThreadRequest) (resp *searchv1.QueryThreadResponse, err error) {
	end, err := s.admit(ctx, callQuery)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	keys, err := parseKeys(req.GetPrincipal().GetPubkeys(), maxPrincipal)
	page := store.Page{
		Depth: req.GetDepth(), Channel: req.GetChannel(), Limit: int(req.GetLimit()),
		Newest: req.GetNewestFirst(), AfterCreatedAt: req.GetAfterCreatedAt(), AfterID: req.GetAfterId(),
	}
	switch after := len(req.GetAfterId()); {
	case err != nil:
	case req.GetCommunity() <= 0 || page.Limit < 1 || page.Limit > maxReplies || len(req.GetKinds()) > maxValues:
		err = fmt.Errorf("%d replies of %d kinds in community %d", page.Limit, len(req.GetKinds()), req.GetCommunity())
	case len(req.GetRoot()) != len(page.Root) || (after != 0 && after != len(page.Root)):
		err = fmt.Errorf("ids of %d and %d bytes", len(req.GetRoot()), after)
	case page.Channel != "" && !access.IsChannel(page.Channel):
		return &searchv1.QueryThreadResponse{}, nil // there is no such channel
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err.Error(), err)
	}
	copy(page.Root[:], req.GetRoot())
	for _, k := range req.GetKinds() {
		page.Kinds = append(page.Kinds, nostr.Kind(k))
	}
	raws, more, err := s.store.Replies(ctx, access.Reader{Community: tenant.ID(req.GetCommunity()), Keys: keys, Now: s.now().Unix()}, page)
	if err != nil {
		return nil, err
	}
	return &searchv1.QueryThreadResponse{Events: raws, More: more}, nil
}
