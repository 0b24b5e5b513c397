// Command cluster runs the split topology on this machine: every service its own process on loopback,
// several of each, one NATS server, one Postgres (DATABASE_URL, or a private one in the data directory),
// and a TCP balancer in front of the gateways.
//
//	cluster --bin bin --gateways 2 --ingests 2 --fanouts 2 --searches 2 --port 3000 --data DIR
//
// A process that dies is reported and started again at the same address, unless --no-restart says not to.
// Each has a log file in DIR/logs; DIR/cluster.json says which process is where, for tests and for tools
// that kill things. Ctrl-C stops everything, gateways first, within ten seconds; on Linux nothing survives
// the program, not even when it is killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/apiary-relay/apiary/pkg/datadir"
)

// The exit codes, as of all our programs.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, err := parse(args, stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "cluster: %v\nRun \"cluster -help\" to see what there is.\n", err)
		return exitUsage
	}
	ctx, stop := withSignals(ctx)
	defer stop()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{ReplaceAttr: withoutLevel}))
	if err := runCluster(ctx, opts, stdout, log); err != nil {
		fmt.Fprintln(stderr, "cluster:", err)
		return exitFailure
	}
	return 0
}

// withSignals returns a context that ends with the first signal. A second one ends the program at once, and the
// kernel its children; but a terminal that closes sends two hangups, and under nohup none counts.
func withSignals(ctx context.Context) (_ context.Context, stop func()) {
	signal.Ignore(syscall.SIGPIPE) // who reads our output, such as tee, may be gone before us
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop = signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP)
		stop()
	})
	return ctx, stop
}

// withoutLevel drops the level: what is logged here is what a person at the terminal wants to know.
func withoutLevel(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// options are the command line.
type options struct {
	bin, natsServer, data                string
	gateways, ingests, fanouts, searches int
	port                                 int
	noRestart                            bool
	databaseURL                          string
}

// parse reads the command line. What -help asks for goes to help.
func parse(args []string, help io.Writer) (options, error) {
	var opts options
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&opts.bin, "bin", "bin", "directory of the services' programs")
	flags.StringVar(&opts.natsServer, "nats-server", ".bin/nats-server", "the program of NATS")
	flags.StringVar(&opts.data, "data", "", "directory for data, logs and cluster.json (default: /var/lib/apiary-cluster, or apiary-cluster among the user's data)")
	flags.IntVar(&opts.gateways, "gateways", 2, "number of gateways")
	flags.IntVar(&opts.ingests, "ingests", 2, "number of ingest replicas")
	flags.IntVar(&opts.fanouts, "fanouts", 2, "number of fan-out nodes")
	flags.IntVar(&opts.searches, "searches", 2, "number of search replicas")
	flags.IntVar(&opts.port, "port", 3000, "loopback port for clients")
	flags.BoolVar(&opts.noRestart, "no-restart", false, "leave a process that died dead")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(help)
			flags.PrintDefaults()
		}
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if opts.port < 1 || opts.port > 65535 {
		return options{}, fmt.Errorf("%d is not a port", opts.port)
	}
	opts.databaseURL = os.Getenv("DATABASE_URL")
	if opts.data == "" {
		data, err := datadir.Default("apiary-cluster", os.Getenv("XDG_DATA_HOME"))
		if err != nil {
			return options{}, err
		}
		opts.data = data
	}
	return opts, nil
}
