package audit

import (
	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/services/internal/standby"
)

// Role is the database role of the service.
const Role = "apiary_audit"

// Config is what an operator decides about the service.
type Config struct {
	GRPC     rpc.ServerConfig `embed:"" prefix:"grpc."`
	Postgres postgres.Config  `embed:"" prefix:"postgres."`
}

// DefaultConfig returns the configuration of a service that was told nothing.
func DefaultConfig() Config {
	return config.MustDefault(Config{
		GRPC:     rpc.ServerConfig{Listen: config.Loopback(config.PortAudit)},
		Postgres: postgres.Config{Role: Role, MaxConns: 2, AppName: "apiary-audit"},
	})
}

// New makes the service; it opens nothing before Run.
func New(cfg Config, deps standby.Deps) (lifecycle.Service, error) {
	return standby.New(cfg.Postgres, cfg.GRPC, deps)
}
