package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
// closes the connections of those who may not: members who were removed, keys that were banned, and
// everybody else's when a community was closed. Delivery does not depend on it: fan-out and search refuse at once. It is what
// ends a session.
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
			for community, sessions := range s.authenticated() {
				s.check(tenant.With(ctx, tenant.ID(community)), community, sessions)
			}
		}
	}
}

// authenticated returns the sessions with a principal, by community.
func (s *Service) authenticated() map[int64][]*session.Session {
	all := make(map[int64][]*session.Session)
	for _, m := range s.conns.Members() {
		if one, ok := m.(*session.Session); ok && one.Principal() != nil {
			id := one.Community().ID
			all[id] = append(all[id], one)
		}
	}
	return all
}

// check asks about the keys of sessions, as many at a time as one question may hold. What one of its keys
// may do a session may do.
func (s *Service) check(ctx context.Context, community int64, sessions []*session.Session) {
	for len(sessions) > 0 {
		var keys [][]byte
		n := 0
		for n < len(sessions) && len(keys)+maxKeys <= maxCheckedKeys {
			keys = append(keys, sessions[n].Principal().GetPubkeys()...)
			n++
		}
		some := sessions[:n]
		sessions = sessions[n:]
		allowed, err := s.allowed(ctx, community, keys)
		if err != nil {
			// Unknown is not refused: an outage of search must not close every socket.
			s.log.LogAttrs(ctx, slog.LevelWarn, "access not checked again", slog.Any(telemetry.KeyError, err))
			continue
		}
		for _, one := range some {
			// A key that has authenticated since then is not in the answer; it has just been checked.
			if !slices.ContainsFunc(one.Principal().GetPubkeys(), func(k []byte) bool {
				may, asked := allowed[string(k)]
				return may || !asked
			}) {
				c := one.Community()
				one.Revoke(fault.Frame(c.Refusal()))
			}
		}
	}
}

// allowed returns which of the keys may use the community.
func (s *Service) allowed(ctx context.Context, community int64, keys [][]byte) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	resp, err := s.search.CheckAccess(ctx, &searchv1.CheckAccessRequest{Community: community, Pubkeys: keys})
	if err != nil {
		return nil, err
	}
	if len(resp.GetAllowed()) != len(keys) {
		return nil, fmt.Errorf("check access of %d keys: %d answers", len(keys), len(resp.GetAllowed()))
	}
	allowed := make(map[string]bool, len(keys))
	for i, k := range keys {
		allowed[string(k)] = resp.GetAllowed()[i]
	}
	return allowed, nil
}
