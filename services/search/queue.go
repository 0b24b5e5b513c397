package search

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/store"
)

// statuses are the words of the database.
var statuses = map[searchv1.ReportStatus]string{
	searchv1.ReportStatus_REPORT_STATUS_UNSPECIFIED: "",
	searchv1.ReportStatus_REPORT_STATUS_OPEN:        "open",
	searchv1.ReportStatus_REPORT_STATUS_RESOLVED:    "resolved",
	searchv1.ReportStatus_REPORT_STATUS_DISMISSED:   "dismissed",
	searchv1.ReportStatus_REPORT_STATUS_ESCALATED:   "escalated",
}

// queueRequest is what the requests have in common.
type queueRequest interface {
	GetCommunity() int64
	GetActor() []byte
	GetLimit() uint32
}

// queue reads a list for a moderator.
func queue[T any](
	ctx context.Context, s *Service, req queueRequest, read func(context.Context, tenant.ID, nostr.PubKey, int) ([]T, error),
) (list []T, err error) {
	end, err := s.admit(ctx, callModeration)
	if err != nil {
		return nil, err
	}
	defer func() { end(err) }()
	actors, err := parseKeys([][]byte{req.GetActor()}, 1)
	switch {
	case err != nil:
	case req.GetCommunity() <= 0:
		err = fmt.Errorf("community %d", req.GetCommunity())
	case req.GetLimit() == 0 || req.GetLimit() > tenant.MaxModerationList:
		err = fmt.Errorf("limit must be 1 to %d", tenant.MaxModerationList)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err.Error(), err)
	}
	return read(ctx, tenant.ID(req.GetCommunity()), actors[0], int(req.GetLimit()))
}

// ListReports implements searchv1.ModerationServiceServer.
func (s *Service) ListReports(ctx context.Context, req *searchv1.ListReportsRequest) (*searchv1.ListReportsResponse, error) {
	status, known := statuses[req.GetStatus()]
	if !known {
		return nil, fault.New(fault.Invalid, "no such status")
	}
	list, err := queue(ctx, s, req, func(ctx context.Context, community tenant.ID, actor nostr.PubKey, limit int) ([]store.Report, error) {
		return s.store.Reports(ctx, community, actor, s.now().Unix(), s.cfg.AnswerBytes, status, limit)
	})
	if err != nil {
		return nil, err
	}
	resp := &searchv1.ListReportsResponse{}
	size := 0
	for _, r := range list {
		if size += len(r.Event); size > maxQueueBytes {
			break
		}
		entry := &searchv1.ReportEntry{Event: r.Event, Action: r.Action, DecidedBy: r.By, DecideTime: timestamp(r.At)}
		for number, word := range statuses {
			if word == r.Status {
				entry.Status = number
			}
		}
		resp.Reports = append(resp.Reports, entry)
	}
	return resp, nil
}

// maxQueueBytes is how many bytes of reports one answer has; older ones are left out.
const maxQueueBytes = 2 << 20

// ListActions implements searchv1.ModerationServiceServer.
func (s *Service) ListActions(ctx context.Context, req *searchv1.ListActionsRequest) (*searchv1.ListActionsResponse, error) {
	list, err := queue(ctx, s, req, s.store.Actions)
	if err != nil {
		return nil, err
	}
	resp := &searchv1.ListActionsResponse{Actions: make([]*searchv1.ActionEntry, len(list))}
	for i, a := range list {
		resp.Actions[i] = &searchv1.ActionEntry{
			Action: a.Action, Actor: a.Actor, CommandId: a.Command, Pubkey: a.PubKey, EventId: a.ID, ReportId: a.From,
			Subject: a.Subject, Reason: a.Reason, ExpireTime: timestamp(a.Expires), DecideTime: timestamppb.New(a.At),
		}
	}
	return resp, nil
}

// ListRestrictions implements searchv1.ModerationServiceServer.
func (s *Service) ListRestrictions(ctx context.Context, req *searchv1.ListRestrictionsRequest) (*searchv1.ListRestrictionsResponse, error) {
	list, err := queue(ctx, s, req, s.store.Restrictions)
	if err != nil {
		return nil, err
	}
	resp := &searchv1.ListRestrictionsResponse{Restrictions: make([]*searchv1.RestrictionEntry, len(list))}
	for i, r := range list {
		resp.Restrictions[i] = &searchv1.RestrictionEntry{
			Pubkey: r.PubKey, Banned: r.Banned, Reason: r.Reason, DecidedBy: r.By,
			DecideTime: timestamppb.New(r.At), ExpireTime: timestamp(r.Expires),
		}
	}
	return resp, nil
}

// timestamp is nil for what has no time.
func timestamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}
