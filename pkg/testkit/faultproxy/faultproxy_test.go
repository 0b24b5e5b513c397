package faultproxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/pkg/testkit/faultproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every connection with what it sends, until the test ends.
func echo(t *testing.T, listener net.Listener) {
	t.Helper()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
}

func start(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	echo(t, listener)
	return faultproxy.New(t, listener.Addr().String())
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func requireEcho(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := conn.Write([]byte(text))
	require.NoError(t, err)
	got := make([]byte, len(text))
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = io.ReadFull(conn, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// requireRefused connects and finds the connection reset, during the dial or soon after.
func requireRefused(t *testing.T, p *faultproxy.Proxy) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", p.Addr())
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	require.Error(t, err)
}

func TestForwardsAndPassesTheEndOn(t *testing.T) {
	t.Parallel()
	conn := dial(t, start(t))
	requireEcho(t, conn, "hello")
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	rest, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Empty(t, rest)
}

func TestUnixTarget(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "proxy") //nolint:usetesting // the path of a socket has to be short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	echo(t, listener)
	requireEcho(t, dial(t, faultproxy.New(t, path)), "hello")
}

func TestDelayKeepsOrder(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond
	p := start(t)
	conn := dial(t, p)
	requireEcho(t, conn, "connected")
	p.Delay(delay)
	began := time.Now()
	requireEcho(t, conn, "there and back")
	require.GreaterOrEqual(t, time.Since(began), 2*delay)
	p.Heal()
	requireEcho(t, conn, "fast again")
}

func TestCutRefusesUntilHealed(t *testing.T) {
	t.Parallel()
	p := start(t)
	conn := dial(t, p)
	requireEcho(t, conn, "hello")
	p.Cut()
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	requireRefused(t, p)
	p.Heal()
	requireEcho(t, dial(t, p), "back")
}

func TestBlackholeHoldsAndLosesNothing(t *testing.T) {
	t.Parallel()
	p := start(t)
	old := dial(t, p)
	requireEcho(t, old, "hello")
	p.Blackhole()
	fresh := dial(t, p)
	for _, conn := range []net.Conn{old, fresh} {
		_, err := conn.Write([]byte("held"))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err = conn.Read(make([]byte, 1))
		var timeout net.Error
		require.True(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
	}
	p.Heal()
	for _, conn := range []net.Conn{old, fresh} {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		got := make([]byte, len("held"))
		_, err := io.ReadFull(conn, got)
		require.NoError(t, err)
		require.Equal(t, "held", string(got))
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	requireRefused(t, faultproxy.New(t, filepath.Join(t.TempDir(), "nothing")))
}
