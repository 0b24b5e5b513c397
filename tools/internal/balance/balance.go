// Package balance owns a plain TCP balancer: connections go round robin to the backends that accept.
//
// It knows nothing of what it carries and must never look at it: a WebSocket upgrade, its Host header
// and its frames pass through as bytes. One goroutine accepts; each connection has a goroutine per
// direction, both waited for. When a backend ends a connection, so does the balancer, at once, because
// that is what a client of the backend itself would see; a client that only half-closes still gets the
// rest of its answer.
package balance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// dialTimeout bounds one attempt; a dead process on this machine refuses at once.
	dialTimeout = 2 * time.Second
	// quarantine is how long a backend that did not accept is tried only after all others.
	quarantine = 500 * time.Millisecond
	// acceptPause is the wait after a failed accept, which is nearly always a lack of file descriptors.
	acceptPause = 50 * time.Millisecond
)

// Config says where to listen and whom to serve.
type Config struct {
	// Listen is the address clients connect to; port 0 picks a free one.
	Listen string
	// Backends are host:port addresses, at least one.
	Backends []string
	// MaxConns bounds the connections open at once, 0 means 50,000. Above it, new ones wait in the
	// kernel's accept queue.
	MaxConns int
	// Log receives warnings; required.
	Log *slog.Logger
}

// Balancer spreads connections over backends. It implements lifecycle.Service and lifecycle.Drainer.
type Balancer struct {
	cfg      Config
	backends []*backend
	slots    chan struct{}
	next     atomic.Uint64

	mu       sync.Mutex
	listener net.Listener      // guarded by mu; nil before Run
	conns    map[net.Conn]bool // guarded by mu: what has to be closed at the end
	draining chan struct{}     // closed by the first Drain
	drain    sync.Once
}

type backend struct {
	address string
	// avoidUntil is when the quarantine ends, in Unix nanoseconds.
	avoidUntil atomic.Int64
}

// New validates cfg. It opens nothing.
func New(cfg Config) (*Balancer, error) {
	if len(cfg.Backends) == 0 {
		return nil, errors.New("balancer needs at least one backend")
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 50_000
	}
	b := &Balancer{
		cfg:      cfg,
		slots:    make(chan struct{}, cfg.MaxConns),
		conns:    make(map[net.Conn]bool),
		draining: make(chan struct{}),
	}
	for _, address := range cfg.Backends {
		b.backends = append(b.backends, &backend{address: address})
	}
	return b, nil
}

// Addr is the address that Run listens on, nil before it is ready.
func (b *Balancer) Addr() net.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener == nil {
		return nil
	}
	return b.listener.Addr()
}

// Run accepts until ctx ends, then closes every connection and returns nil.
func (b *Balancer) Run(ctx context.Context, ready func()) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", b.cfg.Listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another program listens on %s: stop it, or choose another port (make cluster PORT=3001, bin/cluster --port 3001)", b.cfg.Listen)
	case err != nil:
		return fmt.Errorf("listen for clients: %w", err)
	}
	b.mu.Lock()
	b.listener = listener
	b.mu.Unlock()
	ready()

	var carried sync.WaitGroup
	stop := context.AfterFunc(ctx, func() {
		_ = listener.Close() // only an already closed one fails
		b.closeAll()
	})
	defer stop()
	b.accept(ctx, listener, &carried)
	// After a drain the connections in hand go on until ctx ends.
	<-ctx.Done()
	b.closeAll()
	carried.Wait()
	return nil
}

// Drain stops accepting; connections in hand go on until Run's context ends.
func (b *Balancer) Drain(context.Context) error {
	b.drain.Do(func() { close(b.draining) })
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener == nil {
		return nil
	}
	return b.listener.Close()
}

// accept serves until the listener is closed by the end of ctx or by Drain.
func (b *Balancer) accept(ctx context.Context, listener net.Listener, carried *sync.WaitGroup) {
	for {
		select {
		case b.slots <- struct{}{}:
		case <-ctx.Done():
			return
		case <-b.draining:
			return
		}
		client, err := listener.Accept()
		if err != nil {
			<-b.slots
			if errors.Is(err, net.ErrClosed) {
				return
			}
			b.cfg.Log.WarnContext(ctx, "accept failed", slog.String("error", err.Error()))
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
				return
			}
			continue
		}
		carried.Go(func() {
			defer func() { <-b.slots }()
			b.carry(ctx, client)
		})
	}
}

// carry connects a client to a backend and moves bytes until either is done.
func (b *Balancer) carry(ctx context.Context, client net.Conn) {
	defer client.Close()
	if !b.track(ctx, client) {
		return
	}
	defer b.untrack(client)
	server, err := b.dial(ctx)
	if err != nil {
		b.cfg.Log.WarnContext(ctx, "no backend accepts", slog.String("error", err.Error()))
		return
	}
	defer server.Close()
	if !b.track(ctx, server) {
		return
	}
	defer b.untrack(server)

	var upstream sync.WaitGroup
	upstream.Go(func() {
		if _, err := io.Copy(server, client); err != nil {
			// The client or the backend is gone in this direction: nothing useful can come back.
			server.Close()
			return
		}
		if half, ok := server.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // a connection that is gone ends the other direction too
		}
	})
	_, _ = io.Copy(client, server) // whatever ended it, the connection is over
	client.Close()
	server.Close()
	upstream.Wait()
}

// dial connects to the next backend that accepts. Those in quarantine are tried last, not never.
func (b *Balancer) dial(ctx context.Context) (net.Conn, error) {
	start := int(b.next.Add(1) % uint64(len(b.backends)))
	now := time.Now().UnixNano()
	var order, avoided []*backend
	for i := range b.backends {
		candidate := b.backends[(start+i)%len(b.backends)]
		if candidate.avoidUntil.Load() > now {
			avoided = append(avoided, candidate)
		} else {
			order = append(order, candidate)
		}
	}
	var errs []error
	for _, candidate := range append(order, avoided...) {
		dialer := net.Dialer{Timeout: dialTimeout}
		conn, err := dialer.DialContext(ctx, "tcp", candidate.address)
		if err == nil {
			candidate.avoidUntil.Store(0)
			return conn, nil
		}
		candidate.avoidUntil.Store(time.Now().Add(quarantine).UnixNano())
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// track remembers conn so that the end of Run closes it; it says false, and closes it, when that end has
// come already.
func (b *Balancer) track(ctx context.Context, conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		conn.Close()
		return false
	}
	b.conns[conn] = true
	return true
}

func (b *Balancer) untrack(conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, conn)
}

func (b *Balancer) closeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.conns {
		conn.Close()
	}
}
