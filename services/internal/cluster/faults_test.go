package cluster_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/internal/cluster"
)

// stream publishes events one after the other, in a goroutine, until it has n that are accepted. It goes on
// whatever dies. The ids come out as the events are accepted; the channel is closed at the end.
func stream(t *testing.T, alice *cluster.Client, url func() string, n int) <-chan string {
	t.Helper()
	accepted := make(chan string, n)
	go func() {
		defer close(accepted)
		for i := range n {
			event := alice.Event(nostrtest.Content(strconv.Itoa(i)))
			next, err := alice.Persist(url, event)
			if err != nil {
				t.Errorf("event %d: %v", i, err)
				return
			}
			alice = next
			accepted <- event.ID.String()
		}
	}()
	return accepted
}

// survive publishes all the while that fault and then repair are done. Everything that was acknowledged must
// be stored, and the subscriber, whose own gateway lives, must get everything once.
//
// url is where the publisher connects, over and over.
func survive(t *testing.T, c *cluster.Cluster, url func() string, subscriber int, fault, repair func()) {
	t.Helper()
	const phase = 12
	alice := cluster.Dial(t, url(), who(t, "alice"))
	bob := cluster.Dial(t, c.Gateway(subscriber), who(t, "bob"))
	s := bob.Subscribe(by(who(t, "alice")))

	published := stream(t, alice, url, 3*phase)
	var accepted []string
	take := func(n int) {
		for range n {
			id, ok := <-published
			require.True(t, ok, "the publisher gave up")
			accepted = append(accepted, id)
		}
	}
	take(phase)
	fault()
	repair()
	take(2 * phase)

	var got []string
	for range accepted {
		got = append(got, s.Next().ID.String())
	}
	require.ElementsMatch(t, accepted, got, "what the subscriber got")
	last := bob.Event(nostrtest.Kind(20_001)) // ephemeral: not even stored, only a mark on another author
	mark := bob.Subscribe(by(who(t, "bob")))
	_, err := bob.Persist(func() string { return c.Gateway(subscriber) }, last)
	require.NoError(t, err)
	require.Equal(t, last.ID, mark.Next().ID)
	s.Silent()

	stored := bob.QueryUntil(func(events []*nostr.Event) bool { return len(events) >= len(accepted) }, by(who(t, "alice")))
	require.ElementsMatch(t, accepted, ids(stored), "what is stored")
}

// surviveKill kills a node and starts it again; as long as others do its work, some is done without it.
func surviveKill(t *testing.T, c *cluster.Cluster, victim string) {
	t.Helper()
	publisher, subscriber := 0, 1
	if victim == "gateway-2" {
		publisher, subscriber = 1, 0 // the subscriber's own gateway lives
	}
	tries := 0
	url := func() string { // as a balancer would, the second try goes to the other gateway
		tries++
		if strings.HasPrefix(victim, "gateway") && tries > 1 {
			return c.Gateway(subscriber)
		}
		return c.Gateway(publisher)
	}
	survive(t, c, url, subscriber, func() { c.Kill(t, victim) }, func() {
		if c.Replicas(victim) > 1 {
			witness := cluster.Dial(t, c.Gateway(subscriber), who(t, "witness"))
			_, err := witness.Persist(func() string { return c.Gateway(subscriber) }, witness.Event())
			require.NoError(t, err)
		}
		c.Restart(t, victim)
	})
}

func TestKilledNodesLoseNothing(t *testing.T) {
	c := cluster.New(t, cluster.Gateways(2), cluster.Ingests(2), cluster.Fanouts(2), cluster.Searches(2))
	for _, victim := range c.Nodes() {
		t.Run(victim, func(t *testing.T) { surviveKill(t, c, victim) })
	}
}

// With one replica of each, nobody can take over, and still nothing is lost.
func TestKilledOnlyReplicasLoseNothing(t *testing.T) {
	c := cluster.New(t, cluster.Gateways(2))
	for _, victim := range []string{"ingest-1", "fanout-1", "search-1"} {
		t.Run(victim, func(t *testing.T) { surviveKill(t, c, victim) })
	}
}

func TestNATSMayComeAndGo(t *testing.T) {
	c := cluster.New(t, cluster.Gateways(2), cluster.Ingests(2), cluster.Fanouts(2))
	survive(t, c, func() string { return c.Gateway(0) }, 1, func() { c.NATS().Stop(t) }, func() {
		witness := cluster.Dial(t, c.Gateway(1), who(t, "witness"))
		witness.Accept(nostrtest.Content("accepted while NATS is away"))
		c.NATS().Restart(t)
	})
}

func TestAllInOneComesBackWithEverything(t *testing.T) {
	c := cluster.AllInOne(t)
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	var accepted []string
	for i := range 20 {
		accepted = append(accepted, alice.Accept(nostrtest.Content(strconv.Itoa(i))).ID.String())
	}
	c.Kill(t, "apiary")
	<-alice.Gone()
	c.Restart(t, "apiary")
	bob := cluster.DialAgain(t, c.Gateway(0), who(t, "bob"))
	s := bob.Subscribe(by(who(t, "alice")))
	require.ElementsMatch(t, accepted, ids(s.Stored))

	alice = cluster.DialAgain(t, c.Gateway(0), who(t, "alice"))
	require.Equal(t, alice.Accept(nostrtest.Content("after")).ID, s.Next().ID)
}

func TestOneTraceFromGatewayToFanout(t *testing.T) {
	c := cluster.New(t, cluster.Gateways(2), cluster.Traced())
	alice := cluster.Dial(t, c.Gateway(0), who(t, "alice"))
	s := cluster.Dial(t, c.Gateway(1), who(t, "bob")).Subscribe(by(who(t, "alice")))
	event := alice.Accept(nostrtest.Content("traced"))
	require.Equal(t, event.ID, s.Next().ID)
	c.AwaitTrace(t, "gateway.event", "ingest.publish", "fanout.match")
}
