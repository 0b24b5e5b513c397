// Command confdoc writes the reference of every setting, services/docs/configuration.md, from what the
// programs say of themselves:
//
//	confdoc --bin bin -o services/docs/configuration.md
//
// It runs each program's own printing of its reference, in an empty environment, so that the page is the
// same on every machine. What all services have in common is printed once. The words around the tables
// are in configuration.md.tmpl.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
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

// run is the program; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("confdoc", flag.ContinueOnError)
	flags.SetOutput(stderr)
	bin := flags.String("bin", "bin", "directory of the programs")
	out := flags.String("o", "", "file to write; standard output if empty")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "confdoc: unexpected argument %q\n", flags.Arg(0))
		return exitUsage
	}
	if err := write(ctx, *bin, *out, stdout); err != nil {
		fmt.Fprintln(stderr, "confdoc:", err)
		return exitFailure
	}
	return 0
}

// write makes the page; a file is only touched when everything went well.
func write(ctx context.Context, bin, out string, stdout io.Writer) error {
	text, err := page(ctx, bin)
	if err != nil {
		return err
	}
	if out == "" {
		_, err = stdout.Write(text)
		return err
	}
	return os.WriteFile(filepath.Clean(out), text, 0o644) //nolint:gosec // a page of the documentation
}
