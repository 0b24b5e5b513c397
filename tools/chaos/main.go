// Command chaos breaks a cluster of real processes while clients use it, and checks what they get.
//
//	chaos [--seconds 60] [--only NAME] [scenario.yaml ...]
//	chaos watch --url ws://HOST [--connect HOST:PORT]
//
// It starts what `make cluster` starts, on data of its own, runs one scenario after the other, and prints a table, then
// what was wrong, and as its last line RESULT with the sums as JSON. Package scenario says what a scenario is, package
// checker what counts as wrong. Without files it runs those of tools/chaos/scenarios.
//
// chaos watch starts and breaks nothing: it uses a relay that runs already and judges what its clients get, while somebody
// else scales and replaces its parts.
//
// It fails when something was wrong or when the run itself was not what it should be, never because the machine is slow.
// Clients and cluster share the machine's cores: pauses compare runs on one machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/apiary-relay/apiary/tools/chaos/internal/scenario"
	"github.com/apiary-relay/apiary/tools/chaos/scenarios"
)

// The exit codes, as of all our programs.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command is the program; it returns the exit code.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var do func(*slog.Logger) error
	var err error
	if len(args) > 0 && args[0] == "watch" {
		var opts watchOptions
		opts, err = parseWatch(args[1:], stderr)
		do = func(note *slog.Logger) error {
			opts.note = note
			return watch(ctx, opts, stdout)
		}
	} else {
		var opts options
		opts, err = parse(args, stderr)
		do = func(note *slog.Logger) error {
			opts.note = note
			return run(ctx, opts, stdout)
		}
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "chaos:", err)
		return exitUsage
	}
	if err := do(slog.New(slog.NewTextHandler(stderr, nil))); err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return exitFailure
	}
	return 0
}

// options say what to run and how large.
type options struct {
	bin, natsServer, data                        string
	gateways, ingests, fanouts, searches, spares int
	databaseURL                                  string // set in tests; otherwise Postgres is private
	seconds, subscribers                         int
	only                                         string
	scenarios                                    []*scenario.Scenario
	settling                                     time.Duration
	marks                                        []string // set in tests; see load.Mark
	note                                         *slog.Logger
}

func parse(args []string, help io.Writer) (options, error) {
	opts := options{settling: settling}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(help)
	flags.StringVar(&opts.bin, "bin", "bin", "directory of the services' programs")
	flags.StringVar(&opts.natsServer, "nats-server", ".bin/nats-server", "the program of NATS")
	flags.StringVar(&opts.data, "data", "", "directory for data and logs, which stays (default: a temporary one, which goes if nothing was wrong)")
	flags.IntVar(&opts.gateways, "gateways", 3, "number of gateways")
	flags.IntVar(&opts.ingests, "ingests", 2, "number of ingest replicas")
	flags.IntVar(&opts.fanouts, "fanouts", 3, "number of fan-out nodes")
	flags.IntVar(&opts.searches, "searches", 2, "number of search replicas")
	flags.IntVar(&opts.spares, "spares", 1, "number of fan-out nodes that only scenarios start")
	flags.IntVar(&opts.seconds, "seconds", 60, "length of each scenario")
	flags.IntVar(&opts.subscribers, "subscribers", 0, "number of subscribers (default: what each scenario says)")
	flags.StringVar(&opts.only, "only", "", "run only the scenarios of these names, separated by commas")
	if err := flags.Parse(args); err != nil {
		return opts, err
	}
	if opts.seconds < 1 || opts.seconds > int(time.Hour/time.Second) {
		return opts, fmt.Errorf("a scenario takes 1 to 3600 seconds, not %d", opts.seconds)
	}
	all, err := read(flags.Args())
	if err != nil {
		return opts, err
	}
	if opts.scenarios, err = choose(all, opts.only); err != nil {
		return opts, err
	}
	for _, s := range opts.scenarios {
		if opts.subscribers > 0 {
			s.Load.Subscribers = opts.subscribers
		}
		if err := s.Load.Check(); err != nil {
			return opts, err
		}
	}
	return opts, nil
}

// read reads the files, or our own if there are none.
func read(files []string) ([]*scenario.Scenario, error) {
	content := os.ReadFile
	if len(files) == 0 {
		content = scenarios.Files.ReadFile
		var err error
		if files, err = fs.Glob(scenarios.Files, "*.yaml"); err != nil {
			return nil, err
		}
	}
	var all []*scenario.Scenario
	for _, file := range files {
		text, err := content(file)
		if err != nil {
			return nil, err
		}
		s, err := scenario.Parse(file, text)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// choose returns the scenarios of the names in only, all of them if it is empty.
func choose(all []*scenario.Scenario, only string) ([]*scenario.Scenario, error) {
	if only == "" {
		return all, nil
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	var chosen []*scenario.Scenario
	for name := range strings.SplitSeq(only, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("there is no scenario %q, but %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
