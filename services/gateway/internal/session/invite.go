package session

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/limit"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/admit"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
)

// Invites makes and takes invite codes (NIP-43), and knows what whoever shows one has to accept; the generated client of ingest has it.
type Invites interface {
	MintInvite(ctx context.Context, in *ingestv1.MintInviteRequest, opts ...grpc.CallOption) (*ingestv1.MintInviteResponse, error)
	ClaimInvite(ctx context.Context, in *ingestv1.ClaimInviteRequest, opts ...grpc.CallOption) (*ingestv1.ClaimInviteResponse, error)
	GetJoinPolicy(ctx context.Context, in *ingestv1.GetJoinPolicyRequest, opts ...grpc.CallOption) (*ingestv1.GetJoinPolicyResponse, error)
	AcceptJoinPolicy(ctx context.Context, in *ingestv1.AcceptJoinPolicyRequest, opts ...grpc.CallOption) (*ingestv1.AcceptJoinPolicyResponse, error)
}

// What one key may try in a minute at one gateway: to join with a code, or to have one made.
const (
	attemptsPerMinute = 10
	maxAttemptKeys    = 64 << 10
)

// TooManyAttempts answers who tries too often to join with a code, or to have one made.
const TooManyAttempts = "too many attempts with invites, try again in a minute"

// attempts bounds how often keys try codes.
type attempts struct{ keys *limit.Keyed[nostr.PubKey] }

func newAttempts() *attempts {
	return &attempts{limit.NewKeyed[nostr.PubKey](attemptsPerMinute/time.Minute.Seconds(), attemptsPerMinute, maxAttemptKeys)}
}

func (a *attempts) allow(key nostr.PubKey) bool {
	_, ok := a.keys.Allow(key, 1, time.Now())
	return ok
}

// Claim reports whether a key may try to join now with an invite code, from a client's address, as a fault if not.
func (srv *Server) Claim(key nostr.PubKey, client *admit.Client) error {
	if !client.Claim(time.Now()) {
		return fault.New(fault.RateLimited, TooManyAttempts)
	}
	return srv.Attempt(key)
}

// Attempt reports whether a key may try something with an invite code now, as a fault if not.
func (srv *Server) Attempt(key nostr.PubKey) error {
	if !srv.attempts.allow(key) {
		return fault.New(fault.RateLimited, TooManyAttempts)
	}
	return nil
}

// asksInvite reports whether a filter asks for an invite: it names the kind, and nothing that no invite can have.
func asksInvite(f *nostr.Filter) bool {
	return slices.Contains(f.Kinds, nostr.KindRelayInvite) && len(f.IDs) == 0 && len(f.Tags) == 0 && f.Search == "" &&
		(f.Limit == nil || *f.Limit > 0)
}

// invite sends an invite that was made for this request, if its filters ask for one and one of the keys may invite.
// Nobody else is told anything, and whatever goes wrong there is none.
func (s *Session) invite(ctx context.Context, sub *subscription, filters []*commonv1.Filter, p *commonv1.Principal) {
	ctx, cancel := context.WithTimeout(ctx, s.srv.cfg.CallTimeout)
	defer cancel()
	for _, key := range p.GetPubkeys() {
		if !s.srv.attempts.allow(nostr.PubKey(key)) {
			continue
		}
		resp, err := s.srv.Invites.MintInvite(ctx, &ingestv1.MintInviteRequest{Community: s.community.ID, Actor: key})
		if err != nil {
			s.srv.Log.LogAttrs(ctx, slog.LevelDebug, "no invite made", slog.Any(telemetry.KeyError, err))
			continue
		}
		ev, err := wire.DecodeEvent(resp.GetEvent(), s.srv.cfg.Wire)
		if err == nil && slices.ContainsFunc(filters, func(pb *commonv1.Filter) bool {
			f, err := nostrpb.FilterFromProto(pb)
			return err == nil && f.Match(ev)
		}) && s.conn.HistoryRoom(ctx) == nil {
			sub.send(hub.Stored(sub.prefix, resp.GetEvent()))
		}
		return
	}
}
