// Command workflow runs the workflow service.
package main

import (
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/services/internal/boot"
	"github.com/apiary-relay/apiary/services/internal/standby"
	"github.com/apiary-relay/apiary/services/workflow"
)

func main() {
	cfg := workflow.DefaultConfig()
	boot.Main("workflow", &cfg, func(e *boot.Env) (lifecycle.Service, error) {
		return workflow.New(cfg, standby.Deps{RPC: e.RPC(), Checks: e.Health, Draining: e.Health.Draining()})
	})
}
