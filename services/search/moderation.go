package search

import (
	"context"
	"fmt"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/store"
)

// tables are the lists that are tables.
var tables = map[searchv1.ModerationList]store.List{
	searchv1.ModerationList_MODERATION_LIST_BANNED_PUBKEYS:  store.BannedPubKeys,
	searchv1.ModerationList_MODERATION_LIST_ALLOWED_PUBKEYS: store.Members,
	searchv1.ModerationList_MODERATION_LIST_BANNED_EVENTS:   store.BannedEvents,
	searchv1.ModerationList_MODERATION_LIST_ALLOWED_KINDS:   store.AllowedKinds,
	searchv1.ModerationList_MODERATION_LIST_BLOCKED_IPS:     store.BlockedNetworks,
}

// ListModeration implements searchv1.SearchServiceServer.
func (s *Service) ListModeration(ctx context.Context, req *searchv1.ListModerationRequest) (resp *searchv1.ListModerationResponse, err error) {
	end, err := s.admit(ctx, callModeration)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	actors, err := parseKeys([][]byte{req.GetActor()}, 1)
	if err == nil && req.GetCommunity() <= 0 {
		err = fmt.Errorf("community %d", req.GetCommunity())
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err.Error(), err)
	}
	entries, err := s.moderation(ctx, tenant.ID(req.GetCommunity()), actors[0], req.GetList())
	if err != nil {
		return nil, err
	}
	resp = &searchv1.ListModerationResponse{Entries: make([]*searchv1.ModerationEntry, len(entries))}
	for i, e := range entries {
		resp.Entries[i] = &searchv1.ModerationEntry{Value: e.Value, Reason: e.Reason}
	}
	return resp, nil
}

func (s *Service) moderation(ctx context.Context, community tenant.ID, actor nostr.PubKey, list searchv1.ModerationList) ([]store.Entry, error) {
	if table, ok := tables[list]; ok {
		return s.store.Moderation(ctx, community, actor, table)
	}
	if list != searchv1.ModerationList_MODERATION_LIST_REPORTED_EVENTS {
		return nil, fault.New(fault.Invalid, "no such list")
	}
	return s.store.Reported(ctx, community, actor, s.now().Unix(), s.cfg.AnswerBytes)
}
