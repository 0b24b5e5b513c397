// Command gateway serves Nostr clients: WebSocket connections and the relay information document.
package main

import (
	"github.com/apiary-relay/apiary/pkg/buildinfo"
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/services/gateway"
	"github.com/apiary-relay/apiary/services/internal/boot"
)

type settings struct {
	gateway.Config `embed:""`
	Ingest         rpc.PeersConfig `embed:"" prefix:"ingest." envprefix:"INGEST_"`
	Fanout         rpc.PeersConfig `embed:"" prefix:"fanout." envprefix:"FANOUT_"`
	Search         rpc.PeersConfig `embed:"" prefix:"search." envprefix:"SEARCH_"`
}

func main() {
	cfg := settings{
		Config: gateway.DefaultConfig(),
		Ingest: rpc.PeersConfig{Targets: []string{config.Loopback(config.PortIngest)}},
		Fanout: rpc.PeersConfig{Targets: []string{config.Loopback(config.PortFanout)}},
		Search: rpc.PeersConfig{Targets: []string{config.Loopback(config.PortSearch)}},
	}
	boot.Main("gateway", &cfg, func(e *boot.Env) (lifecycle.Service, error) {
		deps := gateway.Deps{Version: buildinfo.Read().Version, Log: e.Log, Meter: e.Meter, Tracer: e.Tracer}
		group := lifecycle.NewGroup(lifecycle.Config{Log: e.Log})
		for _, s := range []struct {
			name  string
			cfg   rpc.PeersConfig
			peers *gateway.Peers
		}{
			{"ingest", cfg.Ingest, &deps.Ingest}, {"fanout", cfg.Fanout, &deps.Fanout}, {"search", cfg.Search, &deps.Search},
		} {
			peers, err := rpc.NewPeers(s.cfg, e.RPC())
			if err != nil {
				return nil, err
			}
			*s.peers = peers
			group.Add(s.name, peers)
		}
		service, err := gateway.New(cfg.Config, deps)
		if err != nil {
			return nil, err
		}
		group.Add("gateway", service, "ingest", "fanout", "search")
		return group, nil
	})
}
