package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/pkg/tenant"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// Control is where the gateway hears of revocations; *bus.Bus is one.
type Control interface {
	// Listen calls handle for each message, and resync at the beginning and whenever some may have been lost, until ctx
	// ends.
	Listen(ctx context.Context, subject string, handle func(context.Context, bus.Msg), resync func(context.Context)) error
}

// listenAgain is how long it takes until a subscription that could not be made is tried again.
const listenAgain = time.Second

// heed ends the sessions of those whose access is taken, as soon as ingest says so, on this gateway as on all others. It
// costs nobody anything when a message is lost: what it says is asked of search, at the latest by revalidate; and
// after the bus was away everybody is checked at once.
func (s *Service) heed(ctx context.Context) {
	if s.control == nil {
		return
	}
	for {
		err := s.control.Listen(ctx, subject.AllControl, s.revoked, s.resync)
		if ctx.Err() != nil {
			return
		}
		s.log.LogAttrs(ctx, slog.LevelWarn, "revocations are not heard", slog.Any(telemetry.KeyError, err))
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenAgain):
		}
	}
}

// resync checks everybody, since messages may have been lost.
func (s *Service) resync(ctx context.Context) {
	s.directory.ForgetAll()
	s.told.NoteAll()
	s.checkAll(ctx)
}

// revoked handles one message. Of a key it says only whom to ask about, so an old one does no harm.
func (s *Service) revoked(ctx context.Context, msg bus.Msg) {
	community, err := subject.ParseControl(msg.Subject)
	revocation := &busv1.Revocation{}
	if err == nil {
		err = proto.Unmarshal(msg.Data, revocation)
	}
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "revocation not understood", slog.Any(telemetry.KeyError, err))
		return
	}
	ctx = tenant.With(ctx, tenant.ID(community))
	// Before looking, for who is being let in (package told), and before forgetting: an answer in between would be remembered.
	s.told.Note(community, revocation.GetAclVersion())
	if revocation.GetPubkey() == nil {
		s.directory.Forget(community)
	}
	switch target := revocation.GetTarget().(type) {
	case *busv1.Revocation_Pubkey:
		if of := s.openOf(community, func(one *session.Session) bool {
			return slices.ContainsFunc(one.Principal().GetPubkeys(), func(k []byte) bool { return string(k) == string(target.Pubkey) })
		}); len(of) > 0 {
			s.check(ctx, community, of, revocation.GetAclVersion())
		}
	case *busv1.Revocation_Community:
		s.examine(ctx, community, s.openOf(community, func(*session.Session) bool { return true }))
	case *busv1.Revocation_Network:
		network, err := netip.ParsePrefix(target.Network)
		if err != nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "revocation not understood", slog.Any(telemetry.KeyError, err))
			return
		}
		for _, one := range s.openOf(community, func(one *session.Session) bool { return network.Contains(one.Addr()) }) {
			one.Revoke(fault.Frame(errNetwork))
		}
	}
}

// openOf returns the open sessions of a community that fulfil a condition.
func (s *Service) openOf(community int64, which func(*session.Session) bool) []*session.Session {
	var all []*session.Session
	for one := range s.open() {
		if one.Community().ID == community && which(one) {
			all = append(all, one)
		}
	}
	return all
}
