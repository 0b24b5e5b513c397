package rpc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// childArg makes the test binary a server process: see startProcess.
const childArg = "serve-for-test"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childArg {
		if err := serveChild(os.Args[2]); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // this is the main function of a child process
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serveChild is the main function of a server process: it prints its address and serves until it is
// told to end.
func serveChild(listen string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) //nolint:forbidigo // as above
	defer stop()
	s := NewServer(ServerConfig{Listen: listen}, ServerOptions{})
	s.Register(registerEcho)
	return s.Run(ctx, func() { _, _ = fmt.Fprintln(os.Stdout, s.Addr()) })
}

// process is a server in a process of its own, which can be killed and frozen.
type process struct {
	addr string
	cmd  *exec.Cmd
	wait func() error
}

func startProcess(t *testing.T, listen string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], childArg, listen)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{cmd: cmd, wait: sync.OnceValue(cmd.Wait)}
	t.Cleanup(func() { p.kill(t) })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "the process says its address")
	p.addr = strings.TrimSpace(line)
	return p
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// kill ends the process as kill -9 does, frozen or not.
func (p *process) kill(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.wait()             // reports the signal
}

// instance is a server inside the test.
type instance struct {
	*Server
	stop func() // as abrupt as kill -9 for its clients
}

func start(t *testing.T, cfg ServerConfig, opts ServerOptions) *instance {
	t.Helper()
	s := NewServer(cfg, opts)
	s.Register(registerEcho)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	ready := make(chan struct{})
	go func() { result <- s.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-result:
		cancel()
		require.NoError(t, err, "server start")
	}
	ended := sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	i := &instance{Server: s, stop: func() { require.NoError(t, ended()) }}
	t.Cleanup(i.stop)
	return i
}

// startPeers runs Peers for the length of the test.
func startPeers(t *testing.T, p *Peers) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, nil) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.Empty(t, p.Live())
	})
}

func newPeers(t *testing.T, deps Deps, targets ...string) *Peers {
	t.Helper()
	p, err := NewPeers(PeersConfig{Targets: targets}, deps)
	require.NoError(t, err)
	return p
}

// within waits until the names of the live peers are want and returns how long it took.
func within(t *testing.T, p *Peers, limit time.Duration, changed <-chan struct{}, want ...string) time.Duration {
	t.Helper()
	begin := time.Now()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		if names := p.Names(); len(names) == len(want) && strings.Join(names, " ") == strings.Join(want, " ") {
			return time.Since(begin)
		}
		select {
		case <-changed:
		case <-timeout.C:
			require.Equal(t, want, p.Names(), "live peers after %s", limit)
		}
	}
}

// The echo service: a unary call that answers what it was asked, and a stream that does so until the
// client ends it.
const (
	echoMethod   = "/apiary.test.Echo/Say"
	streamMethod = "/apiary.test.Echo/Talk"
)

type echoer func(ctx context.Context, s string) (string, error)

var talkDesc = grpc.StreamDesc{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: talk}

func registerEcho(r grpc.ServiceRegistrar) {
	registerEchoer(r, func(_ context.Context, s string) (string, error) { return s, nil })
}

func registerEchoer(r grpc.ServiceRegistrar, say echoer) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: "apiary.test.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(srv any, ctx context.Context, dec func(any) error, in grpc.UnaryServerInterceptor) (any, error) {
			req := &wrapperspb.StringValue{}
			if err := dec(req); err != nil {
				return nil, err
			}
			return in(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: echoMethod}, func(ctx context.Context, req any) (any, error) {
				s, err := say(ctx, req.(*wrapperspb.StringValue).GetValue())
				return wrapperspb.String(s), err
			})
		}}},
		Streams: []grpc.StreamDesc{talkDesc},
	}, nil)
}

func talk(_ any, ss grpc.ServerStream) error {
	for {
		m := &wrapperspb.StringValue{}
		if err := ss.RecvMsg(m); err != nil {
			if err == io.EOF { //nolint:errorlint // RecvMsg returns io.EOF itself
				return nil
			}
			return err
		}
		if err := ss.SendMsg(m); err != nil {
			return err
		}
	}
}

func say(ctx context.Context, conn *grpc.ClientConn, s string) (string, error) {
	resp := &wrapperspb.StringValue{}
	err := conn.Invoke(ctx, echoMethod, wrapperspb.String(s), resp)
	return resp.GetValue(), err
}

// open starts a stream and makes sure that it stands.
func open(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(t.Context(), &talkDesc, streamMethod)
	require.NoError(t, err)
	exchange(t, stream)
	return stream
}

func exchange(t *testing.T, stream grpc.ClientStream) {
	t.Helper()
	require.NoError(t, stream.SendMsg(wrapperspb.String("hello")))
	got := &wrapperspb.StringValue{}
	require.NoError(t, stream.RecvMsg(got))
	require.Equal(t, "hello", got.GetValue())
}

func tcpAddr(t *testing.T, s *Server) string {
	t.Helper()
	require.IsType(t, &net.TCPAddr{}, s.Addr())
	return s.Addr().String()
}
