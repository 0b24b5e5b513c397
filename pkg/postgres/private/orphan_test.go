package private

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a killed server leaves must not look alive to the next one, also while its process is a zombie: nobody reaps it
// here before the end, as in a container whose first process does not.
func TestAnOrphansFileGoesWithIt(t *testing.T) {
	pgdata, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	orphan := exec.CommandContext(t.Context(), "sleep", "600")
	orphan.Dir = pgdata
	require.NoError(t, orphan.Start())
	t.Cleanup(func() { require.Error(t, orphan.Wait(), "it was ended") })
	file := filepath.Join(pgdata, "postmaster.pid")
	require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(orphan.Process.Pid)+"\n"), 0o600))

	if !isServer(t.Context(), orphan.Process.Pid, pgdata) { // without /proc only a postgres passes for one
		require.NoError(t, orphan.Process.Kill())
	}
	require.NoError(t, clearOrphan(t.Context(), pgdata, slog.New(slog.DiscardHandler)))
	require.NoFileExists(t, file)
	require.False(t, isServer(t.Context(), orphan.Process.Pid, pgdata))
	require.NoError(t, clearOrphan(t.Context(), pgdata, slog.New(slog.DiscardHandler)), "nothing is left to do")
}
