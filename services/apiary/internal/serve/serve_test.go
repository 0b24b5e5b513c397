package serve

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/datadir"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestControlSocketIsAPathThatASocketCanHave(t *testing.T) {
	short, err := ControlSocket("/var/lib/apiary", Ingest)
	require.NoError(t, err)
	require.Equal(t, "/var/lib/apiary/control/ingest.sock", short)

	deep := "/" + strings.Repeat("a", 120)
	long, err := ControlSocket(deep, Ingest)
	require.NoError(t, err)
	require.Less(t, len(long), 100)
	again, err := ControlSocket(deep, Ingest)
	require.NoError(t, err)
	require.Equal(t, long, again, "the operator's commands find it")
	search, err := ControlSocket(deep, Search)
	require.NoError(t, err)
	require.NotEqual(t, long, search)
	require.Equal(t, filepath.Dir(long), filepath.Dir(search))
	other, err := ControlSocket(deep+"b", Ingest)
	require.NoError(t, err)
	require.NotEqual(t, long, other)
}

func TestControlDirIsOursAlone(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control", "ingest.sock")
	made, err := makeControlDir(socket)
	require.NoError(t, err)
	require.True(t, made)
	info, err := os.Stat(filepath.Dir(socket))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	made, err = makeControlDir(socket)
	require.NoError(t, err, "it may be there already")
	require.False(t, made)

	require.NoError(t, os.Chmod(filepath.Dir(socket), 0o755))
	_, err = makeControlDir(socket)
	require.ErrorContains(t, err, "(mode 0755): chmod 700 it")

	link := filepath.Join(t.TempDir(), "control")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	_, err = makeControlDir(filepath.Join(link, "ingest.sock"))
	require.ErrorContains(t, err, "is no directory")
}

func TestOnlyAControlDirElsewhereIsRemoved(t *testing.T) {
	data := t.TempDir()
	inside := filepath.Join(data, "control", "ingest.sock")
	_, err := makeControlDir(inside)
	require.NoError(t, err)
	require.NoError(t, removeControlDir(data, inside))
	require.DirExists(t, filepath.Dir(inside))

	elsewhere := filepath.Join(t.TempDir(), "apiary-control-0", "ingest.sock")
	_, err = makeControlDir(elsewhere)
	require.NoError(t, err)
	require.NoError(t, removeControlDir(data, elsewhere))
	require.NoDirExists(t, filepath.Dir(elsewhere))
	require.NoError(t, removeControlDir(data, elsewhere), "it may be gone")
}

// What a start has made before it was refused is nobody's, and goes; what was there before stays.
func TestARefusedStartLeavesWhatItFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "data")
	refuse := func() {
		t.Helper()
		dir, err := datadir.Open(path)
		require.NoError(t, err)
		p, err := newProcess(config.MustDefault(DefaultConfig()), dir, nil, "apiary", nil)
		require.NoError(t, err)
		require.FileExists(t, dir.Path("relay.key"))
		require.DirExists(t, filepath.Dir(p.control))
		require.NoError(t, leave(dir, p))
	}
	refuse()
	require.NoDirExists(t, filepath.Dir(path))

	dir, err := datadir.Open(path)
	require.NoError(t, err)
	kept, err := loadIdentity(dir, "relay")
	require.NoError(t, err)
	require.NoError(t, dir.Close())
	refuse()
	require.FileExists(t, kept.path)
	require.NoFileExists(t, filepath.Join(path, "operator.key"))

	// What one makes that then fails goes too.
	require.NoError(t, os.WriteFile(kept.path, []byte("not a key"), 0o600))
	dir, err = datadir.Open(path)
	require.NoError(t, err)
	p, err := newProcess(config.MustDefault(DefaultConfig()), dir, nil, "apiary", nil)
	require.ErrorContains(t, err, "relay.key")
	require.NoError(t, leave(dir, p))
	require.NoFileExists(t, filepath.Join(path, "operator.key"))

	require.NoError(t, os.Remove(kept.path))
	dir, err = datadir.Open(path)
	require.NoError(t, err)
	p, err = newProcess(config.MustDefault(DefaultConfig()), dir, nil, "apiary", nil)
	require.NoError(t, err)
	p.begun = true
	require.NoError(t, leave(dir, p))
	require.FileExists(t, filepath.Join(path, "operator.key"), "it may have signed something")
}

// The all-in-one computes no more queries of newcomers at a time than it has processors for, unless it is told to, or they are computed
// elsewhere.
func TestNewcomersHaveTheProcessors(t *testing.T) {
	for _, tt := range []struct {
		database  string
		set, want int64
	}{
		{"", 0, int64(runtime.GOMAXPROCS(0))},
		{"", 5, 5},
		{"postgres://db.example/apiary", 0, 0},
	} {
		dir, err := datadir.Open(t.TempDir())
		require.NoError(t, err)
		cfg := config.MustDefault(DefaultConfig())
		cfg.Services.Gateway.MaxNewQueries = tt.set
		if tt.database != "" {
			cfg.Postgres.URL = config.NewSecret(tt.database)
		}
		p, err := newProcess(cfg, dir, nil, "apiary", nil)
		require.NoError(t, err)
		require.Equal(t, tt.want, p.cfg.Services.Gateway.MaxNewQueries)
		require.NoError(t, leave(dir, p))
	}
}

func TestIdentityIsMadeOnce(t *testing.T) {
	dir, err := datadir.Open(t.TempDir())
	require.NoError(t, err)
	defer dir.Close()
	made, err := loadIdentity(dir, "relay")
	require.NoError(t, err)
	require.True(t, made.created)
	read, err := loadIdentity(dir, "relay")
	require.NoError(t, err)
	require.False(t, read.created)
	require.Equal(t, made.key.PubKey(), read.key.PubKey())

	require.NoError(t, os.WriteFile(dir.Path("operator.key"), []byte("not a key"), 0o600))
	_, err = loadIdentity(dir, "operator")
	require.ErrorContains(t, err, "operator.key")
}

func TestAdminAddress(t *testing.T) {
	address, err := adminAddress(t.Context(), "10.0.0.1:1")
	require.NoError(t, err)
	require.Equal(t, "10.0.0.1:1", address, "what was asked for is taken")

	// With the usual address taken, another is found.
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", usualAdmin)
	if err == nil { // otherwise somebody else has taken it already
		defer listener.Close()
	}
	address, err = adminAddress(t.Context(), autoAdmin)
	require.NoError(t, err)
	require.NotEqual(t, usualAdmin, address)

	_, err = AdminAddress(t.TempDir())
	require.ErrorContains(t, err, "no apiary serve runs on")
}

func TestAdminAddressIsFoundWhileItIsThere(t *testing.T) {
	dir, err := datadir.Open(t.TempDir())
	require.NoError(t, err)
	defer dir.Close()
	remove, err := writeAdminAddress(dir, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090})
	require.NoError(t, err)
	address, err := AdminAddress(dir.Path())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:9090", address)

	_, err = writeAdminAddress(dir, nil)
	require.NoError(t, err)
	_, err = AdminAddress(dir.Path())
	require.ErrorContains(t, err, "has no admin listener")
	require.NoError(t, remove())
	_, err = AdminAddress(dir.Path())
	require.ErrorContains(t, err, "no apiary serve runs on")
}

func TestText(t *testing.T) {
	dir, err := datadir.Open(t.TempDir())
	require.NoError(t, err)
	defer dir.Close()
	relay, err := loadIdentity(dir, "relay")
	require.NoError(t, err)
	operator, err := loadIdentity(dir, "operator")
	require.NoError(t, err)
	p := &process{cfg: config.MustDefault(DefaultConfig()), dir: dir, program: "bin/apiary", relay: relay, operator: operator}

	admin := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090}
	first := p.text(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 3000}, admin, true)
	require.Contains(t, first, "data in "+dir.Path()+", admin on http://127.0.0.1:9090\n")
	require.Contains(t, first, "ready   ws://localhost:3000\n")
	require.Contains(t, first, "    bin/apiary client listen\n")
	require.Contains(t, first, relay.key.PubKey().String())
	require.NotContains(t, first, relay.key.Hex(), "a secret")
	require.NotContains(t, first, operator.key.Hex(), "a secret")

	p.relay.created, p.operator.created = false, false
	p.cfg.Data = "my data"
	later := p.text(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4000}, nil, false)
	require.NotContains(t, later, "admin on")
	require.Contains(t, later, `bin/apiary client publish --relay ws://localhost:4000 "hello, hive"`)
	require.NotContains(t, later, "made the")
}

func TestQuote(t *testing.T) {
	require.Equal(t, "/var/lib/apiary", quote("/var/lib/apiary"))
	require.Equal(t, `'/it'\''s here'`, quote("/it's here"))
}
