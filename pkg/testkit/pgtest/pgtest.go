// Package pgtest gives each test a fresh, migrated database on the Postgres that APIARY_TEST_POSTGRES
// names (`make test` starts a throw-away one with tools/pgtmp).
//
// A template database, named after the migrations' hash, is made once under an advisory lock, because
// test packages are separate processes; each test's database is a copy of it and is dropped with the test.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/postgres/migrations"
)

// envURL names the server; its user must be a superuser.
const envURL = "APIARY_TEST_POSTGRES"

const (
	// adminTimeout bounds making and dropping a database; a clone takes a second on a busy machine.
	adminTimeout = time.Minute
	poolConns    = 8
	lockTemplate = 0x617069617279 // "apiary"
)

// databases remembers each test's database, so that New and URL of one test mean the same one.
var databases sync.Map // testing.TB -> string

// New returns a pool of superuser connections to the test's database.
func New(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return NewAs(tb, "")
}

// NewAs returns a pool like New whose connections have taken a role, such as "apiary_search".
func NewAs(tb testing.TB, role string) *pgxpool.Pool {
	tb.Helper()
	cfg := Config(tb)
	cfg.Role = role
	pool, err := postgres.NewPool(tb.Context(), cfg, postgres.PoolOptions{})
	if err != nil {
		tb.Fatalf("make pool: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Config returns the configuration of a service on the test's database, without a role.
func Config(tb testing.TB) postgres.Config {
	tb.Helper()
	return postgres.Config{
		URL: config.NewSecret(URL(tb)), MaxConns: poolConns, StatementTimeout: 30 * time.Second, LockTimeout: 30 * time.Second,
		IdleTxTimeout: 30 * time.Second, ConnectTimeout: 10 * time.Second, AppName: "pgtest",
	}
}

// URL returns the URL of the test's database, which is made when New, URL or Config is first called.
func URL(tb testing.TB) string {
	tb.Helper()
	return database(tb, template)
}

// Empty returns the URL of a database of the test's own in which no migration has run.
func Empty(tb testing.TB) string {
	tb.Helper()
	return create(tb, func(context.Context, *pgx.Conn, *url.URL) (string, error) { return "template0", nil })
}

func database(tb testing.TB, source func(context.Context, *pgx.Conn, *url.URL) (string, error)) string {
	tb.Helper()
	if have, ok := databases.Load(tb); ok {
		return have.(string)
	}
	made := create(tb, source)
	databases.Store(tb, made)
	tb.Cleanup(func() { databases.Delete(tb) })
	return made
}

// create makes a database from what source names and drops it with the test.
func create(tb testing.TB, source func(context.Context, *pgx.Conn, *url.URL) (string, error)) string {
	tb.Helper()
	server := serverURL(tb)
	name := "apiary_test_" + strings.ToLower(rand.Text()[:16])
	admin(tb, server, func(ctx context.Context, conn *pgx.Conn) error {
		from, err := source(ctx, conn, server)
		if err != nil {
			return err
		}
		return exec(ctx, conn, "CREATE DATABASE %s TEMPLATE %s STRATEGY FILE_COPY", name, from)
	})
	tb.Cleanup(func() {
		admin(tb, server, func(ctx context.Context, conn *pgx.Conn) error {
			return exec(ctx, conn, "DROP DATABASE IF EXISTS %s WITH (FORCE)", name)
		})
	})
	return withDatabase(server, name)
}

// template returns the name of the database that has all migrations, making it if it is not there.
func template(ctx context.Context, conn *pgx.Conn, server *url.URL) (string, error) {
	hash, err := migrations.Hash()
	if err != nil {
		return "", err
	}
	name := "apiary_template_" + hash
	exists := func() (bool, error) {
		var found bool
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&found)
		return found, err
	}
	if found, err := exists(); found || err != nil {
		return name, err
	}
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, lockTemplate); err != nil {
		return "", err
	}
	// The lock ends with the connection as well.
	defer conn.Exec(ctx, `SELECT pg_advisory_unlock($1)`, lockTemplate) //nolint:errcheck // see above
	if found, err := exists(); found || err != nil {
		return name, err
	}
	// Whoever died while building left this one behind.
	building := name + "_building"
	if err := exec(ctx, conn, "DROP DATABASE IF EXISTS %s WITH (FORCE)", building); err != nil {
		return "", err
	}
	if err := exec(ctx, conn, "CREATE DATABASE %s TEMPLATE template0", building); err != nil {
		return "", err
	}
	if err := postgres.Migrate(ctx, withDatabase(server, building)); err != nil {
		return "", err
	}
	return name, exec(ctx, conn, "ALTER DATABASE %s RENAME TO %s", building, name)
}

// admin runs fn on a connection to the server's own database. It has a context of its own, because it is
// used in clean-up too, when the test's has ended.
func admin(tb testing.TB, server *url.URL, fn func(context.Context, *pgx.Conn) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), adminTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.String())
	if err != nil {
		tb.Fatalf("connect to the Postgres that %s names: %v", envURL, err)
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing depends on a clean goodbye
	if err := fn(ctx, conn); err != nil {
		tb.Fatalf("prepare a test database: %v", err)
	}
}

// exec runs a statement that names databases; names are quoted.
func exec(ctx context.Context, conn *pgx.Conn, statement string, names ...string) error {
	quoted := make([]any, len(names))
	for i, name := range names {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	_, err := conn.Exec(ctx, fmt.Sprintf(statement, quoted...))
	return err
}

func serverURL(tb testing.TB) *url.URL {
	tb.Helper()
	text := os.Getenv(envURL) //nolint:forbidigo // tests have no configuration of their own
	if text == "" {
		tb.Fatalf("%s is not set: run the tests with `make test`, or `go run ./tools/pgtmp -- go test ...`", envURL)
	}
	server, err := url.Parse(text)
	if err != nil {
		tb.Fatalf("parse %s: %v", envURL, err)
	}
	return server
}

func withDatabase(server *url.URL, name string) string {
	u := *server
	u.Path = "/" + name
	return u.String()
}
