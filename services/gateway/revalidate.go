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
// that were blocked, or of a host that was taken from the community, everybody else's when it was closed, and all when it was archived.
// Delivery does not depend on it: fan-out and search refuse at once. It is what ends a session whose revocation was not heard, and
// looks at once at those that came to be while one was heard.
func (s *Service) revalidate(ctx context.Context) {
	var tick <-chan time.Time
	if s.cfg.Revalidate > 0 {
		ticker := time.NewTicker(s.cfg.Revalidate)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			s.checkAll(ctx)
		case <-s.doubts.Wake():
			s.checkEach(ctx, slices.Values(s.doubts.Take()))
		}
	}
}

// checkAll checks every session once.
func (s *Service) checkAll(ctx context.Context) { s.checkEach(ctx, s.open()) }

// checkEach checks sessions of any communities.
func (s *Service) checkEach(ctx context.Context, sessions iter.Seq[*session.Session]) {
	all := make(map[int64][]*session.Session)
	for one := range sessions {
		id := one.Community().ID
		all[id] = append(all[id], one)
	}
	for community, of := range all {
		s.examine(tenant.With(ctx, tenant.ID(community)), community, of)
	}
}

// examine checks everything about sessions of one community, by a state that is at least as new as what was told of it.
func (s *Service) examine(ctx context.Context, community int64, sessions []*session.Session) {
	s.check(ctx, community, s.checkHosts(ctx, community, sessions), s.told.Version(community))
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

// checkHosts closes sessions of one community whose host is not its own any more, and those that come from networks that it
// refuses, and returns the others, who are told its hosts. What is not known now closes nobody.
func (s *Service) checkHosts(ctx context.Context, community int64, sessions []*session.Session) (stay []*session.Session) {
	type answer struct {
		community *edge.Community
		err       error
	}
	hosts := make(map[string]answer, 1)
	for i, one := range sessions {
		host := one.Community().Host
		a, asked := hosts[host]
		if !asked {
			a.community, a.err = s.directory.Resolve(ctx, host)
			hosts[host] = a
		}
		if a.err != nil && !errors.Is(a.err, edge.ErrNoCommunity) {
			s.log.LogAttrs(ctx, slog.LevelWarn, "hosts not checked again", slog.Any(telemetry.KeyError, a.err))
			return append(stay, sessions[i:]...)
		}
		switch {
		case a.err != nil, a.community.ID != community:
			one.Revoke(fault.Frame(errGone))
		case a.community.Refuses(one.Addr()):
			one.Revoke(fault.Frame(errNetwork))
		default:
			one.Rehost(a.community.Hosts)
			stay = append(stay, one)
		}
	}
	return stay
}

// errGone is what everybody is told whose community was archived, or has lost the host by which it was reached.
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
