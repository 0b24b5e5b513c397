package cli

import (
	"context"
	"fmt"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/services/apiary/internal/operator"
)

// databaseFlags say which database is migrated.
type databaseFlags struct {
	URL config.Secret `name:"postgres.url" help:"Postgres to work on. The user must own the schema, and may have to create roles." env:"DATABASE_URL" required:""`
}

// Validate refuses what is no database.
func (f *databaseFlags) Validate() error {
	if err := postgres.CheckURL(f.URL); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

type migrateUpCmd struct {
	databaseFlags `embed:""`
}

func (c *migrateUpCmd) run(ctx context.Context, env env) error {
	return operator.MigrateUp(ctx, c.URL.Reveal(), env.Out)
}

type migrateStatusCmd struct {
	databaseFlags `embed:""`
}

func (c *migrateStatusCmd) run(ctx context.Context, env env) error {
	return operator.MigrateStatus(ctx, c.URL.Reveal(), env.Out)
}
