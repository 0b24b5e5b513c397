// Package bustest gives a test its own NATS server with JetStream, in process and, unless asked for,
// without a port, and connections to it. Everything ends with the test.
//
// Methods that take a testing.TB fail that test, and are to be called from its goroutine; a Server's other
// methods may be called from any.
package bustest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/embedded"
)

const (
	// stopTimeout is how long a server may take to write its streams out.
	stopTimeout = 30 * time.Second
	// ensureTimeout and ensureEvery bound the tries to make the streams.
	ensureTimeout = 10 * time.Second
	ensureEvery   = 50 * time.Millisecond
)

// Server is a NATS server that a test may stop and start again on the same data.
type Server struct {
	dir string
	// listen keeps the port over restarts; empty without Listening.
	listen     string
	maxPayload int32 // 0: the server's default

	mu      sync.Mutex
	current *embedded.Server // nil while stopped
}

// Option changes how a Server is made.
type Option func(*Server)

// Listening makes the server listen on a loopback port, which stays the same over restarts.
func Listening() Option { return func(s *Server) { s.listen = "127.0.0.1:0" } }

// MaxPayload bounds one message in bytes, as an operator's server may do.
func MaxPayload(bytes int32) Option { return func(s *Server) { s.maxPayload = bytes } }

// New starts a server that has no streams yet.
func New(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	s := &Server{dir: tb.TempDir()}
	for _, opt := range opts {
		opt(s)
	}
	s.Restart(tb)
	tb.Cleanup(func() { s.Stop(tb) })
	return s
}

// Connect returns a new connection to the server.
func (s *Server) Connect(tb testing.TB) *bus.Bus {
	tb.Helper()
	return s.ConnectWith(tb, Config())
}

// ConnectWith is Connect with a configuration of the test's; its URL is used only when it is not empty,
// for instance to go through a proxy.
func (s *Server) ConnectWith(tb testing.TB, cfg bus.Config) *bus.Bus {
	tb.Helper()
	opts := bus.Options{Name: tb.Name(), Log: slog.New(slog.DiscardHandler)}
	if !cfg.URL.IsSet() {
		opts.InProcess = s
	}
	b, err := bus.Connect(tb.Context(), cfg, opts)
	if err != nil {
		tb.Fatalf("connect to nats: %v", err)
	}
	tb.Cleanup(b.Close)
	return b
}

// Config is how Connect configures a connection: like a service's, but it notices and gives up sooner.
func Config() bus.Config {
	return bus.Config{PingInterval: 500 * time.Millisecond, MaxInFlight: 256, AckTimeout: 2 * time.Second}
}

// InProcessConn implements nats.InProcessConnProvider over restarts.
func (s *Server) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil, errors.New("the server is stopped")
	}
	return s.current.InProcessConn()
}

// URL is the server's address, with Listening only.
func (s *Server) URL() string {
	if s.listen == "" {
		return ""
	}
	return "nats://" + s.listen
}

// Stop stops the server; its data stays. Stopping a stopped server does nothing.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), stopTimeout)
	defer cancel()
	if err := s.current.Stop(ctx); err != nil {
		tb.Fatalf("stop nats: %v", err)
	}
	s.current = nil
}

// Restart starts the server again on the same data and port; a server that runs is stopped first.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Stop(tb)
	s.start(tb, s.dir)
}

// RestartEmpty is Restart on no data, as after the loss of a disk.
func (s *Server) RestartEmpty(tb testing.TB) {
	tb.Helper()
	s.Stop(tb)
	s.dir = tb.TempDir()
	s.start(tb, s.dir)
}

func (s *Server) start(tb testing.TB, dir string) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	server, err := embedded.Start(tb.Context(), embedded.Config{
		StoreDir: dir, Listen: s.listen, MaxPayload: s.maxPayload, Throwaway: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatalf("start nats: %v", err)
	}
	s.current = server
	if s.listen != "" {
		s.listen = server.URL()[len("nats://"):]
	}
}

// NewBus starts a server, connects to it and makes the streams.
func NewBus(tb testing.TB) *bus.Bus {
	tb.Helper()
	b := New(tb).Connect(tb)
	EnsureStreams(tb, b)
	return b
}

// EnsureStreams makes the streams, small ones. It tries for a while: a connection may not have noticed a
// restart yet, and a server may still be clearing away a stream of the same name.
func EnsureStreams(tb testing.TB, b *bus.Bus) {
	tb.Helper()
	deadline := time.After(ensureTimeout)
	again := time.NewTicker(ensureEvery)
	defer again.Stop()
	for {
		err := b.EnsureStreams(tb.Context(), bus.StreamOptions{EventsMaxBytes: 64 << 20, EphemeralMaxBytes: 16 << 20})
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			tb.Fatalf("make streams: %v", err)
		}
	}
}
