package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/apiary-relay/apiary/pkg/fault"
)

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func splitPort(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return host, port
}

func dialFor(t *testing.T, target string, deps Deps) *grpc.ClientConn {
	t.Helper()
	conn, err := Dial(target, deps)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

func TestNetworkAndMemoryAtOnce(t *testing.T) {
	mem := NewMemory()
	deps := Deps{Memory: mem}
	s := start(t, ServerConfig{Listen: "127.0.0.1:0"}, ServerOptions{Deps: deps, MemoryName: "echo"})
	for _, target := range []string{"mem:///echo", tcpAddr(t, s.Server), "dns:///" + tcpAddr(t, s.Server)} {
		got, err := say(t.Context(), dialFor(t, target, deps), target)
		require.NoError(t, err)
		require.Equal(t, target, got)
	}
}

func TestUnixSocket(t *testing.T) {
	target := "unix://" + filepath.Join(t.TempDir(), "s")
	for range 2 { // the second one finds a socket file
		s := start(t, ServerConfig{Listen: target}, ServerOptions{})
		_, err := say(t.Context(), dialFor(t, target, Deps{}), "x")
		require.NoError(t, err)
		s.stop()
	}
}

func TestServerNeedsAListener(t *testing.T) {
	run := func(cfg ServerConfig, opts ServerOptions) error {
		return NewServer(cfg, opts).Run(t.Context(), func() { t.Error("ready") })
	}
	require.ErrorContains(t, run(ServerConfig{}, ServerOptions{}), "neither")
	require.ErrorContains(t, run(ServerConfig{Listen: "nowhere"}, ServerOptions{}), "listen on nowhere: ")
	require.ErrorContains(t, run(ServerConfig{}, ServerOptions{MemoryName: "x"}), "no in-process transport")

	mem := NewMemory()
	start(t, ServerConfig{}, ServerOptions{Deps: Deps{Memory: mem}, MemoryName: "x"})
	require.ErrorIs(t, run(ServerConfig{Listen: "127.0.0.1:0"}, ServerOptions{Deps: Deps{Memory: mem}, MemoryName: "x"}), ErrNameTaken)
}

func TestMemoryNameIsFreeAfterClose(t *testing.T) {
	mem := NewMemory()
	_, err := mem.Dial(t.Context(), "x")
	require.ErrorIs(t, err, ErrNoListener)
	for range 2 {
		l, err := mem.Listen("x")
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	_, err = say(t.Context(), dialFor(t, "mem:///x", Deps{Memory: mem}), "x")
	require.Equal(t, codes.Unavailable, status.Code(err))
	_, err = say(t.Context(), dialFor(t, "mem:///x", Deps{}), "x")
	require.Equal(t, codes.Unavailable, status.Code(err))
}

func TestErrorsKeepTheirReason(t *testing.T) {
	mem := NewMemory()
	deps := Deps{Memory: mem}
	s := NewServer(ServerConfig{}, ServerOptions{Deps: deps, MemoryName: "echo"})
	s.Register(func(r grpc.ServiceRegistrar) {
		registerEchoer(r, func(ctx context.Context, s string) (string, error) {
			switch s {
			case "deadline":
				_, ok := ctx.Deadline()
				return "", fault.New(map[bool]fault.Reason{true: fault.Timeout, false: fault.Invalid}[ok], "")
			case "panic":
				panic("boom")
			}
			return "", fault.Wrap(fault.Restricted, "not a channel member", errors.New("row 17"))
		})
	})
	ctx, cancel := context.WithCancel(t.Context())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- s.Run(ctx, func() { close(ready) }) }()
	<-ready
	conn := dialFor(t, "mem:///echo", deps)
	_, err := say(t.Context(), conn, "x")
	require.Equal(t, "restricted: not a channel member", fault.Frame(err))
	require.NotContains(t, err.Error(), "row 17")
	_, err = say(t.Context(), conn, "panic")
	require.Regexp(t, `^error: internal \(ref [0-9a-f]{8}\)$`, fault.Frame(err))
	_, err = say(t.Context(), conn, "deadline")
	require.Equal(t, fault.Timeout, fault.ReasonOf(err), "every call has a deadline")
	cancel()
	require.NoError(t, <-done)
}

func TestMessageLimit(t *testing.T) {
	mem := NewMemory()
	deps := Deps{Memory: mem}
	start(t, ServerConfig{}, ServerOptions{Deps: deps, MemoryName: "echo"})
	conn := dialFor(t, "mem:///echo", deps)
	fits := strings.Repeat("x", MaxMessageBytes-16)
	got, err := say(t.Context(), conn, fits)
	require.NoError(t, err)
	require.Len(t, got, len(fits))
	_, err = say(t.Context(), conn, strings.Repeat("x", MaxMessageBytes))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

func TestDrainWaitsForOpenCalls(t *testing.T) {
	s := start(t, ServerConfig{Listen: "127.0.0.1:0"}, ServerOptions{})
	conn := dialFor(t, tcpAddr(t, s.Server), Deps{})
	stream := open(t, conn)
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()

	require.Eventually(t, func() bool {
		_, err := say(t.Context(), conn, "x")
		return status.Code(err) == codes.Unavailable
	}, 5*time.Second, time.Millisecond, "new calls are refused")
	exchange(t, stream)
	require.Empty(t, drained)
	require.NoError(t, stream.CloseSend())
	require.ErrorIs(t, stream.RecvMsg(&wrapperspb.StringValue{}), io.EOF)
	require.NoError(t, <-drained)
	s.stop()
}

func TestDrainIsBounded(t *testing.T) {
	s := start(t, ServerConfig{Listen: "127.0.0.1:0"}, ServerOptions{})
	stream := open(t, dialFor(t, tcpAddr(t, s.Server), Deps{}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Drain(ctx), context.DeadlineExceeded)
	require.Equal(t, codes.Unavailable, status.Code(stream.RecvMsg(&wrapperspb.StringValue{})))
	s.stop()
}

func TestStopRightAfterReady(t *testing.T) {
	for range 200 {
		mem := NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		s := NewServer(ServerConfig{}, ServerOptions{Deps: Deps{Memory: mem}, MemoryName: "x"})
		require.NoError(t, s.Run(ctx, cancel))
		l, err := mem.Listen("x")
		require.NoError(t, err, "the name is free again")
		require.NoError(t, l.Close())
	}
}

func TestDialRefusesBadTargets(t *testing.T) {
	for _, target := range []string{"", "a", ":1", "mem:///", "unix://", "dns:///a", "http://a:1/x:"} {
		_, err := Dial(target, Deps{})
		require.ErrorIs(t, err, ErrTarget, target)
	}
}
