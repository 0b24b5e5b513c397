// Command ingest is the writer: it verifies events, commits them, and passes them on.
package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/services/ingest"
	"github.com/apiary-relay/apiary/services/internal/boot"
)

type settings struct {
	ingest.Config `embed:""`
	Postgres      postgres.Config `embed:"" prefix:"postgres."`
	NATS          bus.Config      `embed:"" prefix:"nats."`
}

// Validate reports what ingest cannot do without a key: nobody makes one here. What it embeds validates itself.
func (s *settings) Validate() error { return s.CheckKey() }

func main() {
	cfg := settings{
		Config:   config.MustDefault(ingest.Config{GRPC: rpc.ServerConfig{Listen: config.Loopback(config.PortIngest)}}),
		Postgres: config.MustDefault(postgres.Config{Role: ingest.Role, AppName: "apiary-ingest"}),
		NATS:     config.MustDefault(bus.Config{}),
	}
	boot.Main("ingest", &cfg, func(e *boot.Env) (lifecycle.Service, error) { return build(&cfg, e) })
}

// build makes the pool and the connection, which open nothing by themselves, and the service.
func build(cfg *settings, e *boot.Env) (lifecycle.Service, error) {
	ctx := context.Background() // both outlive the context that they are made with
	pool, err := postgres.NewPool(ctx, cfg.Postgres, postgres.PoolOptions{
		TracerProvider: e.Telemetry.TracerProvider, MeterProvider: e.Telemetry.MeterProvider,
	})
	if err != nil {
		return nil, err
	}
	b, err := bus.Connect(ctx, cfg.NATS, bus.Options{Name: e.Name, Log: e.Log, Meter: e.Meter})
	if err != nil {
		pool.Close()
		return nil, err
	}
	service, err := ingest.New(cfg.Config, ingest.Deps{
		RPC: e.RPC(), Log: e.Log, Meter: e.Meter, Tracer: e.Tracer, DB: pool, Bus: b, Draining: e.Health.Draining(),
	})
	if err != nil {
		b.Close()
		pool.Close()
		return nil, err
	}
	e.Health.AddCheck("postgres", pool.Ping)
	return group(e, pool, b, service), nil
}

// group closes the pool and the connection after the service has stopped.
func group(e *boot.Env, pool *pgxpool.Pool, b *bus.Bus, service *ingest.Service) lifecycle.Service {
	g := lifecycle.NewGroup(lifecycle.Config{Log: e.Log})
	g.Add("pool", lifecycle.OnStop(func() error {
		pool.Close()
		return nil
	}))
	g.Add("bus", lifecycle.OnStop(func() error {
		b.Close()
		return nil
	}))
	g.Add("service", service, "pool", "bus")
	return g
}
