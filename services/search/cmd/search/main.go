// Command search answers reads: stored queries, counts, text search, communities by host, and who may read what.
package main

import (
	"context"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/services/internal/boot"
	"github.com/apiary-relay/apiary/services/search"
)

type settings struct {
	search.Config `embed:""`
	GRPC          rpc.ServerConfig `embed:"" prefix:"grpc."`
	Postgres      postgres.Config  `embed:"" prefix:"postgres."`
	NATS          bus.Config       `embed:"" prefix:"nats." envprefix:"NATS_"`
}

func main() {
	cfg := settings{
		Config:   search.DefaultConfig(),
		GRPC:     rpc.ServerConfig{Listen: config.Loopback(config.PortSearch)},
		Postgres: config.MustDefault(postgres.Config{Role: search.Role, AppName: "apiary-search", MaxConns: 16}),
		NATS:     config.MustDefault(bus.Config{}),
	}
	boot.Main("search", &cfg, func(e *boot.Env) (lifecycle.Service, error) {
		// The pool opens nothing by itself and outlives the context that it is made with.
		pool, err := postgres.NewPool(context.Background(), cfg.Postgres, postgres.PoolOptions{
			ReadOnly: true, TracerProvider: e.Telemetry.TracerProvider, MeterProvider: e.Telemetry.MeterProvider,
		})
		if err != nil {
			return nil, err
		}
		// The connection is made in the background, and outlives the context that it is begun with.
		b, err := bus.Connect(context.Background(), cfg.NATS, bus.Options{Name: "search", Log: e.Log, Meter: e.Meter})
		if err != nil {
			pool.Close()
			return nil, err
		}
		service, err := search.New(cfg.Config, search.Deps{DB: pool, Bus: b, Log: e.Log, Meter: e.Meter})
		if err != nil {
			b.Close()
			pool.Close()
			return nil, err
		}
		e.Health.AddCheck("postgres", pool.Ping)
		e.Health.AddCheck("nats", func(context.Context) error {
			if !b.Connected() {
				return bus.ErrDisconnected
			}
			return nil
		})
		server := rpc.NewServer(cfg.GRPC, rpc.ServerOptions{Deps: e.RPC(), Draining: e.Health.Draining()})
		server.Register(service.Register)
		group := lifecycle.NewGroup(lifecycle.Config{Log: e.Log})
		group.Add("pool", lifecycle.OnStop(func() error {
			pool.Close()
			return nil
		}))
		group.Add("bus", lifecycle.OnStop(func() error {
			b.Close()
			return nil
		}))
		group.Add("service", service, "pool", "bus")
		group.Add("grpc", server, "service")
		return group, nil
	})
}
