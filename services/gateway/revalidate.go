package gateway

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/pkg/tenant"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/edge"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// maxCheckedKeys is how many keys one CheckAccess may name, by contract.
const maxCheckedKeys = 4096

// revalidate checks again and again whether those who are connected may still use their community, and
// closes the connections of those who may not: members who were removed, keys that were banned, clients of networks
// that were blocked, everybody else's when a community was closed, and all when it was archived. Delivery does not depend on it: fan-out and search
// refuse at once. It is what ends a session whose revocation was not heard.
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
			s.checkAll(ctx)
		}
	}
}

// checkAll checks every session once.
func (s *Service) checkAll(ctx context.Context) {
	all := make(map[int64][]*session.Session)
	for one := range s.open() {
		id := one.Community().ID
		all[id] = append(all[id], one)
	}
	for community, sessions := range all {
		ctx := tenant.With(ctx, tenant.ID(community))
		s.checkNetworks(ctx, sessions)
		s.check(ctx, community, sessions, 0)
	}
}

// open yields the open sessions.
func (s *Service) open() iter.Seq[*session.Session] {
	return func(yield func(*session.Session) bool) {
		for _, m := range s.conns.Members() {
			if one, ok := m.(*session.Session); ok && !yield(one) {
				return
			}
		}
	}
}

// checkNetworks looks whether sessions of one community come from networks that it refuses.
func (s *Service) checkNetworks(ctx context.Context, sessions []*session.Session) {
	c, err := s.directory.Resolve(ctx, sessions[0].Community().Hosts[0])
	if errors.Is(err, edge.ErrNoCommunity) {
		return // they are about to be closed, if it stays so
	}
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "blocked networks not checked again", slog.Any(telemetry.KeyError, err))
		return
	}
	for _, one := range sessions {
		if c.ID == one.Community().ID && c.Refuses(one.Addr()) {
			one.Revoke(fault.Frame(errNetwork))
		}
	}
}

// errGone is what everybody is told whose community was archived.
var errGone = fault.New(fault.NotFound, "this community is not served any more")

// errNetwork is what a client of a blocked network is told.
var errNetwork = fault.New(fault.Blocked, "your network is blocked by this community")

// check asks about the keys of sessions, as many at a time as one question may hold, by a state that is at least as new
// as a version. What one of its keys may do a session may do, and one that has no key yet may stay; but when the community is
// served to nobody any more, all go.
func (s *Service) check(ctx context.Context, community int64, sessions []*session.Session, version uint64) {
	for len(sessions) > 0 {
		var keys [][]byte
		n := 0
		for n < len(sessions) && len(keys)+maxKeys <= maxCheckedKeys {
			keys = append(keys, sessions[n].Principal().GetPubkeys()...)
			n++
		}
		some := sessions[:n]
		sessions = sessions[n:]
		access, err := s.access(ctx, community, keys, version)
		if err != nil {
			// Unknown is not refused: an outage of search must not close every socket.
			s.log.LogAttrs(ctx, slog.LevelWarn, "access not checked again", slog.Any(telemetry.KeyError, err))
			continue
		}
		for _, one := range some {
			if access.gone {
				one.Revoke(fault.Frame(errGone))
				continue
			}
			if one.Principal() == nil {
				continue
			}
			// A key that has authenticated since then is not in the answer; it has just been checked.
			if !slices.ContainsFunc(one.Principal().GetPubkeys(), func(k []byte) bool {
				may, asked := access.allowed[string(k)]
				return may || !asked
			}) {
				one.Revoke(fault.Frame(access.refusal(one)))
			}
		}
	}
}

// access is what is known of some keys, and of their community.
type access struct {
	allowed, banned map[string]bool
	gone            bool
}

// refusal is what a session is told none of whose keys is allowed.
func (a *access) refusal(one *session.Session) error {
	if slices.ContainsFunc(one.Principal().GetPubkeys(), func(k []byte) bool { return a.banned[string(k)] }) {
		return session.ErrBanned
	}
	return session.ErrNotMember
}

// access returns which of the keys may use the community, and which are banned from it.
func (s *Service) access(ctx context.Context, community int64, keys [][]byte, version uint64) (*access, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	resp, err := s.search.CheckAccess(ctx, &searchv1.CheckAccessRequest{
		Community: community, Pubkeys: keys, MinCommunityAclVersion: version,
	})
	if err != nil {
		return nil, err
	}
	if len(resp.GetAllowed()) != len(keys) {
		return nil, fmt.Errorf("check access of %d keys: %d answers", len(keys), len(resp.GetAllowed()))
	}
	a := &access{gone: resp.GetGone(), allowed: make(map[string]bool, len(keys)), banned: make(map[string]bool, len(resp.GetBanned()))}
	for i, k := range keys {
		a.allowed[string(k)] = resp.GetAllowed()[i]
	}
	for _, k := range resp.GetBanned() {
		a.banned[string(k)] = true
	}
	return a, nil
}
