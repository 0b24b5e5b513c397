// Command media runs the media service.
package main

import (
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/services/internal/boot"
	"github.com/apiary-relay/apiary/services/internal/standby"
	"github.com/apiary-relay/apiary/services/media"
)

func main() {
	cfg := media.DefaultConfig()
	boot.Main("media", &cfg, func(e *boot.Env) (lifecycle.Service, error) {
		return media.New(cfg, standby.Deps{RPC: e.RPC(), Checks: e.Health, Draining: e.Health.Draining()})
	})
}
