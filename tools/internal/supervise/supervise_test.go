package supervise_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/tools/internal/supervise"
)

// The test binary plays the children too: its first argument says which.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "live":
			live(os.Args[2])
			return
		case "fail":
			fmt.Fprintln(os.Stderr, os.Args[2])
			os.Exit(3)
		case "supervise":
			superviseLive(os.Args[2])
			return
		}
	}
	goleak.VerifyTestMain(m)
}

// live connects to addr, says its process id, and lives until it is killed or addr goes away.
func live(addr string) {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		os.Exit(1)
	}
	fmt.Fprintln(conn, os.Getpid())
	io.Copy(io.Discard, conn)
}

// superviseLive is a supervisor that waits to be killed.
func superviseLive(addr string) {
	s := supervise.Open(supervise.Config{Log: slog.New(slog.DiscardHandler)})
	spec := supervise.Spec{Name: "grandchild", Path: os.Args[0], Args: []string{"live", addr}, Log: os.DevNull}
	if err := s.Start(context.Background(), spec); err != nil {
		os.Exit(1)
	}
	select {}
}

// peer is where children of the kind live report.
type peer struct {
	net.Listener
	t *testing.T
}

func listen(t *testing.T) peer {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return peer{listener, t}
}

// next waits for a child and returns its process id and the connection that ends when it dies.
func (p peer) next() (int, net.Conn) {
	p.t.Helper()
	conn, err := p.Accept()
	require.NoError(p.t, err)
	p.t.Cleanup(func() { conn.Close() })
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(p.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(p.t, err)
	return pid, conn
}

func gone(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
}

func open(t *testing.T, restart bool) (*supervise.Supervisor, chan []supervise.Status) {
	t.Helper()
	changes := make(chan []supervise.Status, 64)
	var s atomic.Pointer[supervise.Supervisor]
	s.Store(supervise.Open(supervise.Config{Restart: restart, Log: slog.New(slog.DiscardHandler), Changed: func() {
		if s := s.Load(); s != nil {
			changes <- s.Statuses()
		}
	}}))
	t.Cleanup(s.Load().Close)
	return s.Load(), changes
}

func await(t *testing.T, changes chan []supervise.Status, want supervise.State) supervise.Status {
	t.Helper()
	for {
		select {
		case statuses := <-changes:
			if statuses[0].State == want {
				return statuses[0]
			}
		case <-t.Context().Done():
			require.FailNow(t, "the state never came", want)
		}
	}
}

func TestKilledChildComesBack(t *testing.T) {
	p := listen(t)
	s, changes := open(t, true)
	spec := supervise.Spec{Name: "a", Path: os.Args[0], Args: []string{"live", p.Addr().String()}, Log: filepath.Join(t.TempDir(), "log")}
	require.NoError(t, s.Start(t.Context(), spec))
	first, _ := p.next()
	await(t, changes, supervise.Running)
	require.Equal(t, first, s.Statuses()[0].PID)

	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	second, conn := p.next()
	require.NotEqual(t, first, second)
	await(t, changes, supervise.Waiting)
	status := await(t, changes, supervise.Running)
	require.Equal(t, supervise.Status{Name: "a", PID: second, State: supervise.Running, Restarts: 1}, status)

	s.Stop(t.Context(), "a")
	gone(t, conn)
	require.Equal(t, supervise.Stopped, s.Statuses()[0].State)
	require.Zero(t, s.Statuses()[0].PID)
}

func TestKillWaitsUntilTheProcessIsGone(t *testing.T) {
	p := listen(t)
	s, changes := open(t, true)
	require.NoError(t, s.Start(t.Context(), supervise.Spec{Name: "a", Path: os.Args[0], Args: []string{"live", p.Addr().String()}, Log: os.DevNull}))
	first, conn := p.next()
	await(t, changes, supervise.Running)
	require.NoError(t, s.Signal("a", syscall.SIGSTOP))
	require.NoError(t, s.Kill("a"), "also one that is frozen")
	gone(t, conn)
	second, _ := p.next()
	require.NotEqual(t, first, second)

	require.ErrorContains(t, s.Kill("b"), "there is no child b")
	require.ErrorContains(t, s.Signal("b", syscall.SIGCONT), "there is no child b")
}

func TestAChildThatHasLeftMayComeAgain(t *testing.T) {
	p := listen(t)
	s, _ := open(t, true)
	spec := supervise.Spec{Name: "a", Path: os.Args[0], Args: []string{"live", p.Addr().String()}, Log: os.DevNull}
	require.NoError(t, s.Start(t.Context(), spec))
	p.next()
	require.ErrorContains(t, s.Start(t.Context(), spec), "a child of this name runs")
	s.Stop(t.Context(), "a")
	require.NoError(t, s.Kill("a"), "there is nothing to kill")
	require.NoError(t, s.Start(t.Context(), spec))
	second, _ := p.next()
	require.Equal(t, []supervise.Status{{Name: "a", PID: second, State: supervise.Running}}, s.Statuses())
}

func TestNoRestart(t *testing.T) {
	p := listen(t)
	s, changes := open(t, false)
	spec := supervise.Spec{Name: "a", Path: os.Args[0], Args: []string{"live", p.Addr().String()}, Log: os.DevNull}
	require.NoError(t, s.Start(t.Context(), spec))
	pid, _ := p.next()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Zero(t, await(t, changes, supervise.Dead).PID)
}

func TestFailedStartTellsWhatTheChildSaid(t *testing.T) {
	s, _ := open(t, true)
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	spec := supervise.Spec{
		Name: "a", Path: os.Args[0], Args: []string{"fail", "no such thing"},
		Log: filepath.Join(t.TempDir(), "log"), ReadyURL: server.URL,
	}
	err := s.Start(t.Context(), spec)
	require.ErrorContains(t, err, "start a: it ended before it was ready")
	require.ErrorContains(t, err, "no such thing")
}

func TestStartWaitsUntilReady(t *testing.T) {
	p := listen(t)
	s, changes := open(t, true)
	var ready atomic.Bool
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		select {
		case asked <- struct{}{}:
		default:
		}
	}))
	defer server.Close()
	spec := supervise.Spec{Name: "a", Path: os.Args[0], Args: []string{"live", p.Addr().String()}, Log: os.DevNull, ReadyURL: server.URL}
	started := make(chan error, 1)
	go func() { started <- s.Start(t.Context(), spec) }()
	await(t, changes, supervise.Starting)
	<-asked
	require.False(t, s.Statuses()[0].Up(), "whoever kills what is up is not to kill this one")
	ready.Store(true)
	require.NoError(t, <-started)
	require.Equal(t, supervise.Running, s.Statuses()[0].State)
	require.True(t, s.Statuses()[0].Up())
	ready.Store(false)
	select {
	case <-asked:
	default:
	}
	require.NoError(t, s.Kill("a"))
	<-asked
	require.Equal(t, supervise.Starting, s.Statuses()[0].State)
	require.True(t, s.Statuses()[0].Up(), "it comes back by itself")
}

func TestRun(t *testing.T) {
	s, _ := open(t, true)
	_, err := s.Run(t.Context(), supervise.Spec{Name: "once", Path: os.Args[0], Args: []string{"fail", "because"}})
	require.ErrorContains(t, err, "because")
	_, err = s.Run(t.Context(), supervise.Spec{Name: "once", Path: "/bin/sh", Args: []string{"-c", "true"}})
	require.NoError(t, err)
}

func TestChildrenDieWithTheSupervisor(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // only Linux has the death signal that the package promises there
	}
	p := listen(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "supervise", p.Addr().String())
	require.NoError(t, cmd.Start())
	_, conn := p.next()
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	gone(t, conn)
}
