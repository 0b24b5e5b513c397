package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	chart         = "../../charts/apiary"
	configuration = "../../services/docs/configuration.md"
)

// What is in the repository is what values.yaml and configuration.md say.
func TestChartDocIsFresh(t *testing.T) {
	out := t.TempDir()
	var stderr bytes.Buffer
	require.Zero(t, run([]string{"-chart", chart, "-configuration", configuration, "-o", out}, &stderr), stderr.String())
	for _, name := range []string{"README.md", "values.schema.json"} {
		got, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		want, err := os.ReadFile(filepath.Join(chart, name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "run make doc")
	}
}

// rendered is what is looked at of a rendered object.
type rendered struct {
	Kind     string
	Metadata struct{ Labels map[string]string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Spec struct {
				Containers []struct{ Env []struct{ Name string } }
			}
		}
	}
}

// Every variable that the chart gives to a component is one that the component knows.
func TestVariablesAreKnown(t *testing.T) {
	known, err := readSettings(configuration)
	require.NoError(t, err)
	renders, err := filepath.Glob(filepath.Join(chart, "testdata", "*.golden.yaml"))
	require.NoError(t, err)
	require.Len(t, renders, 3)
	seen := map[string]int{}
	for _, path := range renders {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var o rendered
			if decoder.Decode(&o) != nil {
				break
			}
			component := o.Metadata.Labels["app.kubernetes.io/component"]
			var names []string
			if o.Kind == "ConfigMap" {
				for name := range o.Data {
					names = append(names, name)
				}
			}
			for _, c := range o.Spec.Template.Spec.Containers {
				for _, e := range c.Env {
					names = append(names, e.Name)
				}
			}
			variables := map[string]bool{}
			for _, of := range known.of(component) {
				for _, name := range of {
					variables[name] = true
				}
			}
			for _, name := range names {
				if strings.HasPrefix(name, "APIARY_") {
					require.True(t, variables[name], "%s: %s does not know %s", filepath.Base(path), component, name)
					seen[component]++
				}
			}
		}
	}
	require.Len(t, seen, len(components), "every component is given some")
}

func TestConfigIsOpenToWhatTheChartDoesNotSet(t *testing.T) {
	known, err := readSettings(configuration)
	require.NoError(t, err)
	require.Contains(t, known.open("gateway"), "max-subs")
	require.NotContains(t, known.open("gateway"), "partitions")
	require.NotContains(t, known.open("ingest"), "relay-key")
	require.Contains(t, known.common(), "log.level")
	require.NotContains(t, known.common(), "max-subs")
	for _, flag := range owned {
		var known []string
		settings, err := readSettings(configuration)
		require.NoError(t, err)
		for _, c := range components {
			for f := range settings.of(c) {
				known = append(known, f)
			}
		}
		require.Contains(t, known, flag, "what the chart owns exists")
	}
}

func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	var stderr bytes.Buffer
	require.Equal(t, exitUsage, run([]string{"-x"}, &stderr))
	require.Equal(t, exitFailure, run([]string{"-chart", dir, "-configuration", configuration}, &stderr))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "values.yaml"), []byte("a: 1\n"), 0o600))
	stderr.Reset()
	require.Equal(t, exitFailure, run([]string{"-chart", dir, "-configuration", configuration}, &stderr))
	require.Contains(t, stderr.String(), "a has no description")
}
