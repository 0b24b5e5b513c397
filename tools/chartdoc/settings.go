package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// components are those that the chart runs.
var components = []string{"gateway", "ingest", "fanout", "search"}

// everyService is the section of configuration.md with what all services have.
const everyService = "Every service"

// settings are the flags of each section of configuration.md, without the leading dashes, and the variables of each.
type settings map[string]map[string][]string

// row is a setting in configuration.md: its flag and its variables.
var row = regexp.MustCompile("^\\| `--([a-z0-9.-]+)` \\| ([^|]+) \\|")

// readSettings reads configuration.md.
func readSettings(path string) (settings, error) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	s, section := settings{}, ""
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(name)
			s[section] = map[string][]string{}
		}
		if m := row.FindStringSubmatch(line); m != nil && section != "" {
			for name := range strings.SplitSeq(m[2], ",") {
				s[section][m[1]] = append(s[section][m[1]], strings.Trim(strings.TrimSpace(name), "`"))
			}
		}
	}
	for _, name := range append([]string{everyService}, components...) {
		if len(s[name]) == 0 {
			return nil, fmt.Errorf("%s has no settings of %s", path, name)
		}
	}
	return s, nil
}

// of returns all settings of a component.
func (s settings) of(component string) map[string][]string {
	all := map[string][]string{}
	for _, section := range []string{everyService, component} {
		for flag, variables := range s[section] {
			all[flag] = variables
		}
	}
	return all
}

// owned are the settings that the chart makes from other values, or that must not differ between pods.
var owned = []string{
	"config", "admin.listen", "drain.delay", "drain.timeout", "listen", "grpc.listen",
	"ingest.targets", "fanout.targets", "search.targets", "postgres.url", "nats.url", "nats.credentials", "nats.ca", "self", "relay-key",
	"partitions", "limit", "max-content", "created-at-window", "max-skew", "stream-replicas",
}

// open returns the flags that config of a component may have, sorted.
func (s settings) open(component string) []string {
	var flags []string
	for flag := range s.of(component) {
		if !slices.Contains(owned, flag) {
			flags = append(flags, flag)
		}
	}
	slices.Sort(flags)
	return flags
}

// common returns the flags that config of every component may have, sorted.
func (s settings) common() []string {
	return slices.DeleteFunc(s.open(components[0]), func(flag string) bool {
		return slices.ContainsFunc(components, func(c string) bool { return !slices.Contains(s.open(c), flag) })
	})
}
