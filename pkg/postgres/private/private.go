// Package private runs a Postgres of the process's own, from the machine's binaries, inside one
// directory and reachable only through a unix socket there.
package private

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Config says where the cluster lives and how it is run.
type Config struct {
	// DataDir holds everything: data, socket, lock. Made if it is not there.
	DataDir string
	// Database is made if it is not there; "apiary" by default.
	Database string
	// MaxConns is Postgres's max_connections, 100 by default.
	MaxConns int
	// Throwaway trades durability for speed: a crash of the machine loses the data.
	Throwaway bool
	// StartTimeout bounds recovery after a crash, 2 minutes by default.
	StartTimeout time.Duration
	// Log receives what Postgres says.
	Log *slog.Logger
}

// Cluster is a running Postgres.
type Cluster struct{}

// Start makes the cluster if it is not there, and starts it.
func Start(ctx context.Context, cfg Config) (*Cluster, error) { return nil, errors.ErrUnsupported }

// URL connects as superuser.
func (c *Cluster) URL() string { return "" }

// Done is closed when Postgres has ended, whoever ended it.
func (c *Cluster) Done() <-chan struct{} { return nil }

// Stop shuts Postgres down fast and waits for it.
func (c *Cluster) Stop(ctx context.Context) error { return nil }
