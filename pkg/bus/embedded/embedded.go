// Package embedded owns a NATS server inside the process, with JetStream on disk. Only the all-in-one and
// tests import it, and nothing else imports nats-server. By default it listens on no port: connections
// come through InProcessConn.
//
// It must never handle signals, exit the process or log anywhere but to the given logger; the server would
// do all three by itself. A Server may be used by any goroutine.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// defaultMaxPayload is what one message may weigh: a batch of the largest events. NATS advises no more.
	defaultMaxPayload = 8 << 20
	// maxPending is what may wait for one slow connection.
	maxPending       = 64 << 20
	defaultMaxMemory = 512 << 20
	defaultMaxStore  = 10 << 30
	startTimeout     = 30 * time.Second
	readyPoll        = 50 * time.Millisecond
)

// Config says where the server keeps its data and whether others may reach it.
type Config struct {
	// StoreDir holds the streams; required. One server at a time.
	StoreDir string
	// Listen is host:port for connections from outside; empty listens on nothing, port 0 picks one.
	Listen string
	// MaxMemory and MaxStore bound JetStream in bytes; 512 MiB and 10 GiB if 0.
	MaxMemory int64
	MaxStore  int64
	// MaxPayload bounds one message in bytes; 8 MiB if 0.
	MaxPayload int32
	// Throwaway leaves it to the operating system when messages reach the disk, for tests. Otherwise each is there when
	// it is acknowledged, so that a loss of power takes none that a publisher has let go.
	Throwaway bool
	// Log receives the server's warnings and errors, and its notices at Debug.
	Log *slog.Logger
}

// Server is a running server. It is a nats.InProcessConnProvider.
type Server struct {
	nats   *server.Server
	listen bool
	stop   sync.Once
}

// Start starts a server and waits until it takes connections, for which it first recovers its streams.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.StoreDir == "" {
		return nil, errors.New("start embedded nats: no directory for its data")
	}
	if cfg.MaxMemory == 0 {
		cfg.MaxMemory = defaultMaxMemory
	}
	if cfg.MaxStore == 0 {
		cfg.MaxStore = defaultMaxStore
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = defaultMaxPayload
	}
	opts := &server.Options{
		ServerName: "apiary", DontListen: true, JetStream: true, StoreDir: cfg.StoreDir,
		JetStreamMaxMemory: cfg.MaxMemory, JetStreamMaxStore: cfg.MaxStore,
		MaxPayload: cfg.MaxPayload, MaxPending: maxPending, NoSigs: true,
		SyncAlways: !cfg.Throwaway,
	}
	if cfg.Listen != "" {
		host, port, err := splitListen(cfg.Listen)
		if err != nil {
			return nil, err
		}
		opts.DontListen, opts.Host, opts.Port = false, host, port
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("make embedded nats: %w", err)
	}
	failed := make(chan string, 1)
	ns.SetLoggerV2(&logger{log: cfg.Log, ctx: context.WithoutCancel(ctx), failed: failed}, false, false, false)
	s := &Server{nats: ns, listen: cfg.Listen != ""}
	ns.Start() // returns when streams are recovered, or after a fatal error
	if err := s.awaitReady(ctx, failed); err != nil {
		s.shutdown()
		return nil, fmt.Errorf("start embedded nats: %w", err)
	}
	return s, nil
}

// awaitReady returns nil when the server takes connections.
func (s *Server) awaitReady(ctx context.Context, failed <-chan string) error {
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	for {
		select {
		case text := <-failed:
			return errors.New(text)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("not ready after %s", startTimeout)
		default:
		}
		if s.nats.ReadyForConnections(readyPoll) {
			return nil
		}
	}
}

func splitListen(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("parse nats listen address: %w", err)
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("parse nats listen address %q: bad port", listen)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// InProcessConn makes a connection without a socket.
func (s *Server) InProcessConn() (net.Conn, error) {
	return s.nats.InProcessConn()
}

// URL is where others connect, empty when nothing listens.
func (s *Server) URL() string {
	if !s.listen {
		return ""
	}
	return s.nats.ClientURL()
}

// Stop shuts the server down, writes out its streams and waits for it, but no longer than ctx.
func (s *Server) Stop(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.shutdown()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop embedded nats: %w", context.Cause(ctx))
	}
}

func (s *Server) shutdown() {
	s.stop.Do(s.nats.Shutdown)
	s.nats.WaitForShutdown()
}

// logger is how the server logs.
type logger struct {
	log *slog.Logger
	ctx context.Context // the server's log lines have no context of their own
	// failed takes the first fatal error.
	failed chan<- string
}

func (l *logger) write(level slog.Level, format string, args []any) {
	if l.log.Enabled(l.ctx, level) {
		l.log.LogAttrs(l.ctx, level, "nats", slog.String("text", fmt.Sprintf(format, args...)))
	}
}

// Noticef implements server.Logger.
func (l *logger) Noticef(format string, args ...any) { l.write(slog.LevelDebug, format, args) }

// Warnf implements server.Logger.
func (l *logger) Warnf(format string, args ...any) { l.write(slog.LevelWarn, format, args) }

// Errorf implements server.Logger.
func (l *logger) Errorf(format string, args ...any) { l.write(slog.LevelError, format, args) }

// Fatalf implements server.Logger. The server gives up, the process does not.
func (l *logger) Fatalf(format string, args ...any) {
	l.write(slog.LevelError, format, args)
	select {
	case l.failed <- fmt.Sprintf(format, args...):
	default:
	}
}

// Debugf implements server.Logger; the server is told not to use it.
func (l *logger) Debugf(format string, args ...any) { l.write(slog.LevelDebug, format, args) }

// Tracef implements server.Logger; the server is told not to use it.
func (l *logger) Tracef(string, ...any) {}
