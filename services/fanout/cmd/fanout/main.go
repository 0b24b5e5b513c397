// Command fanout matches committed events against the live subscriptions of gateways.
package main

import (
	"context"
	"errors"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/services/fanout"
	"github.com/apiary-relay/apiary/services/internal/boot"
)

type settings struct {
	fanout.Config `embed:""`
	GRPC          rpc.ServerConfig `embed:"" prefix:"grpc." envprefix:"GRPC_"`
	NATS          bus.Config       `embed:"" prefix:"nats." envprefix:"NATS_"`
	Search        rpc.PeersConfig  `embed:"" prefix:"search." envprefix:"SEARCH_"`
}

func main() {
	cfg := settings{
		Config: fanout.DefaultConfig(),
		GRPC:   rpc.ServerConfig{Listen: config.Loopback(config.PortFanout)},
		NATS:   config.MustDefault(bus.Config{}),
		Search: rpc.PeersConfig{Targets: []string{config.Loopback(config.PortSearch)}},
	}
	boot.Main("fanout", &cfg, func(e *boot.Env) (lifecycle.Service, error) {
		peers, err := rpc.NewPeers(cfg.Search, e.RPC())
		if err != nil {
			return nil, err
		}
		// The connection is made in the background, and outlives the context that it is begun with.
		b, err := bus.Connect(context.Background(), cfg.NATS, bus.Options{Name: "fanout", Log: e.Log, Meter: e.Meter})
		if err != nil {
			return nil, err
		}
		service, err := fanout.New(cfg.Config, fanout.Deps{
			Bus: b, Search: fanout.NewSearch(peers), Draining: e.Health.Draining(),
			Log: e.Log, Meter: e.Meter, Tracer: e.Tracer,
		})
		if err != nil {
			b.Close()
			return nil, err
		}
		e.Health.AddCheck("nats", func(context.Context) error {
			if !b.Connected() {
				return bus.ErrDisconnected
			}
			return nil
		})
		e.Health.AddCheck("search", func(context.Context) error {
			if len(peers.Live()) == 0 {
				return errors.New("no replica is live")
			}
			return nil
		})
		server := rpc.NewServer(cfg.GRPC, rpc.ServerOptions{Deps: e.RPC(), Draining: e.Health.Draining()})
		server.Register(service.Register)
		group := lifecycle.NewGroup(lifecycle.Config{Log: e.Log})
		group.Add("bus", lifecycle.OnStop(func() error {
			b.Close()
			return nil
		}))
		group.Add("search", peers)
		group.Add("service", service, "bus", "search")
		group.Add("grpc", server, "service")
		return group, nil
	})
}
