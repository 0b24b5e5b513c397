package pgtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

func TestDatabasesAreMigratedAndApart(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one", "two", "three"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			require.NoError(t, postgres.CheckSchema(t.Context(), pool))
			var others int
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM ingest.communities`).Scan(&others))
			require.Zero(t, others)
			_, err := pool.Exec(t.Context(), `INSERT INTO ingest.communities (name) VALUES ($1)`, name)
			require.NoError(t, err)
		})
	}
}

func TestOneDatabasePerTest(t *testing.T) {
	t.Parallel()
	first, second := pgtest.URL(t), pgtest.URL(t)
	require.Equal(t, first, second)
	writer, reader := pgtest.New(t), pgtest.NewAs(t, "apiary_search")
	_, err := writer.Exec(t.Context(), `INSERT INTO ingest.communities (name) VALUES ('seen')`)
	require.NoError(t, err)
	var name, role string
	require.NoError(t, reader.QueryRow(t.Context(), `SELECT name, current_user FROM ingest.communities`).Scan(&name, &role))
	require.Equal(t, "seen", name)
	require.Equal(t, "apiary_search", role)
}

func TestEmptyHasNoSchema(t *testing.T) {
	t.Parallel()
	cfg := pgtest.Config(t)
	cfg.URL = config.NewSecret(pgtest.Empty(t))
	pool, err := postgres.NewPool(t.Context(), cfg, postgres.PoolOptions{})
	require.NoError(t, err)
	defer pool.Close()
	version, err := postgres.SchemaVersion(t.Context(), pool)
	require.NoError(t, err)
	require.Zero(t, version)
	require.ErrorIs(t, postgres.CheckSchema(t.Context(), pool), postgres.ErrSchemaBehind)
}
