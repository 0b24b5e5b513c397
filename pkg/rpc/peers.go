package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// PeersConfig says where the replicas of one service are and how closely they are watched. Zero
// durations take the defaults.
type PeersConfig struct {
	Targets         []string      `help:"Replicas: host:port, unix:///path or mem:///name, each one peer; dns:///name:port, every address one peer." placeholder:"TARGET"`
	PingInterval    time.Duration `help:"Pause between health checks of a replica." default:"500ms" hidden:""`
	PingTimeout     time.Duration `help:"A replica that does not answer a health check for so long is dead." default:"1s" hidden:""`
	ResolveInterval time.Duration `help:"Pause between look-ups of dns:/// targets." default:"2s" hidden:""`
}

const (
	defaultPingInterval    = 500 * time.Millisecond
	defaultPingTimeout     = time.Second
	defaultResolveInterval = 2 * time.Second

	// firstLook bounds how long Run of a set that is looked up waits for the first live replica before it is ready.
	firstLook = 5 * time.Second
	// resolveAgain is the pause after a look-up that failed: one lost packet must not cost a new process seconds.
	resolveAgain = 250 * time.Millisecond

	// maxPeers bounds the set, whatever a name server says.
	maxPeers = 1024
	// retireGrace is how long a replica that left its DNS name keeps its connection, so that what is
	// in flight and a make-before-break move can end.
	retireGrace = 30 * time.Second
	// maxSubscribers bounds Subscribe; parts of a process subscribe, not connections or requests.
	maxSubscribers = 1024
)

// Peer is one replica. Name is stable across its restarts and the same in every process that uses the
// same targets: the target as configured, or address:port for one found by DNS. Conn stays usable
// when the replica dies: calls fail with Unavailable until it is back. It is closed only when the
// replica is gone from its DNS name for good, or when Peers stops; callers never close it.
type Peer struct {
	Name string
	Conn *grpc.ClientConn
}

// Peers is the changing set of live replicas of a service. A replica is live while its connection
// stands, it answers health checks in time and it says SERVING. One that is killed leaves at once, one
// that is frozen or cut off leaves after at most PingInterval + 5/4 PingTimeout (1.75 s), and its transport is
// closed then, so that no call waits for it. One that drains leaves when it says so, and its
// connection goes on working.
//
// All methods are safe for concurrent use. Run is called once, as a lifecycle.Service.
type Peers struct {
	cfg     PeersConfig
	deps    Deps
	targets []target
	lookup  lookupFunc
	// firstLook is the constant, except in tests.
	firstLook time.Duration

	next atomic.Uint64 // round robin
	live atomic.Pointer[[]Peer]

	mu          sync.Mutex
	peers       map[string]*peer // guarded by mu
	subscribers []chan struct{}  // guarded by mu
}

// Validate reports targets that could never be dialled, or that there are none.
func (c *PeersConfig) Validate() error {
	if n := len(c.Targets); n == 0 || n > maxPeers {
		return fmt.Errorf("%w list: %d targets, want 1 to %d", ErrTarget, n, maxPeers)
	}
	var errs []error
	for _, t := range c.Targets {
		_, err := parseTarget(t)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// NewPeers checks the targets; nothing is dialled before Run.
func NewPeers(cfg PeersConfig, deps Deps) (*Peers, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.PingInterval <= 0 {
		cfg.PingInterval = defaultPingInterval
	}
	if cfg.PingTimeout <= 0 {
		cfg.PingTimeout = defaultPingTimeout
	}
	if cfg.ResolveInterval <= 0 {
		cfg.ResolveInterval = defaultResolveInterval
	}
	p := &Peers{cfg: cfg, deps: deps.complete(), lookup: lookupDNS, firstLook: firstLook, peers: map[string]*peer{}}
	p.live.Store(&[]Peer{})
	for _, t := range cfg.Targets {
		parsed, err := parseTarget(t)
		if err != nil {
			return nil, err
		}
		p.targets = append(p.targets, parsed)
	}
	return p, nil
}

// Live returns the live peers, sorted by name. The slice is shared: do not change it.
func (p *Peers) Live() []Peer { return *p.live.Load() }

// Names returns the names of the live peers, sorted.
func (p *Peers) Names() []string {
	live := p.Live()
	names := make([]string, len(live))
	for i := range live {
		names[i] = live[i].Name
	}
	return names
}

// Get returns the live peer of that name.
func (p *Peers) Get(name string) (Peer, bool) {
	live := p.Live()
	i, ok := slices.BinarySearchFunc(live, name, func(q Peer, name string) int { return strings.Compare(q.Name, name) })
	if !ok {
		return Peer{}, false
	}
	return live[i], true
}

// Pick returns the next live peer in turn whose name is not in exclude, and false when there is none.
func (p *Peers) Pick(exclude ...string) (Peer, bool) {
	live := p.Live()
	n := uint64(len(live))
	if n == 0 {
		return Peer{}, false
	}
	start := p.next.Add(1) - 1
	for i := range n {
		if q := live[(start+i)%n]; !slices.Contains(exclude, q.Name) {
			return q, true
		}
	}
	return Peer{}, false
}

// Subscribe returns a channel that gets a value after the live set changed. Changes that are not
// received yet are merged into one. A subscription lasts as long as Peers, so subscribe once per part
// of the process; beyond a thousand the returned channel never gets a value.
func (p *Peers) Subscribe() <-chan struct{} {
	ch := make(chan struct{}, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.subscribers) < maxSubscribers {
		p.subscribers = append(p.subscribers, ch)
	}
	return ch
}

// Await blocks until at least n peers are live, or returns ctx's error. It polls the snapshot and is
// meant for start-up and tests; a service that must work without its peers does not wait for them.
func (p *Peers) Await(ctx context.Context, n int) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(p.Live()) < n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d peers, %d are live: %w", n, len(p.Live()), ctx.Err())
		}
	}
	return nil
}

// Run keeps the set until ctx is done, then closes every connection. With static targets it is ready at once: a peer that
// is down is no reason not to start. A set that is looked up is empty at first, so it is ready when the first replica is
// live, so that a new process is not given work that it cannot do yet, or after 5 s, since nobody may be there.
func (p *Peers) Run(ctx context.Context, ready func()) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := p.apply(ctx, &running, p.static()); err != nil {
		return err
	}
	if ready == nil {
		ready = func() {}
	}
	if !p.dynamic() {
		ready()
		<-ctx.Done()
		return nil
	}
	running.Go(func() {
		first, cancel := context.WithTimeout(ctx, p.firstLook)
		defer cancel()
		_ = p.Await(first, 1) // whether or not: see above
		ready()
	})
	for tick := time.NewTimer(0); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		next := p.cfg.ResolveInterval
		if names, err := p.resolve(ctx); err == nil {
			if err := p.apply(ctx, &running, names); err != nil {
				return err
			}
		} else if ctx.Err() == nil {
			// The last known set stays: the name server is one more dependency that may be down.
			p.deps.Log.LogAttrs(ctx, slog.LevelWarn, "peer look-up failed", slog.Any("error", err))
			next = min(next, resolveAgain)
		}
		tick.Reset(next)
	}
}

// apply makes the set of peers equal to names: new ones start, missing ones retire. Only the Run
// goroutine calls it.
func (p *Peers) apply(ctx context.Context, running *sync.WaitGroup, names []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
		if known := p.peers[name]; known != nil {
			known.keep()
			continue
		}
		if len(p.peers) >= maxPeers {
			p.deps.Log.LogAttrs(ctx, slog.LevelError, "too many peers, ignoring one", slog.String("peer", name))
			continue
		}
		q, err := newPeer(ctx, name, p)
		if err != nil {
			return err
		}
		p.peers[name] = q
		running.Go(q.run)
	}
	for name, q := range p.peers {
		if !wanted[name] {
			q.retire()
		}
	}
	p.publishLocked()
	return nil
}

// setLive records what q's goroutine found out.
func (p *Peers) setLive(q *peer, live bool, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.live == live {
		return
	}
	q.live = live
	p.publishLocked()
	level := slog.LevelInfo
	if !live && q.ctx.Err() == nil { // otherwise it is we who leave
		level = slog.LevelWarn
	}
	p.deps.Log.LogAttrs(q.ctx, level, "peer changed",
		slog.String("peer", q.name), slog.Bool("live", live), slog.String("why", why))
}

// remove forgets q; its goroutine has ended.
func (p *Peers) remove(q *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers[q.name] == q {
		delete(p.peers, q.name)
	}
	p.publishLocked()
}

// publishLocked makes a new snapshot and tells the subscribers if it differs. Called with mu held.
func (p *Peers) publishLocked() {
	live := make([]Peer, 0, len(p.peers))
	for _, q := range p.peers {
		if q.live && q.retiring == nil {
			live = append(live, Peer{Name: q.name, Conn: q.conn})
		}
	}
	slices.SortFunc(live, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	if slices.Equal(live, p.Live()) {
		return
	}
	p.live.Store(&live)
	for _, ch := range p.subscribers {
		select {
		case ch <- struct{}{}:
		default: // a change is already waiting there
		}
	}
}
