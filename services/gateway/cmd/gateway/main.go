// Command gateway serves Nostr clients: WebSocket connections and the relay information document.
package main

import (
	"context"

	"github.com/apiary-relay/apiary/pkg/buildinfo"
	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/services/gateway"
	"github.com/apiary-relay/apiary/services/internal/boot"
)

type settings struct {
	gateway.Config `embed:""`
	NATS           bus.Config      `embed:"" prefix:"nats." envprefix:"NATS_"`
	Ingest         rpc.PeersConfig `embed:"" prefix:"ingest." envprefix:"INGEST_"`
	Fanout         rpc.PeersConfig `embed:"" prefix:"fanout." envprefix:"FANOUT_"`
	Search         rpc.PeersConfig `embed:"" prefix:"search." envprefix:"SEARCH_"`
}

func main() {
	cfg := settings{
		Config: gateway.DefaultConfig(),
		NATS:   config.MustDefault(bus.Config{}),
		Ingest: rpc.PeersConfig{Targets: []string{config.Loopback(config.PortIngest)}},
		Fanout: rpc.PeersConfig{Targets: []string{config.Loopback(config.PortFanout)}},
		Search: rpc.PeersConfig{Targets: []string{config.Loopback(config.PortSearch)}},
	}
	boot.Main("gateway", &cfg, func(e *boot.Env) (lifecycle.Service, error) {
		// The connection is made in the background, and outlives the context that it is begun with.
		b, err := bus.Connect(context.Background(), cfg.NATS, bus.Options{Name: "gateway", Log: e.Log, Meter: e.Meter})
		if err != nil {
			return nil, err
		}
		deps := gateway.Deps{Control: b, Version: buildinfo.Read().Version, Log: e.Log, Meter: e.Meter, Tracer: e.Tracer}
		group := lifecycle.NewGroup(lifecycle.Config{Log: e.Log})
		group.Add("bus", lifecycle.OnStop(func() error {
			b.Close()
			return nil
		}))
		for _, s := range []struct {
			name  string
			cfg   rpc.PeersConfig
			peers *gateway.Peers
		}{
			{"ingest", cfg.Ingest, &deps.Ingest}, {"fanout", cfg.Fanout, &deps.Fanout}, {"search", cfg.Search, &deps.Search},
		} {
			peers, err := rpc.NewPeers(s.cfg, e.RPC())
			if err != nil {
				b.Close()
				return nil, err
			}
			*s.peers = peers
			group.Add(s.name, peers)
		}
		service, err := gateway.New(cfg.Config, deps)
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
		group.Add("gateway", service, "bus", "ingest", "fanout", "search")
		return group, nil
	})
}
