// Package admin is the second HTTP listener of every process: for probes, metrics and operators, never
// for clients.
//
// It owns the process's Health and the paths /healthz, /readyz, /metrics, /statusz and /debug/pprof.
// No handler asks a dependency anything: a probe answers from memory. The listener must not be
// reachable by clients, since it shows configuration (secrets redacted) and profiles.
//
// Health may be used from any goroutine. The Server's Run goroutine owns the listener.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/buildinfo"
)

// Config of the admin listener.
type Config struct {
	Listen string `help:"Admin listen address (health, metrics, profiles), host:port. Keep clients away from it. Empty switches it off." default:"127.0.0.1:9090" hostport:"empty"`
}

const (
	readTimeout  = 5 * time.Second
	writeTimeout = 2 * time.Minute // a CPU profile takes 30 s by default
	maxHeader    = 16 << 10
	closeTimeout = 2 * time.Second
)

// Deps of a Server.
type Deps struct {
	Log    *slog.Logger
	Health *Health
	// Metrics serves /metrics; nil answers 404.
	Metrics http.Handler
	// Status makes the "process" part of /statusz, such as the settings that differ from their
	// defaults, secrets redacted; it may be nil. The value is encoded as JSON.
	Status func() any
}

// Server is the admin listener, a lifecycle.Service.
type Server struct {
	cfg   Config
	deps  Deps
	begin time.Time

	mu   sync.Mutex
	addr net.Addr // guarded by mu
}

// NewServer allocates a server; nothing is opened before Run.
func NewServer(cfg Config, deps Deps) *Server {
	return &Server{cfg: cfg, deps: deps, begin: time.Now()}
}

// Addr returns the listener's address, nil before Run opened it.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Run listens and serves until ctx is done.
func (s *Server) Run(ctx context.Context, ready func()) error {
	if s.cfg.Listen == "" {
		ready()
		<-ctx.Done()
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for administration on %s: %w", s.cfg.Listen, err)
	}
	s.mu.Lock()
	s.addr = l.Addr()
	s.mu.Unlock()
	s.deps.Log.LogAttrs(ctx, slog.LevelInfo, "admin listening", slog.String("addr", l.Addr().String()))

	srv := &http.Server{
		Handler: s.Handler(), ReadTimeout: readTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.deps.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	ready()
	select {
	case err := <-served:
		return fmt.Errorf("serve administration: %w", err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout) // ctx is done
	defer cancel()
	err = srv.Shutdown(closing)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close() // a profile in progress does not hold the process up
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// Handler returns the admin mux, for Run and for tests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok") // that this runs is the whole check
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		code := http.StatusServiceUnavailable
		if s.deps.Health.Ready() {
			code = http.StatusOK
		}
		answer(w, code, s.deps.Health.State())
	})
	mux.HandleFunc("GET /statusz", s.statusz)
	if s.deps.Metrics != nil {
		mux.Handle("GET /metrics", s.deps.Metrics)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // the prober is gone if this fails
}

// status is the document of /statusz.
type status struct {
	State        string       `json:"state"`
	Version      string       `json:"version"`
	Uptime       string       `json:"uptime"`
	Goroutines   int          `json:"goroutines"`
	Dependencies []Dependency `json:"dependencies"`
	Process      any          `json:"process,omitempty"`
}

func (s *Server) statusz(w http.ResponseWriter, r *http.Request) {
	doc := status{
		State: s.deps.Health.State(), Version: buildinfo.Read().String(),
		Uptime: time.Since(s.begin).Round(time.Second).String(), Goroutines: runtime.NumGoroutine(),
		Dependencies: s.deps.Health.Dependencies(),
	}
	if s.deps.Status != nil {
		doc.Process = s.deps.Status()
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		s.deps.Log.LogAttrs(r.Context(), slog.LevelError, "status document cannot be encoded", slog.Any("error", err))
		answer(w, http.StatusInternalServerError, "internal")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // the reader is gone if this fails
}
