package session

import (
	"context"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// Bounds of a page of a thread.
const (
	threadReplies    = 100 // unless the filter says
	maxThreadReplies = 500 // whatever it says
)

// Thread is a page of the replies of a thread.
type Thread struct {
	// Filter has the thread's first event (#e), and may have kinds, one channel (#h) and a limit: 100 unless it says, 1 to 500.
	Filter nostr.Filter
	// Depth is how deep replies are at most; those to the first event are at 1.
	Depth uint32
	// AfterCreatedAt and AfterID are the place of the last reply of the page before; without AfterID it is the first page.
	AfterCreatedAt int64
	AfterID        []byte
}

// Thread passes replies of a thread to each, the oldest first.
func (srv *Server) Thread(ctx context.Context, community int64, p *commonv1.Principal, t Thread, each func(raw []byte) error) error {
	if _, err := srv.planFor(p, []nostr.Filter{t.Filter}); err != nil || t.Filter.MatchesNothing {
		return err
	}
	roots, _ := t.Filter.Tag('e')
	channels, _ := t.Filter.Tag('h')
	if len(roots) != 1 || len(channels) > 1 {
		return fault.New(fault.Invalid, "depth_limit requires exactly one #e")
	}
	root, err := nostr.ParseID(roots[0])
	if err != nil {
		return fault.New(fault.Invalid, "depth_limit requires an event id in #e")
	}
	limit := threadReplies
	if t.Filter.Limit != nil {
		limit = *t.Filter.Limit
	}
	req := &searchv1.QueryThreadRequest{
		Community: community, Principal: p, Root: root[:], Depth: t.Depth, Limit: uint32(min(max(limit, 1), maxThreadReplies)),
		AfterCreatedAt: t.AfterCreatedAt, AfterId: t.AfterID,
	}
	if len(channels) == 1 {
		req.Channel = channels[0]
	}
	for _, k := range t.Filter.Kinds {
		req.Kinds = append(req.Kinds, uint32(k))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, srv.cfg.CallTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	resp, err := srv.Search.QueryThread(ctx, req)
	if err != nil {
		return err
	}
	for _, raw := range resp.GetEvents() {
		if err := each(raw); err != nil {
			return err
		}
	}
	return nil
}
