package agents_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/agents"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// fake answers an attestation and remembers it.
type fake struct {
	err  error
	last store.Attestation
	most int
}

func (f *fake) Attest(_ context.Context, a store.Attestation, most int) (uint64, error) {
	f.last, f.most = a, most
	return 7, f.err
}

func request(agent, owner nostr.PubKey) *ingestv1.AttestRequest {
	return &ingestv1.AttestRequest{Community: 3, Agent: agent[:], Owner: owner[:]}
}

func TestAttest(t *testing.T) {
	t.Parallel()
	bot, bob := nostrtest.PubKey("bot"), nostrtest.PubKey("bob")
	f := &fake{}
	resp, err := agents.New(f, 5).Attest(t.Context(), request(bot, bob))
	require.NoError(t, err)
	require.Equal(t, uint64(7), resp.GetAclVersion())
	require.Equal(t, store.Attestation{Community: 3, Agent: bot, Owner: bob}, f.last)
	require.Equal(t, 5, f.most)

	until := time.Unix(4294967295, 0).UTC()
	r := request(bot, bob)
	r.Until = timestamppb.New(until)
	_, err = agents.New(f, 5).Attest(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, until, f.last.Until)
}

func TestWhatIsNoAttestationIsRefused(t *testing.T) {
	t.Parallel()
	bot, bob := nostrtest.PubKey("bot"), nostrtest.PubKey("bob")
	short, endless := request(bot, bob), request(bot, bob)
	short.Owner = short.GetOwner()[1:]
	endless.Until = &timestamppb.Timestamp{Seconds: 1 << 60}
	for name, r := range map[string]*ingestv1.AttestRequest{
		"nothing": {}, "a short key": short, "no time": endless, "the agent's own word": request(bot, bot),
	} {
		_, err := agents.New(&fake{}, 5).Attest(t.Context(), r)
		require.Equal(t, fault.Invalid, fault.ReasonOf(err), name)
	}
}

func TestRefusalsHaveTheirReasons(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		reason  fault.Reason
		message string
	}{
		{store.ErrBanned, fault.Blocked, "you are banned from this community"},
		{store.ErrNoCommunity, fault.Restricted, "not a relay member"},
		{store.ErrNotMember, fault.Restricted, "not a relay member"},
		{store.ErrOwned, fault.Restricted, "this agent has another owner"},
		{store.ErrAgentOfAgent, fault.Restricted, "an agent cannot own agents"},
		{store.ErrTooManyAgents, fault.Restricted, "one owner can have at most 5 agents"},
		{context.DeadlineExceeded, fault.Timeout, ""},
		{errors.New("broken"), fault.InternalFault, ""},
	} {
		_, err := agents.New(&fake{err: c.err}, 5).Attest(t.Context(), request(nostrtest.PubKey("bot"), nostrtest.PubKey("bob")))
		require.Equal(t, c.reason, fault.ReasonOf(err), c.err)
		if c.message != "" {
			require.Equal(t, c.message, fault.Message(err))
		}
	}
}
