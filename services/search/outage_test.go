package search

import (
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/testkit/faultproxy"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/fixture"
)

// proxied makes a service whose database connections go through a proxy.
func proxied(t *testing.T, cfg Config) (*Service, *faultproxy.Proxy) {
	t.Helper()
	direct, err := pgx.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	target := net.JoinHostPort(direct.Host, strconv.Itoa(int(direct.Port)))
	if filepath.IsAbs(direct.Host) {
		target = filepath.Join(direct.Host, ".s.PGSQL."+strconv.Itoa(int(direct.Port)))
	}
	proxy := faultproxy.New(t, target)
	through := url.URL{
		Scheme: "postgres", User: url.UserPassword(direct.User, direct.Password), Host: proxy.Addr(),
		Path: direct.Database, RawQuery: "sslmode=disable",
	}
	pc := pgtest.Config(t)
	pc.URL, pc.Role, pc.MaxConns = config.NewSecret(through.String()), Role, 5
	pool, err := postgres.NewPool(t.Context(), pc, postgres.PoolOptions{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s, err := New(cfg, Deps{DB: pool})
	require.NoError(t, err)
	return s, proxy
}

// everyCall makes each call once and returns their errors.
func everyCall(t *testing.T, c searchv1.SearchServiceClient) map[string]error {
	t.Helper()
	errs := map[string]error{}
	_, errs[callQuery] = collect(c.Query(t.Context(), queryFor(1, principal(), nostr.Filter{})))
	_, errs[callCount] = c.Count(t.Context(), countFor(1, principal(), nostr.Filter{}))
	_, errs[callResolve] = c.ResolveCommunity(t.Context(), &searchv1.ResolveCommunityRequest{Host: "relay.example"})
	_, errs[callAccess] = c.CheckAccess(t.Context(), &searchv1.CheckAccessRequest{Community: 1})
	return errs
}

func TestOutageOfPostgres(t *testing.T) {
	cfg := DefaultConfig()
	cfg.AcquireTimeout = 300 * time.Millisecond
	s, proxy := proxied(t, cfg)
	db := fixture.New(t.Context(), pgtest.New(t))
	community := db.Community(t, "open")
	db.Host(t, community, "relay.example")
	c := serve(t, s)
	requireReasons := func(want fault.Reason) {
		t.Helper()
		for call, err := range everyCall(t, c) {
			require.Equal(t, want, fault.ReasonOf(err), "%s: %v", call, err)
		}
	}

	proxy.Cut() // before the first connection, too
	requireReasons(fault.Overloaded)
	proxy.Heal()
	requireReasons(fault.Accepted)

	proxy.Cut()
	begun := time.Now()
	requireReasons(fault.Overloaded)
	require.Less(t, time.Since(begun), 4*(cfg.AcquireTimeout+time.Second), "refused quickly")
	proxy.Heal()
	requireReasons(fault.Accepted)

	// Connections that broke while they were idle cost no request, however many there are.
	for range 3 {
		var conns []*pgxpool.Conn
		for range s.db.Config().MaxConns {
			conn, err := s.db.Acquire(t.Context())
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			conn.Release()
		}
		proxy.Reset()
		requireReasons(fault.Accepted)
	}
}

func TestBusyPool(t *testing.T) {
	cfg := DefaultConfig()
	cfg.AcquireTimeout = 50 * time.Millisecond
	s, _ := newService(t, cfg)
	c := serve(t, s)
	for range s.db.Config().MaxConns {
		conn, err := s.db.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
	}
	for call, err := range everyCall(t, c) {
		require.Equal(t, fault.Overloaded, fault.ReasonOf(err), call)
	}
}

func TestSlowStatement(t *testing.T) {
	pc := pgtest.Config(t)
	pc.Role, pc.StatementTimeout, pc.MaxConns = Role, 100*time.Millisecond, 1
	pool, err := postgres.NewPool(t.Context(), pc, postgres.PoolOptions{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s, err := New(DefaultConfig(), Deps{DB: pool})
	require.NoError(t, err)
	c := serve(t, s)
	community := fixture.New(t.Context(), pgtest.New(t)).Community(t, "open")

	lock, err := pgtest.New(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), `LOCK TABLE ingest.events IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	_, err = collect(c.Query(t.Context(), queryFor(community, principal(), nostr.Filter{})))
	require.Equal(t, fault.Timeout, fault.ReasonOf(err))
	require.Equal(t, "query timed out", fault.Message(err))
	_, err = c.Count(t.Context(), countFor(community, principal(), nostr.Filter{}, nostr.Filter{}))
	require.Equal(t, fault.Timeout, fault.ReasonOf(err))
	require.NoError(t, lock.Rollback(t.Context()))

	require.Empty(t, read(t, c, queryFor(community, principal(), nostr.Filter{})))
	require.Equal(t, int64(1), pool.Stat().NewConnsCount(), "a timeout leaves the connection usable")
}

// Ingest makes partitions while queries are read: of a query and a change of the schema that wait for each other Postgres
// ends one, and that the client need not know.
func TestADeadlockIsTriedAgain(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	community, admin := db.Community(t, "open"), pgtest.New(t)
	change, err := admin.Begin(t.Context())
	require.NoError(t, err)
	defer change.Rollback(t.Context()) // done already unless the test failed
	_, err = change.Exec(t.Context(), `SET LOCAL deadlock_timeout = '1min'; LOCK TABLE ingest.events IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() {
		_, err := collect(c.Query(t.Context(), queryFor(community, principal(), nostr.Filter{})))
		answered <- err
	}()
	require.Eventually(t, func() bool { // Postgres tells nobody when somebody waits
		var waits bool
		err := admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND NOT l.granted)`).Scan(&waits)
		return err == nil && waits
	}, 20*time.Second, 5*time.Millisecond)
	_, err = change.Exec(t.Context(), `LOCK TABLE ingest.communities IN ACCESS EXCLUSIVE MODE`) // once the query has lost
	require.NoError(t, err)
	require.NoError(t, change.Rollback(t.Context()))
	require.NoError(t, <-answered)
}

func TestRequestsBeyondThePlacesAreRefused(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxRequests = 2
	s, db := newService(t, cfg)
	db.Host(t, db.Community(t, "open"), "relay.example")
	c := serve(t, s)
	for _, tt := range []struct {
		places  *semaphore.Weighted
		refused []string
	}{
		{s.places, []string{callQuery, callCount}},
		{s.questions, []string{callAccess}},
		{s.hosts, []string{callResolve}},
	} {
		require.True(t, tt.places.TryAcquire(2))
		for call, err := range everyCall(t, c) {
			want := fault.Accepted
			if slices.Contains(tt.refused, call) {
				want = fault.Overloaded
			}
			require.Equal(t, want, fault.ReasonOf(err), call)
		}
		tt.places.Release(2)
	}
}

// Queries that wait for Postgres leave connections for the questions that live delivery waits for.
func TestSlowQueriesLeaveRoom(t *testing.T) {
	cfg := DefaultConfig()
	cfg.AcquireTimeout = 100 * time.Millisecond
	s, db := newService(t, cfg)
	db.Host(t, db.Community(t, "open"), "relay.example")
	c := serve(t, s)
	var open []*pgxpool.Conn // to find a connection is not to wait until it is made
	for range s.db.Config().MaxConns {
		conn, err := s.db.Acquire(t.Context())
		require.NoError(t, err)
		open = append(open, conn)
	}
	for _, conn := range open {
		conn.Release()
	}
	lock, err := pgtest.New(t).Begin(t.Context())
	require.NoError(t, err)
	defer lock.Rollback(t.Context()) // mostly done already; the queries do not wait for ever if not
	_, err = lock.Exec(t.Context(), `LOCK TABLE ingest.events IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)

	slow := int(s.db.Config().MaxConns)
	answered := make(chan error, slow)
	for range slow {
		go func() {
			_, err := collect(c.Query(t.Context(), queryFor(1, principal(), nostr.Filter{})))
			answered <- err
		}()
	}
	for range 2 { // that many find no connection
		require.Equal(t, fault.Overloaded, fault.ReasonOf(<-answered))
	}
	errs := everyCall(t, c)
	require.Equal(t, fault.Overloaded, fault.ReasonOf(errs[callCount]))
	require.NoError(t, errs[callAccess])
	require.NoError(t, errs[callResolve])

	require.NoError(t, lock.Rollback(t.Context()))
	for range slow - 2 {
		require.NoError(t, <-answered)
	}
}

func TestDrainWaitsForRequests(t *testing.T) {
	s, _ := newService(t, DefaultConfig())
	end, err := s.admit(t.Context(), callQuery)
	require.NoError(t, err)
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	require.Eventually(t, func() bool { // until Drain waits: from then on nobody is admitted
		other, err := s.admit(t.Context(), callQuery)
		if err == nil {
			other(nil)
		}
		return err != nil
	}, 10*time.Second, time.Millisecond)
	select {
	case <-drained:
		require.Fail(t, "drained with a request in hand")
	default:
	}
	end(nil)
	require.NoError(t, <-drained)
}

// The service's role can neither write what it reads nor read what it need not.
func TestRoleCannotWrite(t *testing.T) {
	db := fixture.New(t.Context(), pgtest.New(t))
	community := db.Community(t, "open")
	db.Insert(t, community, nostrtest.Event(t, "alice"))
	pool := pgtest.NewAs(t, Role)
	for _, sql := range []string{
		`INSERT INTO ingest.communities (name) VALUES ('x')`,
		`UPDATE ingest.events SET kind = 1`,
		`DELETE FROM ingest.event_tags`,
		`TRUNCATE ingest.channel_members`,
		`SELECT * FROM ingest.outbox`,
		`SELECT ingest.ensure_event_partitions(now(), 1)`,
		`CREATE TABLE ingest.x ()`,
	} {
		_, err := pool.Exec(t.Context(), sql)
		require.True(t, postgres.IsDenied(err), "%s: %v", sql, err)
	}
}
