// Package agents serves what gateways have to say of agents: whose they are (NIP-OA). It owns the checks of what it is
// told; that the agent and its owner have signed it the gateway has verified, and what follows from it the store owns.
//
// A Service has no state and is safe for concurrent use.
package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// Store is what is known of agents; *store.Store is one.
type Store interface {
	Attest(ctx context.Context, a store.Attestation, most int) (uint64, error)
}

// Service implements ingestv1.AgentServiceServer.
type Service struct {
	ingestv1.UnimplementedAgentServiceServer
	store Store
	most  int
}

// New returns a service on the store, by which one owner may have so many agents in a community.
func New(s Store, most int) *Service { return &Service{store: s, most: most} }

// Attest remembers the owner of an agent.
func (s *Service) Attest(ctx context.Context, req *ingestv1.AttestRequest) (*ingestv1.AttestResponse, error) {
	agent, err := nostrpb.Fixed[nostr.PubKey](req.GetAgent(), "agent")
	if err != nil {
		return nil, err
	}
	owner, err := nostrpb.Fixed[nostr.PubKey](req.GetOwner(), "owner")
	if err != nil {
		return nil, err
	}
	if owner == agent {
		return nil, fault.New(fault.Invalid, "nobody attests for itself")
	}
	a := store.Attestation{Community: req.GetCommunity(), Agent: agent, Owner: owner}
	if until := req.GetUntil(); until != nil {
		if err := until.CheckValid(); err != nil {
			return nil, fault.Wrap(fault.Invalid, "until is no time", err)
		}
		a.Until = until.AsTime()
	}
	version, err := s.store.Attest(ctx, a, s.most)
	if err != nil {
		return nil, s.failed(err)
	}
	return &ingestv1.AttestResponse{AclVersion: version}, nil
}

// failed gives an error of the store its reason. An owner that is no member is told like any other key that is none.
func (s *Service) failed(err error) error {
	switch {
	case errors.Is(err, store.ErrBanned):
		return fault.Wrap(fault.Blocked, policy.Banned.Message, err)
	case errors.Is(err, store.ErrNoCommunity), errors.Is(err, store.ErrNotMember):
		return fault.Wrap(fault.Restricted, policy.NotMember.Message, err)
	case errors.Is(err, store.ErrOwned):
		return fault.Wrap(fault.Restricted, "this agent has another owner", err)
	case errors.Is(err, store.ErrAgentOfAgent):
		return fault.Wrap(fault.Restricted, "an agent cannot own agents", err)
	case errors.Is(err, store.ErrTooManyAgents):
		return fault.Wrap(fault.Restricted, fmt.Sprintf("one owner can have at most %d agents", s.most), err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case store.IsTransient(err):
		return fault.Wrap(fault.Overloaded, "cannot attest agents at the moment, try again", err)
	}
	return err
}
