package private

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// install puts programs that only know their version into root/name, and returns the directory.
func install(t *testing.T, root, name, version string) string {
	t.Helper()
	dir := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, program := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho '" + program + " (PostgreSQL) " + version + "'\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755))
	}
	return dir
}

func TestFindPrefersThePathThenTheNewest(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	first := install(t, root, "usual/15/bin", "15.18 (Debian 15.18-0+deb12u1)")
	second := install(t, root, "usual/17/bin", "17beta1")
	third := install(t, root, "usual/9/bin", "9.6.24")
	install(t, root, "odd/bin", "unknown")
	require.NoError(t, os.Remove(filepath.Join(install(t, root, "partial/bin", "16.1"), "initdb")))
	links := filepath.Join(root, "links")
	require.NoError(t, os.Mkdir(links, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(first, "postgres"), filepath.Join(links, "postgres")))
	patterns := []string{filepath.Join(root, "usual/*/bin"), filepath.Join(root, "odd/bin")}

	got, err := find(t.Context(), nil, patterns)
	require.NoError(t, err)
	require.Equal(t, []Binaries{{Dir: second, Major: 17}, {Dir: first, Major: 15}}, got)

	got, err = find(t.Context(), []string{filepath.Join(root, "partial/bin"), third, links}, patterns)
	require.NoError(t, err)
	require.Equal(t, []Binaries{{Dir: first, Major: 15}, {Dir: second, Major: 17}}, got)

	older, err := choose(got, 15, "dir")
	require.NoError(t, err)
	require.Equal(t, first, older.Dir)
	_, err = choose(got, 16, "dir")
	require.ErrorContains(t, err, "dir holds data of PostgreSQL 16, and this machine has 15, 17")

	_, err = find(t.Context(), []string{third}, []string{filepath.Join(root, "odd/bin")})
	require.ErrorIs(t, err, ErrNoBinaries)
	require.ErrorContains(t, err, "apt-get install postgresql")
}
