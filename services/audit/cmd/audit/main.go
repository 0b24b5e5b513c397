// Command audit runs the audit service.
package main

import (
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/services/audit"
	"github.com/apiary-relay/apiary/services/internal/boot"
	"github.com/apiary-relay/apiary/services/internal/standby"
)

func main() {
	cfg := audit.DefaultConfig()
	boot.Main("audit", &cfg, func(e *boot.Env) (lifecycle.Service, error) {
		return audit.New(cfg, standby.Deps{RPC: e.RPC(), Checks: e.Health, Draining: e.Health.Draining()})
	})
}
