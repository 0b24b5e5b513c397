package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/apiary-relay/apiary/tools/internal/local"
)

// split is a cluster of processes with data of its own, one gateway among them.
type split struct {
	*local.Cluster
	dir string
}

// startSplit starts a cluster of one of each service, and of as many fan-out nodes as cfg says.
func startSplit(ctx context.Context, cfg local.Config) (*split, error) {
	dir, err := os.MkdirTemp("", "apiary-bench-")
	if err != nil {
		return nil, err
	}
	// Postgres refuses root and runs as another user, who has to reach its directory.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // an empty benchmark directory; what is private inside has modes of its own
		return nil, errors.Join(err, os.Remove(dir))
	}
	cfg.Data = filepath.Join(dir, "data")
	cfg.Gateways, cfg.Ingests, cfg.Searches = 1, 1, 1
	cfg.Log, cfg.PostgresLog = slog.New(slog.NewTextHandler(os.Stderr, nil)), slog.New(slog.DiscardHandler)
	cluster, err := local.Start(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &split{cluster, dir}, nil
}

func (s *split) stop(ctx context.Context) error {
	return errors.Join(s.Close(ctx), os.RemoveAll(s.dir))
}

// addr is where clients connect: straight to the gateway, since a balancer would only take ports from them. The name is
// the community's.
func (s *split) addr() string {
	gateway := s.Plan.Backends[0]
	return "localhost" + gateway[strings.LastIndexByte(gateway, ':'):]
}

// watch returns the processes of a service.
func (s *split) watch(service string) (all []watched) {
	for _, p := range s.State().Processes {
		if p.Service == service {
			all = append(all, watched{p.Name, p.PID, p.Admin})
		}
	}
	return all
}
