// Package embedded owns a NATS server inside the process, with JetStream on disk. Only the all-in-one
// and tests import it. By default it listens on no port: connections come through InProcessConn.
package embedded

import (
	"context"
	"errors"
	"log/slog"
	"net"
)

// Config says where the server keeps its data and whether others may reach it.
type Config struct {
	// StoreDir holds the streams; required.
	StoreDir string
	// Listen is host:port for connections from outside; empty listens on nothing, port 0 picks one.
	Listen string
	// MaxMemory and MaxStore bound JetStream in bytes; 0 takes the defaults.
	MaxMemory int64
	MaxStore  int64
	// Log receives the server's warnings and errors.
	Log *slog.Logger
}

// Server is a running server.
type Server struct{}

// Start starts a server and waits until it takes connections.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	return nil, errors.ErrUnsupported
}

// InProcessConn makes a connection without a socket; it makes Server a nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) { return nil, errors.ErrUnsupported }

// URL is where others connect, empty when nothing listens.
func (s *Server) URL() string { return "" }

// Stop shuts the server down and waits for it.
func (s *Server) Stop(ctx context.Context) error { return nil }
