// Command bench measures this machine's all-in-one as a real process, over real sockets, with the durability
// of production: every acknowledged event is committed and flushed by Postgres. It prints a table and, as
// its last line, RESULT with the figures as JSON.
//
// bench hostile instead lets attackers loose on the relay and measures what well-behaved clients notice of it; bench
// fanout compares live delivery with other servers, and clusters of several fan-out nodes; bench memory measures what
// idle connections take, in one process and apart.
//
// It fails when what it checks is wrong (an acknowledged event is not stored, a delivery is missing or
// repeated), never because the machine is slow. Client and server share the machine's cores, so the figures
// compare runs on one machine and are no capacity statement.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/apiary-relay/apiary/tools/internal/local"
)

// options are the sizes of a run.
type options struct {
	binary      string
	events      int
	publishers  int
	window      int
	subscribers int
	queries     int
	idle        int
}

func (o *options) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.binary, "apiary", "bin/apiary", "the all-in-one's binary")
	flags.IntVar(&o.events, "events", 100_000, "events to publish, and then to query")
	flags.IntVar(&o.publishers, "publishers", 16, "connections that publish")
	flags.IntVar(&o.window, "window", 64, "events in flight per publishing connection")
	flags.IntVar(&o.subscribers, "subscribers", 1000, "subscribers of the crowded delivery run")
	flags.IntVar(&o.queries, "queries", 300, "queries per shape of filter")
	flags.IntVar(&o.idle, "idle", 5000, "idle authenticated connections")
	return flags
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command runs what the arguments say.
func command(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && args[0] == "hostile":
		h := hostile{separately: true}
		if err := h.flags("bench hostile").Parse(args[1:]); err != nil {
			return err
		}
		return runHostile(ctx, h, os.Stdout)
	case len(args) > 0 && args[0] == "fanout":
		f := fanout{crowds: crowds}
		if err := f.flags("bench fanout").Parse(args[1:]); err != nil {
			return err
		}
		return runFanout(ctx, f, os.Stdout)
	case len(args) > 0 && args[0] == "memory":
		var m memory
		if err := m.flags("bench memory").Parse(args[1:]); err != nil {
			return err
		}
		return runMemory(ctx, m, os.Stdout)
	case len(args) == 2 && args[0] == "attack": // bench hostile starts it
		return runAttack(ctx, args[1], os.Stdout)
	}
	opts := options{}
	if err := opts.flags().Parse(args); err != nil {
		return err
	}
	return run(ctx, opts, os.Stdout)
}

// result is the RESULT line. Latencies are in milliseconds, memory in KiB.
type result struct {
	VerifyPerS      float64 `json:"verify_per_s"`
	VerifyBatchPerS float64 `json:"verify_batch_per_s"`
	IngestPerS      float64 `json:"ingest_per_s"`
	Deliver1P50     float64 `json:"deliver_1_p50_ms"`
	Deliver1P99     float64 `json:"deliver_1_p99_ms"`
	Deliver1000P50  float64 `json:"deliver_1000_p50_ms"`
	Deliver1000P99  float64 `json:"deliver_1000_p99_ms"`
	ReqP50          float64 `json:"req_p50_ms"`
	ReqP99          float64 `json:"req_p99_ms"`
	RSSPerConn      float64 `json:"rss_kb_per_conn"`
	RSSPerSubbed    float64 `json:"rss_kb_per_subscribed_conn"`
	ServerCPUPerEvt float64 `json:"ingest_cpu_us_per_event"`
}

func run(ctx context.Context, opts options, out io.Writer) (err error) {
	if err := local.RaiseFileLimit(); err != nil {
		return err
	}
	var res result
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(what, figure, detail string) { fmt.Fprintf(table, "%s\t%s\t%s\n", what, figure, detail) }
	row("WHAT", "FIGURE", "HOW")

	speed, err := measureVerify(ctx)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	res.VerifyPerS, res.VerifyBatchPerS = speed.single, speed.batched
	row("verify per core", fmt.Sprintf("%.0f/s", speed.single), "decode, id and BIP-340 signature of a text note, one by one on one goroutine")
	row("  in batches", fmt.Sprintf("%.0f/s", speed.batched), fmt.Sprintf("%d events of %d authors, as ingest does under load", verifyBatch, verifyAuthors))

	idle, err := (&memory{binary: opts.binary, conns: opts.idle}).measureAllInOne(ctx)
	if err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	res.RSSPerConn, res.RSSPerSubbed = idle.connected.rss, idle.subscribed.rss
	row("memory per idle connection", fmt.Sprintf("%.1f KiB", res.RSSPerConn),
		fmt.Sprintf("growth of a fresh process's resident set over %d authenticated connections, after garbage collection", opts.idle))
	row("  with a subscription", fmt.Sprintf("%.1f KiB", res.RSSPerSubbed), "gateway and fan-out together")

	fmt.Fprintln(os.Stderr, "bench: starting the all-in-one")
	server, err := startServer(ctx, opts.binary, unlimited...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()

	fmt.Fprintf(os.Stderr, "bench: publishing %d events\n", opts.events)
	load, err := measureIngest(ctx, server, opts)
	if err != nil {
		return fmt.Errorf("ingest: %w", err)
	}
	res.IngestPerS, res.ServerCPUPerEvt = load.perSecond, load.cpuPerEvent
	row("ingest, durable", fmt.Sprintf("%.0f/s", load.perSecond),
		fmt.Sprintf("%d events over %d connections with %d in flight each; OK p50 %.1f ms, p99 %.1f ms; %.0f µs CPU per event in apiary",
			opts.events, opts.publishers, opts.window, load.p50, load.p99, load.cpuPerEvent))

	fmt.Fprintln(os.Stderr, "bench: querying")
	shapes, all, err := measureQueries(ctx, server, load, opts)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	res.ReqP50, res.ReqP99 = all.quantile(0.50), all.quantile(0.99)
	row("REQ to EOSE", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", res.ReqP50, res.ReqP99),
		fmt.Sprintf("%d stored events, %d queries of each shape, one at a time", opts.events, opts.queries))
	for _, s := range shapes {
		row("  "+s.name, fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", s.times.quantile(0.50), s.times.quantile(0.99)), s.filter)
	}

	fmt.Fprintln(os.Stderr, "bench: delivering")
	one, err := measureDelivery(ctx, server, delivery{subscribers: 1, events: 500, every: 20 * time.Millisecond})
	if err != nil {
		return fmt.Errorf("deliver to 1: %w", err)
	}
	res.Deliver1P50, res.Deliver1P99 = one.quantile(0.50), one.quantile(0.99)
	row("publish to deliver, 1 subscriber", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", res.Deliver1P50, res.Deliver1P99), "50 events/s, through the durable commit")
	many, err := measureDelivery(ctx, server, delivery{subscribers: opts.subscribers, events: 100, every: 100 * time.Millisecond})
	if err != nil {
		return fmt.Errorf("deliver to %d: %w", opts.subscribers, err)
	}
	res.Deliver1000P50, res.Deliver1000P99 = many.quantile(0.50), many.quantile(0.99)
	row(fmt.Sprintf("publish to deliver, %d subscribers", opts.subscribers),
		fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", res.Deliver1000P50, res.Deliver1000P99),
		fmt.Sprintf("10 events/s, %d deliveries/s", 10*opts.subscribers))

	return finish(out, table, res)
}
