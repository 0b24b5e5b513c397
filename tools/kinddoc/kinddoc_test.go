package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page in the repository is what the table says.
func TestKindsAreFresh(t *testing.T) {
	out := filepath.Join(t.TempDir(), "kinds.md")
	var stdout, stderr bytes.Buffer
	require.Zero(t, run([]string{"-o", out}, &stdout, &stderr), stderr.String())
	require.Empty(t, stdout.String())
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	want, err := os.ReadFile("../../services/docs/kinds.md")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run make doc")
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"-h"}, 0, "file to write"},
		{[]string{"-x"}, exitUsage, "not defined"},
		{[]string{"more"}, exitUsage, `unexpected argument "more"`},
		{[]string{"-o", t.TempDir()}, exitFailure, "is a directory"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, c.code, run(c.args, &stdout, &stderr), c.args)
		require.Contains(t, stderr.String(), c.stderr)
	}
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(nil, &stdout, &stderr))
	require.Contains(t, stdout.String(), "| 1059 | GiftWrap |")
}
