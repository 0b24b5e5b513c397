package gateway_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

// agents answers attestations as the test says, and remembers them.
type agents struct {
	ingestv1.UnimplementedAgentServiceServer

	mu    sync.Mutex
	err   error                     // guarded by mu
	asked []*ingestv1.AttestRequest // guarded by mu
}

func (a *agents) Attest(_ context.Context, req *ingestv1.AttestRequest) (*ingestv1.AttestResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, req)
	if a.err != nil {
		return nil, a.err
	}
	return &ingestv1.AttestResponse{AclVersion: 9}, nil
}

// set says what is answered from now on, and returns what was asked until then.
func (a *agents) set(err error) []*ingestv1.AttestRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := a.asked
	a.err, a.asked = err, nil
	return asked
}

// show connects as an agent and shows whose it is.
func (w *world) show(host, agent, owner, conditions string) (*client, wire.RelayFrame) {
	w.tb.Helper()
	tag, err := auth.Attest(nostrtest.Key(owner), nostrtest.PubKey(agent), conditions)
	require.NoError(w.tb, err)
	c := w.dial(host)
	ev := nostrtest.Auth(w.tb, agent, c.challenge, "ws://"+host+"/", time.Now().Unix(), nostrtest.Tag(tag...))
	c.send(string(wire.AppendClientAuth(nil, nostrtest.Raw(ev))))
	return c, c.expect(wire.LabelOK)
}

// Whatever becomes of an attestation, a key that may use the community without it does, unless its owner is banned; and one
// that may not is told why.
func TestWhatComesOfAnAttestation(t *testing.T) {
	for name, c := range map[string]struct {
		err        error
		open, shut string // what a key is told that may, and that may not, use the community without it
	}{
		"refused":     {fault.New(fault.Restricted, "one owner can have at most 5 agents"), "", "restricted: one owner can have at most 5 agents"},
		"unavailable": {fault.New(fault.Overloaded, "cannot attest agents at the moment, try again"), "", "error: cannot attest agents at the moment, try again"},
		"banned":      {fault.New(fault.Blocked, "you are banned from this community"), "blocked: you are banned from this community", "blocked: you are banned from this community"},
		"remembered":  {nil, "", "restricted: not a relay member"}, // search lets nobody in here
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.agents.set(c.err)
			_, f := w.show(openHost, "bot", "bob", "")
			require.Equal(t, c.open, f.Message)
			require.Equal(t, c.open == "", f.OK)
			_, f = w.show(closedHost, "bot", "bob", "")
			require.False(t, f.OK)
			require.Equal(t, c.shut, f.Message)
		})
	}
}

// An agent is asked about by a state in which its attestation counts, and what it has shown is passed on as it is.
func TestAnAttestationIsPassedOn(t *testing.T) {
	w := newWorld(t)
	bot, bob := nostrtest.PubKey("bot"), nostrtest.PubKey("bob")
	_, f := w.show(openHost, "bot", "bob", "kind=9&created_at<4294967295")
	require.True(t, f.OK)
	asked := w.agents.set(nil)
	require.Len(t, asked, 1)
	require.Equal(t, bot[:], asked[0].GetAgent())
	require.Equal(t, bob[:], asked[0].GetOwner())
	require.Equal(t, int64(openCommunity), asked[0].GetCommunity())
	require.Equal(t, int64(4294967295), asked[0].GetUntil().GetSeconds())
	w.search.set(func() { require.Equal(t, uint64(9), w.search.leastVersion) })

	_, f = w.show(openHost, "bot", "bob", "created_at<5")
	require.True(t, f.OK, "what does not hold is none")
	w.login(openHost, "bot")
	require.Empty(t, w.agents.set(nil))
}

// New agents of one address are as many in a minute as attempts to join; who may use the community is not kept from it.
func TestNewAgentsAreLimited(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.OffenceRate = 0 }))
	for range 60 {
		_, f := w.show(openHost, "bot", "bob", "")
		require.True(t, f.OK)
	}
	require.Len(t, w.agents.set(nil), 60)
	var f wire.RelayFrame
	for range 60 { // one a second is given back meanwhile
		if _, f = w.show(closedHost, "bot", "bob", ""); f.Message != "restricted: not a relay member" {
			break
		}
	}
	require.Equal(t, "rate-limited: too many agents are new here, try again in a minute", f.Message)
	_, f = w.show(openHost, "bot", "bob", "")
	require.True(t, f.OK)
}

// An agent's quota is of all that is kept, gift wraps included, which are signed by keys that are thrown away.
func TestAgentsHaveAQuotaOfEvents(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.AgentEventsPerMinute = 2 }))
	bot, wrapper := nostrtest.PubKey("bot"), nostrtest.PubKey("wrapper")
	w.search.set(func() {
		w.search.owners = map[string]nostr.PubKey{string(bot[:]): nostrtest.PubKey("bob"), string(wrapper[:]): nostrtest.PubKey("bob")}
	})
	say := func(c *client, author string, kind nostr.Kind) string {
		ev := nostrtest.Event(t, author, nostrtest.Kind(kind))
		c.publish(ev)
		return c.expect(wire.LabelOK).Message
	}
	const exceeded = "rate-limited: quota exceeded; retry in "
	for agent, kind := range map[string]nostr.Kind{"bot": nostr.KindText, "wrapper": nostr.KindGiftWrap} {
		c, author := w.login(openHost, agent), agent
		if kind == nostr.KindGiftWrap {
			author = "thrown away"
		}
		require.Empty(t, say(c, author, kind))
		require.Empty(t, say(c, author, kind))
		require.Contains(t, say(c, author, kind), exceeded)
		require.Contains(t, say(w.login(openHost, agent), author, kind), exceeded, "over all connections")
		require.Empty(t, say(c, agent, nostr.KindTyping), "what is not kept does not count")
	}
	c := w.login(openHost, "alice", "bot")
	require.Empty(t, say(c, "thrown away", nostr.KindGiftWrap), "who sends it is the first key of the connection")
}
