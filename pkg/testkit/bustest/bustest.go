// Package bustest gives a test its own NATS server with JetStream, in process and without a port, and
// connections to it. Everything ends with the test.
package bustest

import (
	"testing"

	"github.com/apiary-relay/apiary/pkg/bus"
)

// Server is a NATS server that a test may stop and start again on the same data.
type Server struct{}

// Option changes how a Server is made.
type Option func(*Server)

// Listening makes the server listen on a loopback port that stays the same over restarts.
func Listening() Option { return func(*Server) {} }

// New starts a server that has no streams yet.
func New(t testing.TB, opts ...Option) *Server { return &Server{} }

// Connect returns a new connection to the server.
func (s *Server) Connect(t testing.TB) *bus.Bus { return nil }

// Stop stops the server; its data stays.
func (s *Server) Stop(t testing.TB) {}

// Restart starts the server again.
func (s *Server) Restart(t testing.TB) {}

// URL is the server's address, with Listening only.
func (s *Server) URL() string { return "" }

// NewBus starts a server, connects to it and makes the streams.
func NewBus(t testing.TB) *bus.Bus { return nil }
