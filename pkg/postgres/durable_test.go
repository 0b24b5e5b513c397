package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

// A database that does not wait for its disk is made to by every pool that writes; more caution is left alone.
func TestCommitsWaitForTheDisk(t *testing.T) {
	t.Parallel()
	admin := pgtest.New(t)
	for configured, want := range map[string]string{
		"off": "on", "local": "local", "remote_write": "remote_write", "on": "on", "remote_apply": "remote_apply",
	} {
		_, err := admin.Exec(t.Context(), `ALTER DATABASE `+pgx.Identifier{admin.Config().ConnConfig.Database}.Sanitize()+
			` SET synchronous_commit = `+configured)
		require.NoError(t, err)
		for _, readOnly := range []bool{false, true} {
			p, err := postgres.NewPool(t.Context(), pgtest.Config(t), postgres.PoolOptions{ReadOnly: readOnly})
			require.NoError(t, err)
			defer p.Close()
			var got string
			require.NoError(t, p.QueryRow(t.Context(), `SHOW synchronous_commit`).Scan(&got))
			if readOnly {
				want = configured
			}
			require.Equal(t, want, got, "%s, read-only %t", configured, readOnly)
		}
	}
}

func TestUnsafeSettings(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t)
	want := []string{}
	for _, name := range []string{"fsync", "full_page_writes"} {
		var value string
		require.NoError(t, p.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&value))
		if value == "off" {
			want = append(want, name)
		}
	}
	got, err := postgres.UnsafeSettings(t.Context(), pgtest.NewAs(t, "apiary_ingest"))
	require.NoError(t, err)
	require.Equal(t, want, got)
	p.Close()
	_, err = postgres.UnsafeSettings(t.Context(), p)
	require.Error(t, err)
}
