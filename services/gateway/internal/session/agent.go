package session

import (
	"context"
	"maps"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/admit"
)

// Agents is told whose agents keys are (NIP-OA); the generated client of ingest has it.
type Agents interface {
	Attest(ctx context.Context, in *ingestv1.AttestRequest, opts ...grpc.CallOption) (*ingestv1.AttestResponse, error)
}

// AdmitAttested is Admit for a key that may have shown whose agent it is: a is nil if it has not, and holds at this moment
// if it has. An attestation that is news is remembered first, since it may be what lets the key in. One that is refused
// takes nothing from a key that may use the community without it, unless its owner is banned.
func (srv *Server) AdmitAttested(
	ctx context.Context, c Community, client *admit.Client, key nostr.PubKey, a *auth.Attestation,
) (owner nostr.PubKey, err error) {
	owner, refused := srv.Admit(ctx, c, key)
	switch reason := fault.ReasonOf(refused); {
	case a == nil, reason != fault.Accepted && reason != fault.Restricted:
		return owner, refused
	case refused == nil && owner == a.Owner:
		return owner, nil
	}
	if !client.Attest(time.Now()) {
		if refused != nil {
			return owner, fault.New(fault.RateLimited, tooManyAttestations)
		}
		return owner, nil
	}
	version, err := srv.attest(ctx, c, *a)
	switch reason := fault.ReasonOf(err); {
	case err == nil:
		// In an open community nothing has changed that search would know by its version.
		_, err = srv.admitSince(ctx, c, key, version)
		return a.Owner, err
	case reason == fault.Blocked:
		return owner, ErrBanned
	case refused == nil:
		return owner, nil
	}
	return owner, err
}

const tooManyAttestations = "too many agents are new here, try again in a minute"

// attest has an attestation remembered, and returns the access version from which on it counts.
func (srv *Server) attest(ctx context.Context, c Community, a auth.Attestation) (uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, srv.cfg.CallTimeout, fault.New(fault.Overloaded, ""))
	defer cancel()
	request := &ingestv1.AttestRequest{Community: c.ID, Agent: a.Agent[:], Owner: a.Owner[:]}
	if until := a.Until(); !until.IsZero() {
		request.Until = timestamppb.New(until)
	}
	resp, err := srv.Agents.Attest(ctx, request)
	return resp.GetAclVersion(), err
}

// attested returns what a proof attests of its author, nil if that is nothing, or does not hold now: an attestation
// that is not valid counts as none (NIP-OA).
func attested(proof *nostr.Event) *auth.Attestation {
	a, err := auth.Attested(proof)
	if err != nil || !a.Covers(proof.CreatedAt) {
		return nil
	}
	return &a
}

// owned notes that a key of the session is somebody's agent. Called with Session.mu held.
func (s *Session) owned(agent, owner nostr.PubKey) {
	if owner.IsZero() {
		return
	}
	agents := map[nostr.PubKey]nostr.PubKey{agent: owner}
	if old := s.auth.agents.Load(); old != nil {
		maps.Copy(agents, *old)
	}
	s.auth.agents.Store(&agents)
}

// agentMay asks for an EVENT of an agent, which has a quota over all its connections. A gift wrap is signed by a key that is
// thrown away (NIP-59), so it is counted to who sends it: the first key of the connection.
func (s *Session) agentMay(f *wire.Frame, now time.Time) (wait time.Duration, ok bool) {
	agents := s.auth.agents.Load()
	if agents == nil {
		return 0, true
	}
	ev, err := s.decodeEvent(f)
	if err != nil {
		return 0, true // ingest says what is wrong
	}
	agent := ev.PubKey
	if keys := s.Principal().GetPubkeys(); ev.Kind.IsGiftWrap() && len(keys) > 0 {
		agent = nostr.PubKey(keys[0])
	}
	owner, ok := (*agents)[agent]
	if !ok {
		return 0, true
	}
	return publishAsAgent(s.client, admit.Agent{Community: s.community.ID, Key: agent, Owner: owner}, ev.Kind, now)
}

// publishAsAgent asks for an event by an agent. What is not kept is not counted: the rate of the connection bounds it, and
// ingest that of frames (NIP-AO).
func publishAsAgent(client *admit.Client, a admit.Agent, k nostr.Kind, now time.Time) (time.Duration, bool) {
	if kind.Of(k).Class == kind.Ephemeral {
		return 0, true
	}
	return client.AgentEvent(a, now)
}
