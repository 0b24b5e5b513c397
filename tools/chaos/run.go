package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/apiary-relay/apiary/tools/chaos/internal/checker"
	"github.com/apiary-relay/apiary/tools/chaos/internal/havoc"
	"github.com/apiary-relay/apiary/tools/chaos/internal/load"
	"github.com/apiary-relay/apiary/tools/chaos/internal/scenario"
	"github.com/apiary-relay/apiary/tools/internal/local"
)

const (
	// communityHost is the community that every local cluster has, open to all.
	communityHost = "localhost"
	// settling is how long nothing of what is still owed may come, after everything works again, until the rest counts
	// as missed; a test may be less patient. Who is slow still gets something.
	settling = time.Minute
	// settleInterval is the time between two looks, quiet how long clients listen on after all has come: what comes
	// twice may come a little later.
	settleInterval = 250 * time.Millisecond
	quiet          = 1500 * time.Millisecond
)

// errWrong says that the checker found something.
var errWrong = errors.New("something was wrong, see above")

// run runs the scenarios on one cluster.
func run(ctx context.Context, opts options, out io.Writer) (err error) {
	if err := local.RaiseFileLimit(); err != nil {
		return err
	}
	data, err := place(opts.data)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			opts.note.InfoContext(ctx, "what was left", slog.String("logs", filepath.Join(data, "logs")))
		} else if opts.data == "" {
			err = os.RemoveAll(data)
		}
	}()
	links := havoc.NewLinks(ctx, opts.scenarios)
	defer links.Close()
	opts.note.InfoContext(ctx, "starting the cluster")
	cluster, err := local.Start(ctx, local.Config{
		Bin: opts.bin, NATSServer: opts.natsServer, Data: data, DatabaseURL: opts.databaseURL,
		Gateways: opts.gateways, Ingests: opts.ingests, Fanouts: opts.fanouts, Searches: opts.searches,
		SpareFanouts: opts.spares, Restart: true, Via: links.Via, Log: opts.note,
		PostgresLog: slog.New(slog.DiscardHandler), // every connection that waits for it says so, many times
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close(ctx)) }()
	t := &table{out: out}
	var failed []error // scenarios that could not be judged
	for _, s := range opts.scenarios {
		opts.note.InfoContext(ctx, "scenario", slog.String("name", s.Name), slog.String("about", s.About))
		r, err := one(ctx, opts, cluster, links, s)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.Name, err))
			continue
		}
		t.add(s.Name, r)
	}
	failed = append(failed, t.finish())
	if !t.right() {
		failed = append(failed, errWrong)
	}
	return errors.Join(failed...)
}

// one runs one scenario and leaves the cluster as it was.
func one(ctx context.Context, opts options, cluster *local.Cluster, links *havoc.Links, s *scenario.Scenario) (checker.Report, error) {
	log := checker.New()
	clients, err := load.New(load.Config{Gateways: gateways(cluster), Host: communityHost, Load: s.Load, Log: log, Note: opts.note})
	if err != nil {
		return checker.Report{}, err
	}
	defer clients.Close()
	if err := clients.Prepare(ctx); err != nil {
		return checker.Report{}, fmt.Errorf("prepare: %w", err)
	}
	if err := clients.Mark(ctx, opts.marks...); err != nil {
		return checker.Report{}, err
	}
	first := make(map[string][]string)
	for _, service := range []string{"nats", "ingest", "search", "fanout", "gateway"} {
		first[service] = cluster.Running(service)
	}

	using, stop := context.WithCancel(ctx)
	used := make(chan error, 1)
	go func() {
		used <- clients.Use(using)
		stop()
	}()
	err = havoc.New(cluster, links, log, opts.note).Do(using, s.Steps, time.Duration(opts.seconds)*time.Second)
	err = errors.Join(err, havoc.Restore(ctx, cluster, first))
	stop()
	if err := errors.Join(err, <-used, ctx.Err()); err != nil {
		return checker.Report{}, err
	}
	settle(ctx, log, opts.settling)
	clients.Close()
	if n := clients.Abandoned(); n > 0 {
		opts.note.InfoContext(ctx, "events that never had an OK", slog.Int("count", n))
	}
	return log.Check(), ctx.Err()
}

// settle waits until everything that is owed has come, and a moment longer; or until nothing of it has for so long
// that the rest never will.
func settle(ctx context.Context, log *checker.Log, patience time.Duration) {
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	owed, since := log.Check().Missed, time.Now()
	for owed > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if missed := log.Check().Missed; missed < owed {
			owed, since = missed, time.Now()
		}
		if time.Since(since) > patience {
			return
		}
	}
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func gateways(cluster *local.Cluster) []load.Gateway {
	var all []load.Gateway
	for _, process := range cluster.Plan.Gateways {
		all = append(all, load.Gateway{Name: process.Spec.Name, Address: process.Address})
	}
	return all
}

// place returns the directory for the data. Postgres refuses root and runs as another user, who has to reach it.
func place(data string) (string, error) {
	if data != "" {
		return data, nil
	}
	data, err := os.MkdirTemp("", "apiary-chaos-")
	if err != nil {
		return "", err
	}
	return data, os.Chmod(data, 0o711) //nolint:gosec // what is private inside has modes of its own
}
