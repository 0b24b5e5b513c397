package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/apiary-relay/apiary/pkg/admin"
	"github.com/apiary-relay/apiary/pkg/buildinfo"
	"github.com/apiary-relay/apiary/pkg/config"
)

// Exit codes.
const (
	exitClean   = 0
	exitFailure = 1
	exitConfig  = 2
)

// Streams are the standard streams of a command.
type Streams struct{ Out, Err io.Writer }

// Run is a command's work: it returns when ctx is done or the work is.
type Run func(ctx context.Context, loaded *config.Loaded, std Streams) error

// base is what Main adds to a service's settings.
type base struct {
	Config       `embed:""`
	Version      bool `help:"Print the version and exit." env:"-"`
	PrintConfig  bool `help:"Print the settings in effect and where they come from, and exit." env:"-"`
	PrintChanged bool `help:"Print only the settings that differ from their defaults, and exit." env:"-"`
	PrintDoc     bool `help:"Print the reference of the settings as a Markdown table, and exit." env:"-"`
	Healthcheck  bool `help:"Ask the process that listens on admin.listen whether it is ready, and exit 0 if it is." env:"-"`
}

// Main runs a service as a process and does not return. cfg is a pointer to the service's
// configuration; build is called when it has been filled.
func Main(name string, cfg any, build Build) {
	b := &base{}
	os.Exit(run(name, "Apiary "+name+" service.", []any{cfg, b}, os.Args[1:], standard(), mainRun(name, b, build)))
}

// Command runs a program with its own commands and does not return. cli is a pointer to a struct with
// `cmd` fields and settings.
func Command(name, description string, cli any, work Run) {
	os.Exit(run(name, description, []any{cli}, os.Args[1:], standard(), work))
}

func standard() Streams { return Streams{Out: os.Stdout, Err: os.Stderr} }

func mainRun(name string, b *base, build Build) Run {
	return func(ctx context.Context, loaded *config.Loaded, std Streams) error {
		switch {
		case b.Version:
			_, err := fmt.Fprintln(std.Out, name, buildinfo.Read())
			return err
		case b.PrintConfig, b.PrintChanged:
			return loaded.Print(std.Out, b.PrintChanged)
		case b.PrintDoc:
			return loaded.Doc(std.Out)
		case b.Healthcheck:
			return admin.Probe(ctx, b.Admin.Listen, "/readyz")
		default:
			return Serve(ctx, name, b.Config, loaded, std.Err, build)
		}
	}
}

// run parses, works and returns the exit code.
func run(name, description string, structs []any, args []string, std Streams, work Run) int {
	loaded, err := config.Parse(name, structs[0], args, config.Options{
		Description: description, Also: structs[1:], Stdout: std.Out,
	})
	if errors.Is(err, config.ErrHelp) {
		return exitClean
	}
	if err != nil {
		return report(name, refused{err}, std)
	}
	ctx, stop := withSignals(context.Background(), func() { os.Exit(exitFailure) })
	defer stop()
	return report(name, work(ctx, loaded, std), std)
}

// report writes the error of a command and returns its exit code.
func report(name string, err error, std Streams) int {
	if err == nil {
		return exitClean
	}
	if !errors.As(err, new(logged)) {
		// The program's name is there already. Nobody is left to tell if this fails.
		_, _ = fmt.Fprintf(std.Err, "%s: %s\n", name, strings.TrimPrefix(err.Error(), "run "+name+": "))
	}
	var usage *config.UsageError
	if errors.As(err, &usage) {
		_, _ = fmt.Fprintf(std.Err, "Run \"%s --help\" to see what there is.\n", usage.Command)
	}
	if errors.Is(err, ErrConfig) {
		return exitConfig
	}
	return exitFailure
}

// withSignals returns a context that ends with the first SIGTERM, SIGINT or SIGHUP. A second SIGTERM or SIGINT
// calls atOnce; a second SIGHUP is none of impatience, since a terminal that closes sends two: the shell's and the
// system's. stop ends the waiting and returns when it has ended.
func withSignals(ctx context.Context, atOnce func()) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) { // nohup has it ignored
		signal.Notify(signals, syscall.SIGHUP)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for first := true; ; first = false {
			select {
			case s := <-signals:
				switch {
				case first:
					cancel()
				case s != syscall.SIGHUP:
					atOnce()
					return
				}
			case <-quit:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(quit)
		<-done
		cancel()
	}
}
