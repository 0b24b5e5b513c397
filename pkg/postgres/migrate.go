package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/apiary-relay/apiary/pkg/postgres/migrations"
)

// ErrSchemaBehind says that migrations have to be run before this program can work.
var ErrSchemaBehind = errors.New("the database schema is behind this program: run `apiary migrate up`")

// Migration bounds.
const (
	// A migration that cannot get its lock would queue every statement behind it.
	migrationLockTimeout = "10s"
	// Two runs at once: the second waits for the first, in tries one second apart.
	migrationLockTries = 300
	// schemaTable is where goose keeps what has been run, whatever the search path of the user is.
	schemaTable = "public.goose_db_version"
)

// Migrate brings the schema up to date; it does nothing if it is. Several may run at once, each waits for
// the one before. url's user must own the schema and be allowed to create roles unless they exist.
func Migrate(ctx context.Context, url string) error {
	return withProvider(ctx, url, func(p *goose.Provider) error {
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrate up: %w", err)
		}
		return nil
	})
}

// MigrateDown undoes every migration after version, newest first; version 0 leaves an empty database.
// Data in what is dropped is lost.
func MigrateDown(ctx context.Context, url string, version int64) error {
	return withProvider(ctx, url, func(p *goose.Provider) error {
		if _, err := p.DownTo(ctx, version); err != nil {
			return fmt.Errorf("migrate down: %w", err)
		}
		return nil
	})
}

// MigrationStatus is one migration and whether it is in the database.
type MigrationStatus struct {
	// Version is its number, Name its file.
	Version int64
	Name    string
	// Applied is false for one that is pending.
	Applied bool
}

// Migrations lists all migrations in order.
func Migrations(ctx context.Context, url string) ([]MigrationStatus, error) {
	var list []MigrationStatus
	err := withProvider(ctx, url, func(p *goose.Provider) error {
		all, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("list migrations: %w", err)
		}
		for _, m := range all {
			list = append(list, MigrationStatus{Version: m.Source.Version, Name: m.Source.Path, Applied: m.State == goose.StateApplied})
		}
		return nil
	})
	return list, err
}

func withProvider(ctx context.Context, url string, use func(*goose.Provider) error) error {
	conn, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("parse postgres url: %w", err)
	}
	conn.RuntimeParams["application_name"] = "apiary-migrate"
	conn.RuntimeParams["lock_timeout"] = migrationLockTimeout
	db := stdlib.OpenDB(*conn)
	defer db.Close() //nolint:errcheck // nothing depends on a clean goodbye
	// An unreachable server should be named as such, not as a failed lock.
	if err := db.PingContext(ctx); err != nil {
		return fmt.Errorf("reach postgres: %w", err)
	}
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	return use(provider)
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, migrationLockTries))
	if err != nil {
		return nil, fmt.Errorf("make migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS(),
		goose.WithTableName(schemaTable), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(migrations.Online()...))
	if err != nil {
		return nil, fmt.Errorf("load migrations: %w", err)
	}
	return provider, nil
}

// Querier runs a query that returns one row; pools, connections and transactions do.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// SchemaVersion returns the newest migration that is in the database, 0 if none is.
func SchemaVersion(ctx context.Context, q Querier) (int64, error) {
	var version int64
	// Any role may read the table; goose removes a row when it undoes a migration.
	err := q.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM public.goose_db_version WHERE is_applied`).Scan(&version)
	if code(err) == codeUndefinedTable {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return version, nil
}

// CheckSchema returns an error that wraps ErrSchemaBehind when a migration this program knows is missing.
// A schema that is ahead is fine: migrations expand first and contract a release later.
func CheckSchema(ctx context.Context, q Querier) error {
	have, err := SchemaVersion(ctx, q)
	if err != nil {
		return err
	}
	want, err := migrations.Latest()
	if err != nil {
		return err
	}
	if have < want {
		return fmt.Errorf("schema version %d, need %d: %w", have, want, ErrSchemaBehind)
	}
	return nil
}

// SystemIdentifier returns the number that initdb gave the server's data. It is the same on its
// replicas, and tells transaction ids of two clusters apart.
func SystemIdentifier(ctx context.Context, q Querier) (uint64, error) {
	var id int64
	if err := q.QueryRow(ctx, `SELECT system_identifier FROM pg_catalog.pg_control_system()`).Scan(&id); err != nil {
		return 0, fmt.Errorf("read system identifier: %w", err)
	}
	return uint64(id), nil
}
