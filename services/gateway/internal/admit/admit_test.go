package admit_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/services/gateway/internal/admit"
)

var (
	epoch = time.Unix(1_700_000_000, 0)
	here  = netip.MustParseAddr("192.0.2.1")
)

func gate() *admit.Gate {
	return admit.New(admit.Config{
		Events: admit.Rate{PerSecond: 10, Burst: 2}, Requests: admit.Rate{PerSecond: 100, Burst: 1},
		Bytes: admit.Rate{PerSecond: 1000, Burst: 500}, Offences: admit.Rate{PerSecond: 4, Burst: 2},
	})
}

func TestAConnectionHasItsOwnRates(t *testing.T) {
	t.Parallel()
	g := gate()
	c := g.Client(here, epoch)
	for range 2 {
		_, ok := c.Event(1, epoch)
		require.True(t, ok)
	}
	wait, ok := c.Event(1, epoch)
	require.False(t, ok)
	require.Equal(t, 100*time.Millisecond, wait)
	_, ok = c.Request(epoch)
	require.True(t, ok, "another rate")
	_, ok = g.Client(here, epoch).Event(1, epoch)
	require.True(t, ok, "another connection")
	require.Equal(t, 100*time.Millisecond, c.Read(0, epoch), "and it is read more slowly")
	require.Zero(t, c.Read(0, epoch), "once")
	_, ok = c.Event(1, epoch.Add(wait))
	require.True(t, ok)
}

func TestLargeEventsCountMore(t *testing.T) {
	t.Parallel()
	c := gate().Client(here, epoch)
	_, ok := c.Event(4<<10, epoch)
	require.True(t, ok, "two")
	_, ok = c.Event(1, epoch)
	require.False(t, ok)
	_, ok = c.Event(1<<20, epoch.Add(time.Second))
	require.True(t, ok, "no more than the whole burst")
}

func TestBytesAreHeldBack(t *testing.T) {
	t.Parallel()
	c := gate().Client(here, epoch)
	require.Zero(t, c.Read(500, epoch))
	require.Equal(t, 100*time.Millisecond, c.Read(100, epoch))
	require.Equal(t, 500*time.Millisecond, c.Read(1<<30, epoch), "no debt is longer than the burst")
}

// What connections of an address send beyond little is one flood, however many they are; who sends little is none of it.
func TestFloodsOfAnAddressShareARate(t *testing.T) {
	t.Parallel()
	const burst, little = 1_000_000, 256 << 10
	g := admit.New(admit.Config{Excess: admit.Rate{PerSecond: burst, Burst: burst}})
	longAgo := epoch.Add(-time.Minute)
	first, second := g.Client(here, longAgo), g.Client(here, longAgo)
	require.Zero(t, first.Read(little, epoch), "what each may send")
	require.Zero(t, first.Read(burst, epoch), "and what all may send beyond")
	require.Equal(t, time.Second/4, first.Read(burst/4, epoch))
	require.Zero(t, second.Read(little, epoch), "a neighbour")
	require.Equal(t, time.Second/2, second.Read(burst/4, epoch), "who waits after the first once it sends much")
	require.Zero(t, g.Client(netip.MustParseAddr("192.0.2.2"), epoch).Read(burst, epoch), "another address")
	require.Zero(t, second.Read(1<<10, epoch.Add(time.Second)), "little again")
}

// To connect anew is worth no more than to wait: a connection begins with what it earns in a second, and then earns it.
func TestAConnectionBeginsWithLittle(t *testing.T) {
	t.Parallel()
	const second, rate = 32 << 10, 1 << 20
	g := admit.New(admit.Config{Excess: admit.Rate{PerSecond: rate, Burst: 1}})
	require.Zero(t, g.Client(here, epoch).Read(1, epoch))
	spent := g.Client(here, epoch)
	require.Zero(t, spent.Read(second, epoch))
	require.Positive(t, spent.Read(second/2, epoch), "more is beyond what each may send")
	for range 8 {
		c := g.Client(here, epoch)
		require.Zero(t, c.Read(second, epoch))
		require.Zero(t, c.Read(second, epoch.Add(time.Second)))
		require.Positive(t, c.Read(second/2, epoch.Add(time.Second)))
	}
	require.Zero(t, g.Client(here, epoch).Read(8*second, epoch.Add(7*time.Second)), "all of it, after it was quiet")
}

func TestOffencesAreOfAnAddress(t *testing.T) {
	t.Parallel()
	g := gate()
	for name, pair := range map[string][2]string{
		"IPv4": {"192.0.2.7", "192.0.2.7"},
		"IPv6": {"2001:db8::1", "2001:db8::ffff:2"},
	} {
		for range 2 {
			c := g.Client(netip.MustParseAddr(pair[0]), epoch)
			c.Offend(epoch)
			require.Zero(t, c.Read(0, epoch), name)
		}
		c := g.Client(netip.MustParseAddr(pair[1]), epoch)
		require.Zero(t, c.Read(0, epoch), "%s: who has not offended is not held back", name)
		c.Offend(epoch)
		require.Equal(t, 250*time.Millisecond, c.Read(0, epoch), "%s: connecting anew is no way out", name)
	}
	other := g.Client(netip.MustParseAddr("2001:db8:0:1::1"), epoch)
	other.Offend(epoch)
	require.Zero(t, other.Read(0, epoch), "another network")
	unknown := g.Client(netip.Addr{}, epoch)
	unknown.Offend(epoch)
	require.Zero(t, unknown.Read(0, epoch))
}

func TestNoWaitIsLong(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Offences: admit.Rate{PerSecond: 1, Burst: 60}}).Client(here, epoch)
	for range 1000 {
		c.Offend(epoch)
	}
	require.Equal(t, time.Second, c.Read(1<<30, epoch))
}

func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{}).Client(here, epoch)
	for range 10_000 {
		_, ok := c.Event(1, epoch)
		require.True(t, ok)
		_, ok = c.Request(epoch)
		require.True(t, ok)
		c.Offend(epoch)
		require.Zero(t, c.Read(1<<20, epoch))
	}
}

func TestClaimsAreOfAnAddress(t *testing.T) {
	t.Parallel()
	g := gate()
	for range 60 {
		require.True(t, g.Client(here, epoch).Claim(epoch))
	}
	require.False(t, g.Client(here, epoch).Claim(epoch), "connecting anew is no way out")
	require.True(t, g.Client(netip.MustParseAddr("192.0.2.2"), epoch).Claim(epoch), "another address")
	require.True(t, g.Client(here, epoch).Claim(epoch.Add(time.Second)))
	for range 60 {
		require.True(t, g.Client(here, epoch).Attest(epoch), "of which nobody who joins takes notice")
	}
	require.False(t, g.Client(here, epoch).Attest(epoch))
	require.True(t, g.Client(here, epoch).Attest(epoch.Add(time.Second)))
}

// Agents have quotas over all connections, and one together with the other agents of their owner.
func TestAgentsHaveQuotas(t *testing.T) {
	t.Parallel()
	g := admit.New(admit.Config{AgentEvents: 2, OwnerEvents: 3, AgentCalls: 1})
	agent := func(community int64, key, owner byte) admit.Agent {
		return admit.Agent{Community: community, Key: [32]byte{key}, Owner: [32]byte{owner}}
	}
	event := func(a admit.Agent, now time.Time) bool {
		_, ok := g.Client(here, epoch).AgentEvent(a, now)
		return ok
	}
	for range 2 {
		require.True(t, event(agent(1, 1, 9), epoch))
	}
	wait, ok := g.Client(here, epoch).AgentEvent(agent(1, 1, 9), epoch)
	require.False(t, ok)
	require.Equal(t, 30*time.Second, wait)
	require.True(t, event(agent(1, 2, 9), epoch), "another agent of the owner")
	require.False(t, event(agent(1, 3, 9), epoch), "all of them together")
	require.True(t, event(agent(1, 4, 8), epoch), "of another owner")
	require.True(t, event(agent(2, 1, 9), epoch), "in another community")
	require.True(t, event(agent(1, 1, 9), epoch.Add(time.Minute)))

	_, ok = g.AgentCall(agent(1, 1, 9), epoch)
	require.True(t, ok)
	wait, ok = g.AgentCall(agent(1, 1, 9), epoch)
	require.False(t, ok)
	require.Equal(t, time.Minute, wait)
	_, ok = gate().AgentCall(agent(1, 1, 9), epoch)
	require.True(t, ok, "without a limit")
}
