package rpc

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/apiary-relay/apiary/pkg/fault"
)

const (
	// goneLimit and backLimit are what the design promises for a replica that dies and returns, with
	// room for a machine that is busy with other tests. The usual times are logged.
	goneLimit = 4 * time.Second
	backLimit = 4 * time.Second
)

func TestKilledPeerLeavesAndReturns(t *testing.T) {
	a, b := startProcess(t, "127.0.0.1:0"), startProcess(t, "127.0.0.1:0")
	p := newPeers(t, Deps{}, a.addr, b.addr)
	changed := p.Subscribe()
	startPeers(t, p)
	require.NoError(t, p.Await(t.Context(), 2))
	peer, ok := p.Get(a.addr)
	require.True(t, ok)
	stream := open(t, peer.Conn)

	a.kill(t)
	t.Logf("gone after %s", within(t, p, goneLimit, changed, b.addr))
	require.Equal(t, codes.Unavailable, status.Code(stream.RecvMsg(&wrapperspb.StringValue{})))
	_, ok = p.Get(a.addr)
	require.False(t, ok)

	startProcess(t, a.addr)
	names := p.cfg.Targets
	t.Logf("back after %s", within(t, p, backLimit, changed, sorted(names)...))
	got, err := say(t.Context(), peer.Conn, "again")
	require.NoError(t, err, "the connection is the same one")
	require.Equal(t, "again", got)
}

func TestFrozenPeerLeavesAndReturns(t *testing.T) {
	a := startProcess(t, "127.0.0.1:0")
	p := newPeers(t, Deps{}, a.addr)
	changed := p.Subscribe()
	startPeers(t, p)
	require.NoError(t, p.Await(t.Context(), 1))
	stream := open(t, p.Live()[0].Conn)

	a.signal(t, syscall.SIGSTOP)
	t.Logf("gone after %s", within(t, p, goneLimit, changed))
	err := stream.RecvMsg(&wrapperspb.StringValue{})
	require.Equal(t, codes.Unavailable, status.Code(err), "nothing waits for a frozen replica")
	require.Equal(t, fault.Overloaded, fault.ReasonOf(err))

	// Long enough that attempts to connect again have met the frozen process.
	require.Never(t, func() bool { return len(p.Live()) > 0 }, 2*time.Second, 100*time.Millisecond)
	a.signal(t, syscall.SIGCONT)
	t.Logf("back after %s", within(t, p, backLimit, changed, a.addr))
	open(t, p.Live()[0].Conn)
}

func TestPeerThatIsNotThereYet(t *testing.T) {
	mem := NewMemory()
	p := newPeers(t, Deps{Memory: mem}, "mem:///late")
	changed := p.Subscribe()
	startPeers(t, p)
	_, ok := p.Pick()
	require.False(t, ok)
	start(t, ServerConfig{}, ServerOptions{Deps: Deps{Memory: mem}, MemoryName: "late"})
	within(t, p, backLimit, changed, "mem:///late")
}

func TestDrainingPeerLeavesButItsStreamsGoOn(t *testing.T) {
	draining := make(chan struct{})
	s := start(t, ServerConfig{Listen: "127.0.0.1:0"}, ServerOptions{Draining: draining})
	p := newPeers(t, Deps{}, tcpAddr(t, s.Server))
	changed := p.Subscribe()
	startPeers(t, p)
	require.NoError(t, p.Await(t.Context(), 1))
	conn := p.Live()[0].Conn
	stream := open(t, conn)

	close(draining)
	within(t, p, goneLimit, changed)
	exchange(t, stream)
	_, err := say(t.Context(), conn, "x")
	require.NoError(t, err, "only Drain refuses calls")
}

func TestPick(t *testing.T) {
	mem := NewMemory()
	deps := Deps{Memory: mem}
	for _, name := range []string{"a", "b", "c"} {
		start(t, ServerConfig{}, ServerOptions{Deps: deps, MemoryName: name})
	}
	p := newPeers(t, deps, "mem:///c", "mem:///a", "mem:///b")
	startPeers(t, p)
	require.NoError(t, p.Await(t.Context(), 3))
	require.Equal(t, []string{"mem:///a", "mem:///b", "mem:///c"}, p.Names())

	count := map[string]int{}
	for range 30 {
		q, ok := p.Pick()
		require.True(t, ok)
		count[q.Name]++
	}
	require.Equal(t, map[string]int{"mem:///a": 10, "mem:///b": 10, "mem:///c": 10}, count)
	for range 6 {
		q, ok := p.Pick("mem:///a", "mem:///c")
		require.True(t, ok)
		require.Equal(t, "mem:///b", q.Name)
	}
	_, ok := p.Pick(p.Names()...)
	require.False(t, ok)
}

// fakeDNS answers with a set that the test changes.
type fakeDNS struct{ answer atomic.Pointer[[]netip.Addr] }

func (f *fakeDNS) set(addrs ...string) {
	list := []netip.Addr{}
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	f.answer.Store(&list)
}

var errNoDNS = errors.New("name server is down")

func (f *fakeDNS) lookup(context.Context, string) ([]netip.Addr, error) {
	if list := f.answer.Load(); list != nil {
		return *list, nil
	}
	return nil, errNoDNS
}

func TestDNSPeers(t *testing.T) {
	one := start(t, ServerConfig{Listen: "127.0.0.1:0"}, ServerOptions{})
	_, port := splitPort(t, one.Addr().String())
	two := start(t, ServerConfig{Listen: "127.0.0.2:" + port}, ServerOptions{})
	a, b := one.Addr().String(), two.Addr().String()

	dns := &fakeDNS{}
	p, err := NewPeers(PeersConfig{Targets: []string{"dns:///fanout:" + port}, ResolveInterval: 20 * time.Millisecond}, Deps{})
	require.NoError(t, err)
	p.lookup = dns.lookup
	changed := p.Subscribe()
	startPeers(t, p)
	require.Empty(t, p.Live(), "a name server that is down is no reason to fail")

	dns.set("127.0.0.1", "::ffff:127.0.0.2", "127.0.0.1")
	within(t, p, backLimit, changed, a, b)
	gone, ok := p.Get(b)
	require.True(t, ok)
	stream := open(t, gone.Conn)

	dns.set("127.0.0.1")
	within(t, p, goneLimit, changed, a)
	exchange(t, stream) // a retired peer ends what it has begun

	dns.answer.Store(nil)
	require.Never(t, func() bool { return len(p.Live()) != 1 }, 100*time.Millisecond, 10*time.Millisecond,
		"the last known set stays while the name server is down")

	dns.set("127.0.0.1", "127.0.0.2")
	within(t, p, backLimit, changed, a, b)
	again, ok := p.Get(b)
	require.True(t, ok)
	require.Same(t, gone.Conn, again.Conn, "a peer that comes back within the grace keeps its connection")
}

// A process that has just started is not ready before it knows somebody to call, for a while: a look-up that fails is tried
// again at once, not after the interval.
func TestReadyWhenSomebodyIsThere(t *testing.T) {
	s := start(t, ServerConfig{Listen: "127.0.0.1:0"}, ServerOptions{})
	address, port := splitPort(t, s.Addr().String())
	for name, c := range map[string]struct {
		comes     bool
		firstLook time.Duration
	}{
		"somebody comes": {comes: true, firstLook: time.Hour},
		"nobody comes":   {firstLook: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := NewPeers(PeersConfig{Targets: []string{"dns:///search:" + port}, ResolveInterval: time.Hour}, Deps{})
			require.NoError(t, err)
			dns, asked := &fakeDNS{}, make(chan struct{}, 1)
			p.firstLook = c.firstLook
			p.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
				defer func() {
					select {
					case asked <- struct{}{}:
					default:
					}
				}()
				return dns.lookup(ctx, host)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ready, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- p.Run(ctx, func() { close(ready) }) }()
			<-asked
			if c.comes {
				select {
				case <-ready:
					require.Fail(t, "ready with nobody to call")
				default:
				}
				dns.set(address)
			}
			<-ready
			require.Equal(t, c.comes, len(p.Live()) == 1)
			cancel()
			require.NoError(t, <-done)
		})
	}
}

func TestNewPeersRefusesBadTargets(t *testing.T) {
	for _, targets := range [][]string{nil, {"mem:///"}, {"a"}, {":7401"}, {"a:"}, {"dns:///a"}, {"unix://rel"}, make([]string, maxPeers+1)} {
		_, err := NewPeers(PeersConfig{Targets: targets}, Deps{})
		require.ErrorIs(t, err, ErrTarget, "%.3q", targets)
	}
}
