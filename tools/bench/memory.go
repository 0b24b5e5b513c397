package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/apiary-relay/apiary/tools/internal/local"
)

// memory are the sizes of a run that measures what idle connections take.
type memory struct {
	binary     string
	bin        string // directory of the services' binaries
	natsServer string
	conns      int
	only       string // all-in-one or split; "" for both
	profile    string // directory for profiles; "" for none
}

// The topologies that are measured.
const (
	together = "all-in-one"
	apart    = "split"
)

func (m *memory) flags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&m.binary, "apiary", "bin/apiary", "the all-in-one's binary")
	flags.StringVar(&m.bin, "bin", "bin", "directory of the services' programs, for the split topology")
	flags.StringVar(&m.natsServer, "nats-server", ".bin/nats-server", "the program of NATS, for the split topology")
	flags.IntVar(&m.conns, "conns", 10_000, "idle connections; one address has about 28,000 ports for them")
	flags.StringVar(&m.only, "only", "", "measure only one topology: "+together+" or "+apart)
	flags.StringVar(&m.profile, "profile", "", "directory to write profiles of heap and goroutines to, with the connections open")
	return flags
}

// runMemory measures both topologies: every connection is authenticated, then each opens one subscription.
func runMemory(ctx context.Context, m memory, out io.Writer) error {
	if err := local.RaiseFileLimit(); err != nil {
		return err
	}
	if m.only != "" && m.only != together && m.only != apart {
		return fmt.Errorf("-only %s: it is %s or %s", m.only, together, apart)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "PER CONNECTION, %d OPEN\tRSS\tHEAP\tSTACKS\tGOROUTINES\n", m.conns)
	result := map[string]float64{}
	add := func(name string, f footprint) {
		for _, row := range []struct {
			what, key string
			use       usage
		}{{"authenticated", "conn", f.connected}, {"with a subscription", "subscribed_conn", f.subscribed}} {
			fmt.Fprintf(table, "%s, %s\t%.1f KiB\t%.1f KiB\t%.1f KiB\t%.2f\n",
				name, row.what, row.use.rss, row.use.heap, row.use.stacks, row.use.goroutines)
			key := fmt.Sprintf("rss_kb_per_%s_%d", row.key, m.conns)
			if name != together {
				key = strings.ReplaceAll(name, "-", "") + "_" + key
			}
			result[key] = row.use.rss
		}
	}
	if m.only != apart {
		f, err := m.measureAllInOne(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", together, err)
		}
		add(together, f)
	}
	if m.only != together {
		parts, err := m.measureSplit(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", apart, err)
		}
		both := footprint{}
		for i, name := range splitParts {
			add(name, parts[i])
			both.connected.add(parts[i].connected)
			both.subscribed.add(parts[i].subscribed)
		}
		add(apart, both)
	}
	return finish(out, table, result)
}

// measureAllInOne measures a process of its own, so that no other load has made its heap larger before.
func (m *memory) measureAllInOne(ctx context.Context) (f footprint, err error) {
	fmt.Fprintf(os.Stderr, "bench: opening %d connections to the all-in-one\n", m.conns)
	s, err := startServer(ctx, m.binary, "--gateway.max-connections=0")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	all, err := m.measure(ctx, s.url(), []watched{{together, s.cmd.Process.Pid, s.admin}})
	if err != nil {
		return f, err
	}
	return all[0], nil
}

// splitParts are the processes that know of connections when each service is one.
var splitParts = []string{"gateway", "fanout"}

// measureSplit measures the processes of splitParts.
func (m *memory) measureSplit(ctx context.Context) (all []footprint, err error) {
	fmt.Fprintf(os.Stderr, "bench: opening %d connections to a split cluster\n", m.conns)
	cluster, err := startSplit(ctx, local.Config{Bin: m.bin, NATSServer: m.natsServer, Fanouts: 1, Environment: []string{"APIARY_MAX_CONNECTIONS=0"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cluster.stop(ctx)) }()
	var parts []watched
	for _, service := range splitParts {
		parts = append(parts, cluster.watch(service)...)
	}
	return m.measure(ctx, "ws://"+cluster.addr(), parts)
}

// footprint is what a connection takes of one process: authenticated, and with a subscription besides.
type footprint struct{ connected, subscribed usage }

// measure opens connections to url and divides by their number how much the processes have grown.
func (m *memory) measure(ctx context.Context, url string, processes []watched) ([]footprint, error) {
	// The first connection opens streams and prepared statements, which all others share.
	first, err := openAll(ctx, url, 1)
	defer closeAll(first)
	if err != nil {
		return nil, err
	}
	if err := subscribeAll(ctx, first); err != nil {
		return nil, err
	}
	before, err := settled(ctx, processes)
	if err != nil {
		return nil, err
	}
	clients, err := openAll(ctx, url, m.conns)
	defer closeAll(clients)
	if err != nil {
		return nil, err
	}
	connected, err := settled(ctx, processes)
	if err != nil {
		return nil, err
	}
	if err := subscribeAll(ctx, clients); err != nil {
		return nil, err
	}
	subscribed, err := settled(ctx, processes)
	if err != nil {
		return nil, err
	}
	if err := m.writeProfiles(ctx, processes); err != nil {
		return nil, err
	}
	// Who was closed meanwhile takes nothing, and would make the figure too good.
	for i, c := range clients {
		select {
		case <-c.ended:
			return nil, fmt.Errorf("connection %d: %w", i, c.err)
		default:
		}
	}
	all := make([]footprint, len(processes))
	for i := range all {
		all[i].connected = connected[i].since(before[i], m.conns)
		all[i].subscribed = subscribed[i].since(before[i], m.conns)
	}
	return all, nil
}

// writeProfiles writes what the processes have in use, if anybody wants to know.
func (m *memory) writeProfiles(ctx context.Context, processes []watched) error {
	if m.profile == "" {
		return nil
	}
	if err := os.MkdirAll(m.profile, 0o755); err != nil { //nolint:gosec // where the user wants them
		return err
	}
	for _, p := range processes {
		err := errors.Join(p.profile(ctx, m.profile, "heap", "?gc=1"), p.profile(ctx, m.profile, "goroutine", ""))
		if err != nil {
			return err
		}
	}
	return nil
}
