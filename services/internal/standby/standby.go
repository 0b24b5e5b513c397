// Package standby is the body of a service that has its own database role and no feature yet: it keeps a
// pool, checks in the background that the database lets it in as that role, and reports it. Its gRPC server
// answers health checks and has no other method, so that nothing pretends to work.
//
// The database part's Run goroutine owns the pool. Neither start nor readiness waits for the database.
package standby

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/apiary-relay/apiary/pkg/admin"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/rpc"
)

// dependency is the name under which the database appears in /statusz and in metrics.
const dependency = "postgres"

// ErrRole is in the report of a database that let the service in as somebody else.
var ErrRole = errors.New("connected with another role")

// Checks takes background checks of dependencies; *admin.Health satisfies it.
type Checks interface {
	AddCheck(name string, check admin.Check)
}

// Deps of a service.
type Deps struct {
	// RPC has the log and the providers, which may be nil.
	RPC rpc.Deps
	// Checks must not be nil.
	Checks Checks
	// MemoryName makes the gRPC server listen in RPC.Memory too; empty does not.
	MemoryName string
	// Draining, when closed, turns the gRPC health. May be nil.
	Draining <-chan struct{}
}

// New checks db, whose Role must be set, and returns the service; it opens nothing.
func New(db postgres.Config, grpc rpc.ServerConfig, deps Deps) (lifecycle.Service, error) {
	if db.Role == "" {
		return nil, errors.New("no database role is configured")
	}
	if err := db.Validate(); err != nil {
		return nil, err
	}
	if deps.RPC.Log == nil {
		deps.RPC.Log = slog.New(slog.DiscardHandler)
	}
	g := lifecycle.NewGroup(lifecycle.Config{Log: deps.RPC.Log})
	g.Add("database", &database{cfg: db, deps: deps})
	g.Add("grpc", rpc.NewServer(grpc, rpc.ServerOptions{
		Deps: deps.RPC, MemoryName: deps.MemoryName, Draining: deps.Draining,
	}), "database")
	return g, nil
}

// database keeps the pool.
type database struct {
	cfg  postgres.Config
	deps Deps
}

// Run keeps the pool until ctx is done. It is ready at once.
func (d *database) Run(ctx context.Context, ready func()) error {
	pool, err := postgres.NewPool(ctx, d.cfg, postgres.PoolOptions{
		MeterProvider: d.deps.RPC.MeterProvider, TracerProvider: d.deps.RPC.TracerProvider,
	})
	if err != nil {
		return err
	}
	defer pool.Close()
	d.deps.Checks.AddCheck(dependency, func(ctx context.Context) error { return checkRole(ctx, pool, d.cfg.Role) })
	d.deps.RPC.Log.LogAttrs(ctx, slog.LevelInfo, "no feature is served yet", slog.String("role", d.cfg.Role))
	ready()
	<-ctx.Done()
	return nil
}

// checkRole asks the database who we are.
func checkRole(ctx context.Context, pool *pgxpool.Pool, want string) error {
	var got string
	if err := pool.QueryRow(ctx, "SELECT current_user::text").Scan(&got); err != nil {
		return fmt.Errorf("ask for the role: %w", err)
	}
	if got != want {
		return fmt.Errorf("%w: %s instead of %s", ErrRole, got, want)
	}
	return nil
}
