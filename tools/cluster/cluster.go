package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/apiary-relay/apiary/tools/internal/balance"
	"github.com/apiary-relay/apiary/tools/internal/local"
)

// runCluster starts everything, waits until ctx ends or Postgres does, and stops everything.
func runCluster(ctx context.Context, opts options, stdout io.Writer, log *slog.Logger) (err error) {
	c, err := local.Start(ctx, local.Config{
		Bin: opts.bin, NATSServer: opts.natsServer, Data: opts.data,
		Gateways: opts.gateways, Ingests: opts.ingests, Fanouts: opts.fanouts, Searches: opts.searches,
		Port: opts.port, DatabaseURL: opts.databaseURL, Restart: !opts.noRestart, Log: log,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // the user broke the start off, and this is what that looks like
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	balancer, err := balance.New(balance.Config{Listen: c.Plan.Balancer, Backends: c.Plan.Backends, Log: log})
	if err != nil {
		return err
	}
	return serve(ctx, c, balancer, stdout)
}

// serve carries clients until ctx ends.
func serve(ctx context.Context, c *local.Cluster, balancer *balance.Balancer, stdout io.Writer) error {
	// The balancer outlives ctx: gateways say goodbye to their clients through it.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- balancer.Run(own, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		return err
	}
	err := c.Announce(stdout)
	if err == nil {
		select {
		case <-ctx.Done():
		case <-c.Lost():
			err = errors.New("postgres has ended, see its messages above")
		}
	}
	err = errors.Join(err, balancer.Drain(ctx))
	c.StopGateways(ctx)
	cancel()
	return errors.Join(err, <-done)
}
