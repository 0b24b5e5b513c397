// Command kinddoc writes the page of event kinds, services/docs/kinds.md, from the table of pkg/nostr/kind:
//
//	kinddoc -o services/docs/kinds.md
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The exit codes, as of all our programs.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program; it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("kinddoc", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("o", "", "file to write; standard output if empty")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "kinddoc: unexpected argument %q\n", flags.Arg(0))
		return exitUsage
	}
	if err := write(*out, stdout); err != nil {
		fmt.Fprintln(stderr, "kinddoc:", err)
		return exitFailure
	}
	return 0
}

func write(out string, stdout io.Writer) error {
	if out == "" {
		_, err := stdout.Write(page())
		return err
	}
	return os.WriteFile(filepath.Clean(out), page(), 0o644) //nolint:gosec // a page of the documentation
}
