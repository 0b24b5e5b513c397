package balance_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/tools/internal/balance"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// backend says its name in a line to whoever connects, then echoes until the client half-closes.
func backend(t *testing.T, name string) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.WriteString(conn, name+"\n")
				io.Copy(conn, conn)
			}()
		}
	}()
	return listener
}

// start runs a balancer until the test ends and returns it with its stop function.
func start(t *testing.T, backends ...string) (*balance.Balancer, func()) {
	t.Helper()
	b, err := balance.New(balance.Config{Listen: "127.0.0.1:0", Backends: backends, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- b.Run(ctx, func() { close(ready) }) }()
	<-ready
	stop := func() {
		cancel()
		err, open := <-done
		if open {
			require.NoError(t, err)
			close(done)
		}
	}
	t.Cleanup(stop)
	return b, stop
}

// name connects and returns the greeting, with the connection still open.
func name(t *testing.T, b *balance.Balancer) (string, *net.TCPConn, *bufio.Reader) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	require.NoError(t, err)
	return line[:len(line)-1], conn.(*net.TCPConn), reader
}

func TestRoundRobinSkipsTheDead(t *testing.T) {
	one, two := backend(t, "one"), backend(t, "two")
	b, _ := start(t, one.Addr().String(), two.Addr().String())

	seen := map[string]int{}
	for range 4 {
		who, _, _ := name(t, b)
		seen[who]++
	}
	require.Equal(t, map[string]int{"one": 2, "two": 2}, seen)

	one.Close()
	for range 4 {
		who, _, _ := name(t, b)
		require.Equal(t, "two", who)
	}
}

func TestHalfCloseGetsTheRestOfTheAnswer(t *testing.T) {
	b, _ := start(t, backend(t, "one").Addr().String())
	_, conn, reader := name(t, b)
	_, err := io.WriteString(conn, "ping")
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	rest, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.Equal(t, "ping", string(rest))
}

func TestDrainKeepsConnectionsAndStopClosesThem(t *testing.T) {
	b, stop := start(t, backend(t, "one").Addr().String())
	_, conn, reader := name(t, b)

	require.NoError(t, b.Drain(t.Context()))
	_, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.Addr().String())
	require.Error(t, err)
	_, err = io.WriteString(conn, "x")
	require.NoError(t, err)
	back, err := reader.ReadByte()
	require.NoError(t, err)
	require.Equal(t, byte('x'), back)

	stop()
	_, err = reader.ReadByte()
	require.Error(t, err)
}

func TestNoBackendClosesTheClient(t *testing.T) {
	gone := backend(t, "gone")
	gone.Close()
	b, _ := start(t, gone.Addr().String())
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
}

func TestATakenPortIsSaid(t *testing.T) {
	taken := backend(t, "other").Addr().String()
	b, err := balance.New(balance.Config{Listen: taken, Backends: []string{taken}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.EqualError(t, b.Run(t.Context(), func() {}), "another program listens on "+taken+": stop it, or choose another port (make cluster PORT=3001, bin/cluster --port 3001)")
}
