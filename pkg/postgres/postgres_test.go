package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/testkit/faultproxy"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPoolSetsUpItsSessions(t *testing.T) {
	t.Parallel()
	cfg := pgtest.Config(t)
	cfg.Role, cfg.AppName = "apiary_search", "search"
	cfg.StatementTimeout, cfg.LockTimeout, cfg.IdleTxTimeout = 1500*time.Millisecond, 2*time.Second, 0
	p, err := postgres.NewPool(t.Context(), cfg, postgres.PoolOptions{
		ReadOnly: true, MeterProvider: noop.NewMeterProvider(), TracerProvider: tracenoop.NewTracerProvider(),
	})
	require.NoError(t, err)
	defer p.Close()
	for setting, want := range map[string]string{
		"role": "apiary_search", "application_name": "search", "statement_timeout": "1500ms", "lock_timeout": "2s",
		"idle_in_transaction_session_timeout": "0", "default_transaction_read_only": "on", "TimeZone": "UTC",
	} {
		var got string
		require.NoError(t, p.QueryRow(t.Context(), `SELECT current_setting($1)`, setting).Scan(&got))
		require.Equal(t, want, got, setting)
	}
	_, err = p.Exec(t.Context(), `SELECT pg_sleep(10)`)
	require.True(t, postgres.IsTimeout(err), "%v", err)
	_, err = p.Exec(t.Context(), `CREATE TEMP TABLE x (y int)`)
	require.True(t, postgres.IsDenied(err), "%v", err)
}

func TestPoolDoesNotWaitForTheServer(t *testing.T) {
	t.Parallel()
	cfg := pgtest.Config(t)
	cfg.URL = config.NewSecret("postgres://somebody:secret@127.0.0.1:1/x")
	p, err := postgres.NewPool(t.Context(), cfg, postgres.PoolOptions{})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Exec(t.Context(), `SELECT 1`)
	require.True(t, postgres.IsUnavailable(err), "%v", err)
	require.NotContains(t, err.Error(), "secret")

	cfg.URL = config.NewSecret("postgres://somebody:secret@:x/")
	_, err = postgres.NewPool(t.Context(), cfg, postgres.PoolOptions{})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
	cfg.MaxConns = 0
	_, err = postgres.NewPool(t.Context(), cfg, postgres.PoolOptions{})
	require.ErrorContains(t, err, "max-conns must be positive, not 0")
	require.ErrorContains(t, err, "url is not one of Postgres, such as postgres://user@host:5432/database: ")
	cfg.LockTimeout = -time.Second
	require.ErrorContains(t, cfg.Validate(), "lock-timeout must not be negative, as -1s is")
}

func TestUnavailableWhenConnectionsBreak(t *testing.T) {
	t.Parallel()
	conn, err := pgx.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	proxy := faultproxy.New(t, conn.Host+"/.s.PGSQL.5432")
	cfg := pgtest.Config(t)
	cfg.URL = config.NewSecret("postgres://" + conn.User + "@" + proxy.Addr() + "/" + conn.Database + "?sslmode=disable")
	p, err := postgres.NewPool(t.Context(), cfg, postgres.PoolOptions{})
	require.NoError(t, err)
	defer p.Close()
	err = postgres.InTx(t.Context(), p, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil {
			return err
		}
		proxy.Cut()
		_, err := tx.Exec(t.Context(), `SELECT 1`)
		return err
	})
	require.True(t, postgres.IsUnavailable(err), "%v", err)
	_, err = p.Exec(t.Context(), `SELECT 1`)
	require.True(t, postgres.IsUnavailable(err), "%v", err)
	proxy.Heal()
	_, err = p.Exec(t.Context(), `SELECT 1`)
	require.NoError(t, err)
	admin := pgtest.New(t)
	err = postgres.InTx(t.Context(), p, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, tx.Conn().PgConn().PID())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT 1`)
		return err
	})
	require.True(t, postgres.IsUnavailable(err), "%v", err)
	require.False(t, postgres.IsUnavailable(errors.New("something else")))
	require.False(t, postgres.IsUnavailable(nil))
}

func TestPredicates(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t)
	exec := func(sql string) error {
		_, err := p.Exec(t.Context(), sql)
		return err
	}
	require.NoError(t, exec(`INSERT INTO ingest.communities (name) VALUES ('x'); INSERT INTO ingest.community_hosts (host, community_id) VALUES ('a', 1)`))
	err := exec(`INSERT INTO ingest.community_hosts (host, community_id) VALUES ('a', 1)`)
	require.True(t, postgres.IsUniqueViolation(err))
	require.Equal(t, "community_hosts_pkey", postgres.ConstraintName(err))
	require.True(t, postgres.IsForeignKeyViolation(exec(`INSERT INTO ingest.community_hosts (host, community_id) VALUES ('b', 99)`)))
	require.True(t, postgres.IsCheckViolation(exec(`INSERT INTO ingest.community_hosts (host, community_id) VALUES ('UPPER', 1)`)))
	require.Empty(t, postgres.ConstraintName(errors.New("x")))
	require.False(t, postgres.IsRetryable(err))
	require.True(t, postgres.IsTimeout(context.DeadlineExceeded))
}

func TestInTx(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t)
	count := func() (n int) {
		require.NoError(t, p.QueryRow(t.Context(), `SELECT count(*) FROM ingest.communities`).Scan(&n))
		return n
	}
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO ingest.communities (name) VALUES ('x')`)
		return err
	}
	require.NoError(t, postgres.InTx(t.Context(), p, pgx.TxOptions{}, insert))
	require.Equal(t, 1, count())

	refused := errors.New("refused")
	runs := 0
	err := postgres.InTx(t.Context(), p, pgx.TxOptions{}, func(tx pgx.Tx) error {
		runs++
		require.NoError(t, insert(tx))
		return refused
	})
	require.ErrorIs(t, err, refused)
	require.Equal(t, 1, runs)
	require.Equal(t, 1, count())

	// Two transactions read what the other writes: one has to run again.
	runs = 0
	serializable := pgx.TxOptions{IsoLevel: pgx.Serializable}
	err = postgres.InTx(t.Context(), p, serializable, func(tx pgx.Tx) error {
		runs++
		var n int
		if err := tx.QueryRow(t.Context(), `SELECT count(*) FROM ingest.communities`).Scan(&n); err != nil {
			return err
		}
		if runs == 1 {
			require.NoError(t, postgres.InTx(t.Context(), p, serializable, func(other pgx.Tx) error {
				require.NoError(t, other.QueryRow(t.Context(), `SELECT count(*) FROM ingest.communities`).Scan(&n))
				return insert(other)
			}))
		}
		return insert(tx)
	})
	require.NoError(t, err)
	require.Equal(t, 2, runs)
	require.Equal(t, 3, count())

	runs = 0
	err = postgres.InTx(t.Context(), p, pgx.TxOptions{}, func(tx pgx.Tx) error {
		runs++
		_, err := tx.Exec(t.Context(), `DO $$ BEGIN RAISE EXCEPTION SQLSTATE '40P01'; END $$`)
		return err
	})
	require.True(t, postgres.IsRetryable(err))
	require.Equal(t, 5, runs)

	ctx, cancel := context.WithCancel(t.Context())
	err = postgres.InTx(ctx, p, pgx.TxOptions{}, func(tx pgx.Tx) error {
		require.NoError(t, insert(tx))
		cancel()
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, count())
}

func TestTagKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value string
		raw   bool
	}{
		"empty":           {"", true},
		"word":            {"apiary", true},
		"nul":             {"\x00", true},
		"longest":         {strings.Repeat("x", 200), true},
		"too long":        {strings.Repeat("x", 201), false},
		"looks digested":  {"\x01", false},
		"another of that": {"\x01abc", false},
	} {
		key := postgres.TagKey(c.value)
		require.NotNil(t, key, name)
		if c.raw {
			require.Equal(t, c.value, string(key), name)
		} else {
			require.Len(t, key, 33, name)
			require.Equal(t, byte(1), key[0], name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"", "\x01", "\x00", strings.Repeat("a", 199)}).Draw(t, "head") + rapid.StringN(0, 4, 8).Draw(t, "tail")
		})
		a, b := value.Draw(t, "a"), value.Draw(t, "b")
		if bytes.Equal(postgres.TagKey(a), postgres.TagKey(b)) != (a == b) {
			t.Fatalf("keys of %q and %q", a, b)
		}
		// What a digest is made of cannot be claimed as a raw value.
		if key := postgres.TagKey(a); len(key) > 0 && key[0] == 1 && bytes.Equal(postgres.TagKey(string(key)), key) {
			t.Fatalf("the key of %q is its own key", a)
		}
	})
}
