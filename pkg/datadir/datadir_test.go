package datadir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/datadir"
)

func TestOpenHoldsTheDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	dir, err := datadir.Open(path)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(path, "x", "y"), dir.Path("x", "y"))

	_, err = datadir.Open(path)
	var held *datadir.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, os.Getpid(), held.PID)
	require.ErrorContains(t, err, path)

	require.NoError(t, dir.Close())
	again, err := datadir.Open(path)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// Who finds out that there is nothing to be done leaves nothing behind that was not there.
func TestDiscardRemovesWhatWasMade(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "a", "b")
	dir, err := datadir.Open(path)
	require.NoError(t, err)
	require.NoError(t, dir.Discard())
	require.NoDirExists(t, filepath.Join(root, "a"))
	require.DirExists(t, root)

	dir, err = datadir.Open(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "a", "notes"), nil, 0o600))
	require.NoError(t, dir.Discard())
	require.NoDirExists(t, path)
	require.FileExists(t, filepath.Join(root, "a", "notes"), "somebody else's")

	dir, err = datadir.Open(path)
	require.NoError(t, err)
	require.NoError(t, dir.Close())
	dir, err = datadir.Open(path)
	require.NoError(t, err)
	require.NoError(t, dir.Discard())
	require.FileExists(t, filepath.Join(path, "lock"), "it was there before")
}

func TestARefusedOpenLeavesNothing(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	_, err := datadir.Open(filepath.Join(root, "file", "data"))
	require.Error(t, err)

	long := filepath.Join(root, "made", strings.Repeat("x", 300))
	_, err = datadir.Open(long)
	require.Error(t, err)
	require.NoDirExists(t, filepath.Join(root, "made"))
}

// A lock on a file that was removed meanwhile keeps nobody away, and must not be taken for one that does.
func TestThereIsOneHolderWhileOthersDiscard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	var holders, held atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				dir, err := datadir.Open(path)
				if err != nil {
					continue // it is held, or made and removed all the time
				}
				if holders.Add(1) > 1 {
					t.Error("two hold the directory at once")
				}
				held.Add(1)
				holders.Add(-1)
				if err := dir.Discard(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, held.Load())
}

func TestDefaultForOrdinaryUsers(t *testing.T) {
	path, err := datadir.Default("apiary", "/data")
	require.NoError(t, err)
	if os.Geteuid() == 0 {
		require.Equal(t, "/var/lib/apiary", path)
	} else {
		require.Equal(t, "/data/apiary", path)
	}
}

func TestLoadOrCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "one.key")
	create := func() ([]byte, error) { return []byte("secret"), nil }

	content, created, err := datadir.LoadOrCreate(path, create)
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, "secret", string(content))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())

	content, created, err = datadir.LoadOrCreate(path, func() ([]byte, error) { return nil, errors.New("not called") })
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, "secret", string(content))

	require.NoError(t, os.Chmod(path, 0o644))
	_, _, err = datadir.LoadOrCreate(path, create)
	require.ErrorContains(t, err, "chmod 600")
}

func TestLoadOrCreateAtOnceGivesOneContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.key")
	var wg sync.WaitGroup
	contents := make([]string, 8)
	for i := range contents {
		wg.Go(func() {
			content, _, err := datadir.LoadOrCreate(path, func() ([]byte, error) { return []byte{'a' + byte(i)}, nil })
			if err == nil {
				contents[i] = string(content)
			}
		})
	}
	wg.Wait()
	for _, content := range contents {
		require.Equal(t, contents[0], content)
		require.NotEmpty(t, content)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	require.NoError(t, datadir.Replace(path, []byte("1")))
	require.NoError(t, datadir.Replace(path, []byte("2")))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "2", string(content))
	require.ErrorIs(t, datadir.WriteNew(path, []byte("3")), fs.ErrExist)
}
