package postgres_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

// pool connects to a database that pgtest.New does not know of.
func pool(t *testing.T, url, role string) *pgxpool.Pool {
	t.Helper()
	cfg := postgres.Config{
		URL: config.NewSecret(url), Role: role, MaxConns: 4, StatementTimeout: 30 * time.Second, LockTimeout: 30 * time.Second,
		ConnectTimeout: 10 * time.Second,
	}
	p, err := postgres.NewPool(t.Context(), cfg, postgres.PoolOptions{})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestMigrateUpDownUp(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	p := pool(t, db, "")
	require.ErrorIs(t, postgres.CheckSchema(t.Context(), p), postgres.ErrSchemaBehind)
	require.NoError(t, postgres.Migrate(t.Context(), db))
	require.NoError(t, postgres.CheckSchema(t.Context(), p))
	list, err := postgres.Migrations(t.Context(), db)
	require.NoError(t, err)
	// One down, one up, for each of them; then all the way.
	for i := len(list) - 1; i >= 0; i-- {
		require.True(t, list[i].Applied)
		below := int64(0)
		if i > 0 {
			below = list[i-1].Version
		}
		require.NoError(t, postgres.MigrateDown(t.Context(), db, below), list[i].Name)
		require.ErrorIs(t, postgres.CheckSchema(t.Context(), p), postgres.ErrSchemaBehind)
		require.NoError(t, postgres.Migrate(t.Context(), db), list[i].Name)
	}
	require.NoError(t, postgres.MigrateDown(t.Context(), db, 0))
	var left []string
	require.NoError(t, p.QueryRow(t.Context(), `SELECT coalesce(array_agg(nspname::text), '{}') FROM pg_namespace
		WHERE nspname IN ('ingest', 'search', 'audit', 'workflow', 'media')`).Scan(&left))
	require.Empty(t, left)
	require.NoError(t, postgres.Migrate(t.Context(), db))
	require.NoError(t, postgres.Migrate(t.Context(), db), "nothing to do is no error")
}

func TestMigrateTwiceAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	var running sync.WaitGroup
	errs := make(chan error, 3)
	for range cap(errs) {
		running.Go(func() { errs <- postgres.Migrate(t.Context(), db) })
	}
	running.Wait()
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

func TestMigrateSaysWhatIsUnreachable(t *testing.T) {
	t.Parallel()
	err := postgres.Migrate(t.Context(), "postgres:///x?host="+url.QueryEscape(t.TempDir()))
	require.ErrorContains(t, err, "reach postgres")
	require.True(t, postgres.IsUnavailable(err))
	require.ErrorContains(t, postgres.Migrate(t.Context(), "postgres://%"), "parse postgres url")
}

// TestMigrateWithoutSuperuser is how it is on managed servers: the user owns its database and may create
// roles, no more. Services log in as the same user and take their roles.
func TestMigrateWithoutSuperuser(t *testing.T) {
	t.Parallel()
	admin := pgtest.New(t)
	user := "migrator_" + strings.ToLower(rand.Text()[:12])
	_, err := admin.Exec(t.Context(), "CREATE ROLE "+user+" LOGIN CREATEROLE")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP ROLE "+user)
		require.NoError(t, err)
	})
	u, err := url.Parse(pgtest.Empty(t))
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "ALTER DATABASE "+pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()+" OWNER TO "+user)
	require.NoError(t, err)
	u.User = url.User(user)
	require.NoError(t, postgres.Migrate(t.Context(), u.String()))
	for _, role := range []string{"apiary_ingest", "apiary_search", "apiary_audit", "apiary_workflow", "apiary_media"} {
		require.NoError(t, postgres.CheckSchema(t.Context(), pool(t, u.String(), role)), role)
	}
	ingest := pool(t, u.String(), "apiary_ingest")
	var made int
	require.NoError(t, ingest.QueryRow(t.Context(), `SELECT ingest.ensure_event_partitions(now(), 2)`).Scan(&made))
	require.Equal(t, 4, made)
}

func TestSystemIdentifierForEveryRole(t *testing.T) {
	t.Parallel()
	want, err := postgres.SystemIdentifier(t.Context(), pgtest.New(t))
	require.NoError(t, err)
	require.NotZero(t, want)
	got, err := postgres.SystemIdentifier(t.Context(), pgtest.NewAs(t, "apiary_search"))
	require.NoError(t, err)
	require.Equal(t, want, got)
}
