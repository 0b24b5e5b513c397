package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	"github.com/apiary-relay/apiary/services/search/internal/plan"
)

// Every statement that a filter can choose is valid SQL for search's role on the migrated schema.
func TestStatementsPrepare(t *testing.T) {
	pool := pgtest.NewAs(t, "apiary_search")
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	all := plan.All()
	require.NotEmpty(t, all)
	for name, sql := range all {
		_, err := conn.Conn().PgConn().Prepare(t.Context(), "", sql, nil)
		require.NoError(t, err, "%s\n%s", name, sql)
	}
}
