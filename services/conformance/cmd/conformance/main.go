// Command conformance holds a relay to the NIPs.
//
//	conformance ws://localhost:3000
//	conformance local
//	conformance list
//
// The second form starts the relays of this repository itself, on fresh data and free ports. Each run prints
// a section for each NIP, a table, and as its last line RESULT with the numbers as JSON. The program exits
// with 1 when a case failed or a relay could not be asked, and with 2 when it was called wrongly.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/apiary-relay/apiary/services/conformance"
)

// The exit codes, as of all our programs.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// arguments are the command line.
type arguments struct {
	Run   runCommand   `cmd:"" default:"withargs" help:"Hold a relay to the NIPs (the default)."`
	Local localCommand `cmd:"" help:"Hold the all-in-one and a split cluster of two of everything to the NIPs; starts them itself."`
	List  listCommand  `cmd:"" help:"Write all cases as a page in Markdown, which is services/docs/cases.md."`
}

// listCommand writes the page of cases.
type listCommand struct {
	Output string `short:"o" help:"File to write; standard output if there is none." type:"path"`
}

func (c *listCommand) run(stdout io.Writer) error {
	if c.Output == "" {
		return conformance.Catalogue(stdout)
	}
	var page bytes.Buffer
	if err := conformance.Catalogue(&page); err != nil {
		return err
	}
	return os.WriteFile(c.Output, page.Bytes(), 0o644) //nolint:gosec // a page for everybody
}

// runCommand is for a relay that runs.
type runCommand struct {
	URL                []string `arg:"" help:"The relay, like ws://localhost:3000. Over several URLs of one relay, connections take turns."`
	conformance.Config `embed:""`
}

func (c *runCommand) run(ctx context.Context, stdout io.Writer) error {
	_, err := conformance.Run(ctx, c.URL, c.Config, stdout)
	return err
}

// run is the program; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var cfg arguments
	helped := false
	parser, err := kong.New(&cfg, kong.Name("conformance"), kong.Writers(stdout, stderr),
		kong.Description("Holds a Nostr relay to the NIPs, over its own protocol."),
		kong.Exit(func(int) { helped = true }))
	if err != nil {
		fmt.Fprintln(stderr, "conformance:", err)
		return exitFailure
	}
	chosen, err := parser.Parse(args)
	switch {
	case helped:
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "conformance:", err)
		return exitUsage
	}
	switch chosen.Command() {
	case "local":
		err = cfg.Local.run(ctx, stdout)
	case "list":
		err = cfg.List.run(stdout) //nolint:contextcheck // it runs no case
	default:
		err = cfg.Run.run(ctx, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "conformance:", err)
		return exitFailure
	}
	return 0
}
