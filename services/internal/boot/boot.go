// Package boot is what every main function shares: settings, log, metrics, traces, the admin listener,
// signals, the order of start and stop, and exit codes.
//
// It is the only place that handles signals and ends the process. A service's main is
//
//	func main() {
//		cfg := search.DefaultConfig()
//		boot.Main("search", &cfg, func(e *boot.Env) (lifecycle.Service, error) {
//			return search.New(cfg, search.Deps{Log: e.Log, …})
//		})
//	}
//
// and the all-in-one, which has commands, uses Command and Serve, of which Main is made.
//
// The first SIGTERM, SIGINT or SIGHUP (the terminal was closed; nohup is respected) starts an orderly stop: readiness and gRPC health turn, a delay lets
// load balancers notice, services drain in reverse order, their contexts end in reverse order (pools
// and bus connections were added first and close last), and traces and metrics are flushed. A second
// signal ends the process at once. Exit codes: 0 after a clean stop, 1 after a failure, 2 for a bad
// configuration.
//
// Everything here runs in the main goroutine, except the waiting for signals.
package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/apiary-relay/apiary/pkg/admin"
	"github.com/apiary-relay/apiary/pkg/buildinfo"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/telemetry"
)

// Config is what every process can be told.
type Config struct {
	telemetry.Config `embed:""`
	Admin            admin.Config `embed:"" prefix:"admin."`
	Drain            DrainConfig  `embed:"" prefix:"drain."`
	// StartTimeout bounds the start of the service; what it waits for differs between programs.
	StartTimeout time.Duration `help:"Longest time until everything is ready." default:"1m"`
	// QuietFailure keeps the failure that ends Serve out of the log: a program that a person runs prints it
	// as text instead. It is the program's to set, not the user's.
	QuietFailure bool `kong:"-"`
}

// Validate reports what cannot work.
func (c *Config) Validate() error { return config.Positive("start-timeout", c.StartTimeout) }

// DrainConfig bounds how long an orderly stop takes. In a cluster, delay and timeout together stay
// below the pod's termination grace period.
type DrainConfig struct {
	Delay   time.Duration `help:"Wait after a stop was asked for, so that load balancers notice, before anything is refused." default:"0s"`
	Timeout time.Duration `help:"Longest time for finishing what is in hand." default:"20s"`
}

// Validate reports what cannot work.
func (c *DrainConfig) Validate() error {
	return errors.Join(config.NotNegative("delay", c.Delay), config.Positive("timeout", c.Timeout))
}

// Env is what a service is built from.
type Env struct {
	Name   string
	Log    *slog.Logger
	Meter  metric.Meter
	Tracer trace.Tracer
	// Health takes background checks of dependencies and knows when the process drains.
	Health *admin.Health
	// Telemetry has the providers, for libraries that want those.
	Telemetry *telemetry.Telemetry
	// AdminAddr is where the admin listener is: nil when there is none, or before the service runs.
	AdminAddr func() net.Addr
}

// RPC returns what RPC servers and clients need of the process, without an in-process transport.
func (e *Env) RPC() rpc.Deps {
	return rpc.Deps{Log: e.Log, MeterProvider: e.Telemetry.MeterProvider, TracerProvider: e.Telemetry.TracerProvider}
}

// Build makes the process's service. It allocates and validates; the service's Run opens. An error
// means a bad configuration.
type Build func(*Env) (lifecycle.Service, error)

// ErrConfig is wrapped by errors that end the process with code 2.
var ErrConfig = errors.New("bad configuration")

const (
	// flushTimeout bounds the last thing a process does.
	flushTimeout = 5 * time.Second
	// otelLogEvery limits complaints of the OpenTelemetry SDK, such as a collector that is away.
	otelLogEvery = time.Minute
)

// Serve builds the service and runs it until ctx is done or something fails. loaded is shown in
// /statusz. Logs go to w.
func Serve(ctx context.Context, name string, cfg Config, loaded *config.Loaded, w io.Writer, build Build) (err error) {
	// Who reads our output may go first, as with "apiary serve | tee log" and Ctrl-C; that must not end the process
	// in the middle of its stop.
	signal.Ignore(syscall.SIGPIPE)
	version := buildinfo.Read().Version
	tel, err := telemetry.New(ctx, cfg.Config, name, version, w)
	if err != nil {
		return refused{err}
	}
	defer func() {
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout) // ctx is done
		defer cancel()
		err = errors.Join(err, tel.Shutdown(flush))
	}()
	sampled := telemetry.Sampled(tel.Log, otelLogEvery)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		sampled.LogAttrs(ctx, slog.LevelWarn, "telemetry", slog.Any("error", err))
	}))
	if _, err := memlimit.Set(memlimit.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		tel.Log.LogAttrs(ctx, slog.LevelWarn, "memory limit not set", slog.Any("error", err))
	}

	env, server, err := newEnv(name, cfg, tel, loaded)
	if err != nil {
		return err
	}
	service, err := build(env)
	if err != nil {
		return refused{err}
	}
	for _, text := range loaded.Warnings() {
		tel.Log.LogAttrs(ctx, slog.LevelWarn, "suspicious configuration", slog.String("setting", text))
	}
	tel.Log.LogAttrs(ctx, slog.LevelInfo, "starting", slog.String("build", buildinfo.Read().String()))
	var first error
	err = group(ctx, cfg, env, server, service, func(failure error) {
		first = failure
		if !cfg.QuietFailure {
			tel.Log.LogAttrs(ctx, slog.LevelError, "stopping after a failure", slog.Any("error", failure))
		}
	}).Run(ctx, nil)
	switch {
	case err == nil:
		tel.Log.LogAttrs(ctx, slog.LevelInfo, "stopped", slog.Bool("clean", true))
		return nil
	case cfg.QuietFailure:
		return err
	case first != nil && first.Error() == err.Error():
		tel.Log.LogAttrs(ctx, slog.LevelInfo, "stopped", slog.Bool("clean", false))
	default: // more went wrong on the way out
		tel.Log.LogAttrs(ctx, slog.LevelError, "stopped", slog.Bool("clean", false), slog.Any("error", err))
	}
	return logged{err}
}

// refused is an error that means a bad configuration.
type refused struct{ error }

func (e refused) Unwrap() error { return e.error }

// Is makes it an ErrConfig.
func (refused) Is(target error) bool { return target == ErrConfig }

// logged is an error that the log has already.
type logged struct{ error }

func (e logged) Unwrap() error { return e.error }

func newEnv(name string, cfg Config, tel *telemetry.Telemetry, loaded *config.Loaded) (*Env, *admin.Server, error) {
	meter := tel.Meter(name)
	health, err := admin.NewHealth(tel.Log, meter)
	if err != nil {
		return nil, nil, fmt.Errorf("build health: %w", err)
	}
	server := admin.NewServer(cfg.Admin, admin.Deps{
		Log: tel.Log, Health: health, Metrics: tel.Handler(), Status: func() any { return changed(loaded) },
	})
	env := &Env{
		Name: name, Log: tel.Log, Meter: meter, Tracer: tel.Tracer(name), Health: health, Telemetry: tel, AdminAddr: server.Addr,
	}
	return env, server, nil
}

// group puts the service between the admin listener and the outside: the listener starts first and
// stops last, so that probes are answered throughout.
func group(ctx context.Context, cfg Config, env *Env, server *admin.Server, service lifecycle.Service, onFailure func(error)) *lifecycle.Group {
	g := lifecycle.NewGroup(lifecycle.Config{
		StartTimeout: cfg.StartTimeout,
		DrainDelay:   cfg.Drain.Delay,
		DrainTimeout: cfg.Drain.Timeout,
		Log:          env.Log,
		OnReady: func() {
			env.Health.SetReady()
			env.Log.LogAttrs(ctx, slog.LevelInfo, "ready")
		},
		OnDraining: func() {
			env.Health.SetDraining()
			env.Log.LogAttrs(ctx, slog.LevelInfo, "draining", slog.Duration("delay", cfg.Drain.Delay))
		},
		OnFailure: onFailure,
	})
	g.Add("admin", server)
	g.Add("checks", env.Health, "admin")
	g.Add("garbage", newGarbage())
	g.Add(env.Name, service, "admin")
	return g
}

// changed lists the settings that differ from their defaults, secrets redacted.
func changed(loaded *config.Loaded) map[string]string {
	settings := map[string]string{}
	for _, s := range loaded.Settings() {
		if s.Changed {
			settings[s.Name] = s.Value
		}
	}
	return settings
}
