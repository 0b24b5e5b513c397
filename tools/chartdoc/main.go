// Command chartdoc writes what the chart says of its values: charts/apiary/README.md, and charts/apiary/values.schema.json, by
// which helm refuses values that the chart does not know:
//
//	chartdoc [-chart charts/apiary] [-configuration services/docs/configuration.md] [-o DIR]
//
// Both come from values.yaml, where a comment that begins with "--" describes the key beneath it. The settings that a
// component's config may have come from configuration.md, so that a misspelt one is refused before anything is installed. The
// words around the table are in the chart's README.md.tmpl.
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

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run is the program; it returns the exit code.
func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("chartdoc", flag.ContinueOnError)
	flags.SetOutput(stderr)
	chart := flags.String("chart", "charts/apiary", "directory of the chart")
	configuration := flags.String("configuration", "services/docs/configuration.md", "the reference of settings")
	out := flags.String("o", "", "directory to write to (default: the chart's)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return exitUsage
	}
	if *out == "" {
		out = chart
	}
	if err := write(*chart, *configuration, *out); err != nil {
		fmt.Fprintln(stderr, "chartdoc:", err)
		return exitFailure
	}
	return 0
}

func write(chart, configuration, out string) error {
	known, err := readSettings(configuration)
	if err != nil {
		return err
	}
	values, err := readValues(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return err
	}
	schema, err := schemaOf(values, known)
	if err != nil {
		return err
	}
	words, err := os.ReadFile(filepath.Join(filepath.Clean(chart), "README.md.tmpl"))
	if err != nil {
		return err
	}
	page, err := readme(string(words), values)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"values.schema.json": schema, "README.md": page} {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil { //nolint:gosec // part of the repository
			return err
		}
	}
	return nil
}
