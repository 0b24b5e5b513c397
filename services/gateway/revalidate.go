package gateway

import (
	"context"
	"log/slog"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/pkg/tenant"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// maxCheckedKeys is how many keys one CheckAccess may name, by contract.
const maxCheckedKeys = 4096

// revalidate checks again and again whether those who are connected may still use their community, and
// closes the connections of those who may not. Delivery does not depend on it: fan-out and search refuse
// at once. It is what ends a session.
func (s *Service) revalidate(ctx context.Context) {
	if s.cfg.Revalidate <= 0 {
		return
	}
	tick := time.NewTicker(s.cfg.Revalidate)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for community, sessions := range s.closedCommunities() {
				s.check(tenant.With(ctx, tenant.ID(community)), community, sessions)
			}
		}
	}
}

// closedCommunities returns the sessions of communities that only members may use.
func (s *Service) closedCommunities() map[int64][]*session.Session {
	all := make(map[int64][]*session.Session)
	for _, m := range s.conns.Members() {
		if one, ok := m.(*session.Session); ok && one.Community().Closed && one.Principal() != nil {
			all[one.Community().ID] = append(all[one.Community().ID], one)
		}
	}
	return all
}

// check asks about the keys of sessions, as many at a time as one question may hold.
func (s *Service) check(ctx context.Context, community int64, sessions []*session.Session) {
	var keys [][]byte
	var owners []*session.Session
	ask := func() {
		revoked, err := s.revoked(ctx, community, keys)
		if err != nil {
			// Unknown is not refused: an outage of search must not close every socket.
			s.log.LogAttrs(ctx, slog.LevelWarn, "access not checked again", slog.Any(telemetry.KeyError, err))
		}
		for _, i := range revoked {
			owners[i].Revoke(fault.FrameText(fault.Restricted, "not a relay member"))
		}
		keys, owners = keys[:0], owners[:0]
	}
	for _, one := range sessions {
		for _, k := range one.Principal().GetPubkeys() {
			if len(keys) == maxCheckedKeys {
				ask()
			}
			keys, owners = append(keys, k), append(owners, one)
		}
	}
	if len(keys) > 0 {
		ask()
	}
}

// revoked returns the indexes of the keys that may not use the community.
func (s *Service) revoked(ctx context.Context, community int64, keys [][]byte) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	resp, err := s.search.CheckAccess(ctx, &searchv1.CheckAccessRequest{Community: community, Pubkeys: keys})
	if err != nil {
		return nil, err
	}
	var out []int
	for i, allowed := range resp.GetAllowed() {
		if !allowed && i < len(keys) {
			out = append(out, i)
		}
	}
	return out, nil
}
