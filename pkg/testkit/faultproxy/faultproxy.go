// Package faultproxy gives a test, or a tool that breaks things, a TCP proxy whose connections it can delay, cut,
// hold and heal.
//
// Two goroutines per direction and connection move the bytes; all of them end with the test, or with Close. The
// methods of Proxy may be called by any goroutine and act on connections that exist as well as on new ones.
package faultproxy

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	chunkSize = 32 << 10
	// queued bounds the chunks that a delay holds back, per direction.
	queued      = 256
	dialTimeout = 5 * time.Second
)

type mode int

const (
	forwarding mode = iota
	cut
	blackholed
)

// Proxy forwards connections to a target.
type Proxy struct {
	listener *net.TCPListener
	network  string
	target   string
	ctx      context.Context // the root of all connections
	cancel   func()          // ends ctx
	running  sync.WaitGroup

	mu      sync.Mutex
	mode    mode
	delay   time.Duration
	changed chan struct{}    // closed and replaced when mode changes
	links   map[*link]func() // with what ends each
}

// New starts a proxy that lives as long as the test; see Listen.
func New(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := Listen(tb.Context(), target)
	if err != nil {
		tb.Fatalf("start proxy: %v", err)
	}
	tb.Cleanup(p.Close)
	return p
}

// Listen starts a proxy on a free loopback port; Close ends it, the end of ctx does not. target is host:port, or
// the absolute path of a unix socket; nobody need listen there yet.
func Listen(ctx context.Context, target string) (*Proxy, error) {
	p := &Proxy{network: "tcp", target: target, changed: make(chan struct{}), links: make(map[*link]func())}
	if filepath.IsAbs(target) {
		p.network = "unix"
	}
	var err error
	p.listener, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.running.Go(p.accept)
	return p, nil
}

// Close resets all connections, takes no new ones, and returns when nothing of the proxy runs any more.
func (p *Proxy) Close() {
	p.cancel()
	p.listener.Close() //nolint:errcheck // it is only to stop accepting
	p.Cut()
	p.running.Wait()
}

// Addr is where to connect, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay makes every chunk arrive d later, in each direction, without changing the bandwidth; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut resets all connections, and new ones as soon as they are made, until Heal.
func (p *Proxy) Cut() {
	p.set(cut)
	p.Reset()
}

// Reset resets all connections once; new ones work.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, end := range p.links {
		end()
	}
}

// Blackhole moves no byte and closes nothing until Heal, as when packets are lost. Bytes sent meanwhile
// arrive after it; a connection made meanwhile is accepted and hears nothing.
func (p *Proxy) Blackhole() { p.set(blackholed) }

// Heal ends Cut, Blackhole and Delay.
func (p *Proxy) Heal() {
	p.Delay(0)
	p.set(forwarding)
}

// Connections returns how many there are.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
}

// due is when a chunk read now is to arrive.
func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.delay)
}

// awaitOpen returns when bytes may move, false when ctx has ended.
func (p *Proxy) awaitOpen(ctx context.Context) bool {
	for {
		p.mu.Lock()
		m, changed := p.mode, p.changed
		p.mu.Unlock()
		if m != blackholed {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.AcceptTCP()
		if err != nil {
			return // closed
		}
		ctx, cancel := context.WithCancel(p.ctx)
		l := &link{proxy: p, ctx: ctx, client: conn}
		p.mu.Lock()
		refused := p.mode == cut || p.ctx.Err() != nil
		if !refused {
			p.links[l] = cancel
		}
		p.mu.Unlock()
		if refused {
			cancel()
			reset(conn)
			continue
		}
		p.running.Go(func() {
			l.run()
			cancel()
			p.mu.Lock()
			delete(p.links, l)
			p.mu.Unlock()
		})
	}
}

// reset closes a connection so that the other side gets an error rather than an end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // it is closed already
	}
	conn.Close()
}
