package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/telemetry"
)

// Target schemes besides plain host:port.
const (
	schemeMem  = "mem:///"
	schemeUnix = "unix://"
	schemeDNS  = "dns:///"
)

// ErrTarget is wrapped by errors about a malformed target.
var ErrTarget = errors.New("malformed target")

// Dial returns a connection to one target: host:port, dns:///name:port (all addresses, round robin),
// unix:///path or mem:///name. It does not connect before the first call, never blocks, and connects
// again by itself. The caller closes it. Use Peers where it matters which replica answers.
func Dial(target string, deps Deps) (*grpc.ClientConn, error) {
	return dial(target, deps.complete(), (&link{memory: deps.Memory}).dial)
}

func dial(target string, deps Deps, dialer func(context.Context, string) (net.Conn, error)) (*grpc.ClientConn, error) {
	if err := checkTarget(target); err != nil {
		return nil, err
	}
	opts := []grpc.DialOption{
		// The cluster's network is trusted or encrypted below (NetworkPolicy, mesh).
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialer),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes)),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithWriteBufferSize(ioBuffer),
		grpc.WithReadBufferSize(ioBuffer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: clientKeepalive, Timeout: clientKeepaliveTimeout, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: connectTimeout,
			Backoff:           backoff.Config{BaseDelay: backoffBase, Multiplier: 1.6, Jitter: 0.2, MaxDelay: backoffMax},
		}),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(
			otelgrpc.WithMeterProvider(deps.MeterProvider),
			otelgrpc.WithTracerProvider(deps.TracerProvider),
			otelgrpc.WithPropagators(telemetry.Propagator()),
			otelgrpc.WithFilter(notHealth),
		)),
		grpc.WithChainUnaryInterceptor(withDeadline),
	}
	resolved := target
	if strings.HasPrefix(target, schemeDNS) {
		opts = append(opts, grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	} else {
		resolved = "passthrough:///" + target
		if strings.HasPrefix(target, schemeMem) || strings.HasPrefix(target, schemeUnix) {
			opts = append(opts, grpc.WithAuthority("localhost")) // a path is no authority
		}
	}
	conn, err := grpc.NewClient(resolved, opts...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	return conn, nil
}

// checkTarget refuses what could never be dialled.
func checkTarget(target string) error {
	if name, ok := strings.CutPrefix(target, schemeMem); ok {
		return wellFormed(name != "", target)
	}
	if path, ok := strings.CutPrefix(target, schemeUnix); ok {
		return wellFormed(strings.HasPrefix(path, "/"), target)
	}
	address := strings.TrimPrefix(target, schemeDNS)
	return wellFormed(config.CheckHostPort(address) == nil && !strings.HasPrefix(address, ":"), target)
}

func wellFormed(ok bool, target string) error {
	if !ok {
		return fmt.Errorf("%w %q: want host:port, dns:///name:port, unix:///path or mem:///name", ErrTarget, target)
	}
	return nil
}

// withDeadline gives a deadline to unary calls that have none.
func withDeadline(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultCallTimeout)
		defer cancel()
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// link dials for one client connection and remembers the newest transport, so that it can be cut from
// outside: grpc has no way to give up a transport that is established but dead.
type link struct {
	memory *Memory

	mu   sync.Mutex
	conn net.Conn // guarded by mu; the newest one dialled
}

func (l *link) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := l.open(ctx, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	return conn, nil
}

func (l *link) open(ctx context.Context, addr string) (net.Conn, error) {
	if name, ok := strings.CutPrefix(addr, schemeMem); ok {
		if l.memory == nil {
			return nil, fmt.Errorf("dial %s: no in-process transport given", addr)
		}
		return l.memory.Dial(ctx, name)
	}
	var d net.Dialer
	if path, ok := strings.CutPrefix(addr, schemeUnix); ok {
		return d.DialContext(ctx, "unix", path)
	}
	return d.DialContext(ctx, "tcp", addr)
}

// cut closes the transport. Every call and stream on it fails with Unavailable, and the client
// connection dials again.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close() // it is dead or about to be
		l.conn = nil
	}
}
