package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/tools/internal/programs"
)

// The page in the repository is what the programs say, and what is configured here makes no difference.
func TestReferenceIsFresh(t *testing.T) {
	bin := programs.Bin(t)
	t.Setenv("APIARY_LISTEN", "elsewhere:1")
	t.Setenv("APIARY_PARTITIONS", "many")
	t.Setenv("DATABASE_URL", "postgres://me:hunter2@db/apiary")
	out := filepath.Join(t.TempDir(), "configuration.md")
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"--bin", bin, "-o", out}, &stdout, &stderr), stderr.String())
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	want, err := os.ReadFile("../../services/docs/configuration.md")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run make doc")
	require.Empty(t, stdout.String())
}

func TestWhatIsCommonIsPrintedOnce(t *testing.T) {
	head := []string{"| flag |", "| --- |"}
	tables := map[string]table{
		"a": {head, []string{"| x |", "| a |", "| port 1 |"}},
		"b": {head, []string{"| x |", "| port 2 |"}},
	}
	common := extract(tables)
	require.Equal(t, "| flag |\n| --- |\n| x |", common.String())
	require.Equal(t, []string{"| a |", "| port 1 |"}, tables["a"].rows)
	require.Equal(t, []string{"| port 2 |"}, tables["b"].rows)
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"stray"}, exitUsage, "stray"},
		{[]string{"--bins", "x"}, exitUsage, "bins"},
		{[]string{"--bin", t.TempDir()}, exitFailure, "make build"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, c.code, run(t.Context(), c.args, &stdout, &stderr))
		require.Contains(t, stderr.String(), c.text)
		require.Empty(t, stdout.String())
	}
}
