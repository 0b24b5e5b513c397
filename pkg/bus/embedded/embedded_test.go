package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/bus/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg embedded.Config) *embedded.Server {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s, err := embedded.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *embedded.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	require.NoError(t, s.Stop(ctx))
}

func connect(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, opts...)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return js
}

func TestStreamsOutliveTheServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made for it")
	first := start(t, embedded.Config{StoreDir: dir})
	require.Empty(t, first.URL())
	js := connect(t, "", nats.InProcessServer(first), nats.NoReconnect())
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s", make([]byte, 2<<20)) // more than NATS takes by default
	require.NoError(t, err)
	stop(t, first)
	stop(t, first)

	js = connect(t, "", nats.InProcessServer(start(t, embedded.Config{StoreDir: dir})))
	stream, err := js.Stream(t.Context(), "S")
	require.NoError(t, err)
	require.Equal(t, uint64(1), stream.CachedInfo().State.Msgs)
}

// What is acknowledged is on the disk, unless it is not meant to last.
func TestAcknowledgedIsOnTheDisk(t *testing.T) {
	t.Parallel()
	require.True(t, start(t, embedded.Config{StoreDir: t.TempDir()}).SyncsAlways())
	require.False(t, start(t, embedded.Config{StoreDir: t.TempDir(), Throwaway: true}).SyncsAlways())
}

func TestListens(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	require.True(t, strings.HasPrefix(s.URL(), "nats://127.0.0.1:"), s.URL())
	_, err := connect(t, s.URL()).AccountInfo(t.Context())
	require.NoError(t, err)
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	taken := start(t, embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	aborted, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("changed my mind"))
	for name, c := range map[string]struct {
		ctx  context.Context
		cfg  embedded.Config
		want string
	}{
		"no directory": {t.Context(), embedded.Config{}, "no directory"},
		"bad address":  {t.Context(), embedded.Config{StoreDir: t.TempDir(), Listen: "nonsense"}, "listen address"},
		"bad port":     {t.Context(), embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:70000"}, "bad port"},
		"port taken":   {t.Context(), embedded.Config{StoreDir: t.TempDir(), Listen: strings.TrimPrefix(taken.URL(), "nats://")}, "already in use"},
		"no place":     {t.Context(), embedded.Config{StoreDir: "/dev/null/x"}, "nats"},
		"aborted":      {aborted, embedded.Config{StoreDir: t.TempDir()}, "changed my mind"},
	} {
		c.cfg.Log = slog.New(slog.DiscardHandler)
		s, err := embedded.Start(c.ctx, c.cfg)
		require.ErrorContains(t, err, c.want, name)
		require.Nil(t, s, name)
	}
}

// lockedBuilder is a log that several goroutines may write.
type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestLogsToTheGivenLogger(t *testing.T) {
	t.Parallel()
	var out lockedBuilder
	s := start(t, embedded.Config{StoreDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	stop(t, s)
	require.Contains(t, out.String(), `level=DEBUG msg=nats text="Server is ready"`)
}
