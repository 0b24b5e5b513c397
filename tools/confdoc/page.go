package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

//go:embed configuration.md.tmpl
var words string

// services are the programs with settings of one service, in the order of the page.
var services = []string{"gateway", "ingest", "fanout", "search", "audit", "workflow", "media"}

// table is a Markdown table: two lines of heading and a line for each setting.
type table struct{ head, rows []string }

// String is the table as it stands in the page.
func (t table) String() string {
	return strings.Join(slices.Concat(t.head, t.rows), "\n")
}

// reference is what the template is given.
type reference struct {
	// Common is what every service has, Services what only some have, by name.
	Common   table
	Services map[string]table
	// AllInOne is what apiary serve has.
	AllInOne table
}

// page asks every program in the directory and returns the finished page.
func page(ctx context.Context, bin string) ([]byte, error) {
	tables := make(map[string]table, len(services))
	for _, name := range services {
		t, err := ask(ctx, filepath.Join(bin, name), "--print-doc")
		if err != nil {
			return nil, err
		}
		tables[name] = t
	}
	allInOne, err := ask(ctx, filepath.Join(bin, "apiary"), "config", "doc")
	if err != nil {
		return nil, err
	}
	return render(reference{Common: extract(tables), Services: tables, AllInOne: allInOne})
}

// ask runs a program that prints its reference, with nothing in its environment.
func ask(ctx context.Context, program string, args ...string) (table, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // one of our own programs
	cmd.Env, cmd.Stderr = []string{}, &stderr
	out, err := cmd.Output()
	if err != nil {
		return table{}, fmt.Errorf("ask %s for its settings (make build makes it): %w %s", program, err, stderr.Bytes())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	const head = 2
	if len(lines) <= head || !strings.HasPrefix(lines[1], "| ---") {
		return table{}, fmt.Errorf("%s does not print a table", program)
	}
	return table{lines[:head], lines[head:]}, nil
}

// extract takes out of the tables the rows that are the same in all of them.
func extract(tables map[string]table) table {
	count := make(map[string]int)
	for _, t := range tables {
		for _, row := range t.rows {
			count[row]++
		}
	}
	everywhere := func(row string) bool { return count[row] == len(tables) }
	var common table
	for name, t := range tables {
		common = table{t.head, slices.DeleteFunc(slices.Clone(t.rows), func(row string) bool { return !everywhere(row) })}
		tables[name] = table{t.head, slices.DeleteFunc(slices.Clone(t.rows), everywhere)}
	}
	return common
}

func render(r reference) ([]byte, error) {
	t, err := template.New("configuration.md").Option("missingkey=error").Parse(words)
	if err != nil {
		return nil, fmt.Errorf("read the template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, r); err != nil {
		return nil, fmt.Errorf("write the page: %w", err)
	}
	return b.Bytes(), nil
}
