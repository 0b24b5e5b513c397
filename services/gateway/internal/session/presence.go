package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// Presence is what sessions ask about who is online; the generated client has it.
type Presence interface {
	GetPresence(ctx context.Context, in *ingestv1.GetPresenceRequest, opts ...grpc.CallOption) (
		*ingestv1.GetPresenceResponse, error)
}

// maxPresences is how many keys one request may ask about, by ingest's contract; as many as events of one filter.
const maxPresences = 500

// asksPresence reports whether a filter asks who of its authors is online, and for nothing else: presence is never
// stored, so a stored read of it is answered by what the relay knows.
func asksPresence(f *nostr.Filter) bool {
	return len(f.Kinds) > 0 && len(f.Authors) > 0 && len(f.IDs) == 0 && len(f.Tags) == 0 && f.Search == "" &&
		!slices.ContainsFunc(f.Kinds, func(k nostr.Kind) bool { return k != nostr.KindPresence && k != nostr.KindPresenceSnapshot })
}

// askPresence adds what a filter asks about to the query.
func (q *query) askPresence(f *nostr.Filter, limit uint32) error {
	now := time.Now().Unix()
	if limit == 0 || (f.Since != nil && *f.Since > now) || (f.Until != nil && *f.Until < now) {
		return nil // the answer would be from now
	}
	ask := presences{limit: int(limit), of: make(map[nostr.PubKey]bool, len(f.Authors))}
	for _, a := range f.Authors {
		if ask.of[a] {
			continue
		}
		ask.of[a] = true
		if !slices.ContainsFunc(q.presences, func(p presences) bool { return p.of[a] }) {
			q.present = append(q.present, a[:])
		}
	}
	if len(q.present) > maxPresences {
		return fault.New(fault.Invalid, fmt.Sprintf("presence of more than %d keys in one request", maxPresences))
	}
	q.presences = append(q.presences, ask)
	return nil
}

// presences is what one filter asks about.
type presences struct {
	of    map[nostr.PubKey]bool
	limit int
}

// presence passes an event for each key that the query asks about and that is online to each.
func (srv *Server) presence(
	ctx context.Context, who turn, community int64, q query, p *commonv1.Principal, each func(ctx context.Context, raw []byte) error,
) error {
	if len(q.presences) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, srv.cfg.QueryTimeout)
	defer cancel()
	statuses, err := srv.presences(ctx, who, community, q, p)
	if err != nil {
		return err
	}
	passed := make([]int, len(q.presences))
	for _, s := range statuses {
		key, wanted := nostr.PubKey(s.GetPubkey()), false
		for i, ask := range q.presences {
			if ask.of[key] && passed[i] < ask.limit {
				passed[i]++
				wanted = true
			}
		}
		if wanted {
			if err := each(ctx, s.GetEvent()); err != nil {
				return err
			}
		}
	}
	return nil
}

// presences asks about the keys of a query. To a principal that may not use the community any more nobody is online.
func (srv *Server) presences(
	ctx context.Context, who turn, community int64, q query, p *commonv1.Principal,
) ([]*ingestv1.PresenceStatus, error) {
	release, err := srv.queries.Acquire(ctx, who)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, srv.cfg.CallTimeout, fault.New(fault.Timeout, ""))
	defer cancel()
	access, err := srv.Search.CheckAccess(ctx, &searchv1.CheckAccessRequest{Community: community, Pubkeys: p.GetPubkeys()})
	if err != nil || !slices.Contains(access.GetAllowed(), true) {
		return nil, callError(ctx, err)
	}
	resp, err := srv.Presence.GetPresence(ctx, &ingestv1.GetPresenceRequest{Community: community, Pubkeys: q.present})
	if err != nil {
		return nil, callError(ctx, err)
	}
	for _, s := range resp.GetStatuses() {
		if len(s.GetPubkey()) != len(nostr.PubKey{}) {
			return nil, fault.Internal(fmt.Errorf("get presence: a key of %d bytes", len(s.GetPubkey())))
		}
	}
	return resp.GetStatuses(), nil
}
