// Package invites serves the codes with which keys become members (NIP-43). It owns the checks of what is asked
// for; the store owns who may make a code, how often one is good, and what the relay signs when somebody joins.
//
// A Service has no state and is safe for concurrent use.
package invites

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// Bounds of an invite.
const (
	defaultLife = 72 * time.Hour
	minLife     = time.Second
	maxLife     = 30 * 24 * time.Hour
	maxUses     = 10_000
	maxCode     = 256
)

// Store is what invites are kept in; *store.Store does.
type Store interface {
	MintInvite(ctx context.Context, community int64, actor nostr.PubKey, life time.Duration, uses int) (store.Invite, error)
	ClaimInvite(ctx context.Context, c store.Claim) (policy.Role, error)
}

// Service implements ingestv1.InviteServiceServer.
type Service struct {
	ingestv1.UnimplementedInviteServiceServer
	store Store
	joins *policy.JoinPolicy
}

// New returns a service on the store. joins is what whoever joins has to accept, nil for nothing; the store asks for it.
func New(s Store, joins *policy.JoinPolicy) *Service { return &Service{store: s, joins: joins} }

// MintInvite makes a code.
func (s *Service) MintInvite(ctx context.Context, req *ingestv1.MintInviteRequest) (*ingestv1.MintInviteResponse, error) {
	actor, err := nostrpb.Fixed[nostr.PubKey](req.GetActor(), "actor")
	if err != nil {
		return nil, err
	}
	life := defaultLife
	if d := req.GetLife(); d != nil {
		life = d.AsDuration()
		if !d.IsValid() || life < minLife || life > maxLife {
			return nil, fault.New(fault.Invalid, fmt.Sprintf("an invite lives %d to %d seconds", minLife/time.Second, maxLife/time.Second))
		}
	}
	if req.GetMaxUses() > maxUses {
		return nil, fault.New(fault.Invalid, fmt.Sprintf("an invite is good for at most %d uses", maxUses))
	}
	invite, err := s.store.MintInvite(ctx, req.GetCommunity(), actor, life, int(req.GetMaxUses()))
	if err != nil {
		return nil, failed(err)
	}
	resp := &ingestv1.MintInviteResponse{Code: invite.Code, ExpiresAt: timestamppb.New(invite.ExpiresAt)}
	if invite.Event != nil {
		resp.Event = invite.Event.AppendJSON(nil)
	}
	return resp, nil
}

// ClaimInvite makes a key a member.
func (s *Service) ClaimInvite(ctx context.Context, req *ingestv1.ClaimInviteRequest) (*ingestv1.ClaimInviteResponse, error) {
	pubkey, err := nostrpb.Fixed[nostr.PubKey](req.GetPubkey(), "pubkey")
	if err != nil {
		return nil, err
	}
	if len(req.GetCode()) > maxCode {
		return &ingestv1.ClaimInviteResponse{Outcome: ingestv1.ClaimOutcome_CLAIM_OUTCOME_INVALID}, nil
	}
	role, err := s.store.ClaimInvite(ctx, store.Claim{
		Community: req.GetCommunity(), PubKey: pubkey, Code: req.GetCode(), Receipt: req.GetPolicyReceipt(),
	})
	resp := &ingestv1.ClaimInviteResponse{Role: string(role)}
	switch {
	case err == nil:
		resp.Outcome = ingestv1.ClaimOutcome_CLAIM_OUTCOME_JOINED
	case errors.Is(err, store.ErrAlreadyMember):
		resp.Outcome = ingestv1.ClaimOutcome_CLAIM_OUTCOME_ALREADY_MEMBER
	case errors.Is(err, store.ErrInviteInvalid):
		resp.Outcome = ingestv1.ClaimOutcome_CLAIM_OUTCOME_INVALID
	case errors.Is(err, store.ErrInviteExpired):
		resp.Outcome = ingestv1.ClaimOutcome_CLAIM_OUTCOME_EXPIRED
	case errors.Is(err, store.ErrInviteUsedUp):
		resp.Outcome = ingestv1.ClaimOutcome_CLAIM_OUTCOME_USED_UP
	case errors.Is(err, store.ErrPolicyRequired):
		resp.Outcome = ingestv1.ClaimOutcome_CLAIM_OUTCOME_POLICY_REQUIRED
	default:
		return nil, failed(err)
	}
	return resp, nil
}

// GetJoinPolicy returns what whoever joins has to accept.
func (s *Service) GetJoinPolicy(context.Context, *ingestv1.GetJoinPolicyRequest) (*ingestv1.GetJoinPolicyResponse, error) {
	if s.joins == nil {
		return &ingestv1.GetJoinPolicyResponse{}, nil
	}
	return &ingestv1.GetJoinPolicyResponse{Policy: &ingestv1.JoinPolicy{
		TermsMarkdown: s.joins.Terms, PrivacyMarkdown: s.joins.Privacy, AgeAttestationRequired: s.joins.Age, Version: s.joins.Version(),
	}}, nil
}

// AcceptJoinPolicy returns a receipt. It does not look at the code: whoever asks has shown no key, and could find out by
// asking which codes are good.
func (s *Service) AcceptJoinPolicy(_ context.Context, req *ingestv1.AcceptJoinPolicyRequest) (*ingestv1.AcceptJoinPolicyResponse, error) {
	switch {
	case s.joins == nil:
		return nil, fault.New(fault.NotFound, "join_policy_not_configured")
	case req.GetCode() == "" || len(req.GetCode()) > maxCode:
		return nil, fault.New(fault.Invalid, fmt.Sprintf("code must have 1 to %d bytes", maxCode))
	}
	receipt, wrong := s.joins.Accept(req.GetCommunity(), req.GetCode(), req.GetVersion(), req.GetAgeConfirmed())
	if wrong != "" {
		return nil, fault.New(fault.Invalid, "join_policy_not_accepted: "+wrong)
	}
	return &ingestv1.AcceptJoinPolicyResponse{Receipt: receipt}, nil
}

// failed gives an error of the store its reason.
func failed(err error) error {
	switch {
	case errors.Is(err, store.ErrNotModerator):
		return fault.Wrap(fault.Restricted, "only relay owners and admins can create invites", err)
	case errors.Is(err, store.ErrTooManyInvites):
		return fault.Wrap(fault.Restricted, fmt.Sprintf("at most %d invites can be open", store.MaxInvites), err)
	case errors.Is(err, store.ErrBanned):
		return fault.Wrap(fault.Blocked, policy.Banned.Message, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case store.IsTransient(err):
		return fault.Wrap(fault.Overloaded, "cannot handle invites at the moment, try again", err)
	}
	return err
}
