package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/postgres"
)

// attempts is how often a read is tried when its connection turns out to be broken, since the pool may hold
// connections of a server that was restarted, or when Postgres ends it because it and a change of the schema wait for each
// other. Reading again is harmless.
const attempts = 3

// Store reads from one pool.
type Store struct {
	pool *pgxpool.Pool
	// wait bounds the time to get a connection, work the time that one read may take after that.
	wait, work time.Duration
	// bulk is what queries and counts may take of the pool. The rest is for the short questions, which live
	// delivery waits for: slow queries must not stand in their way.
	bulk *semaphore.Weighted
}

// spare is how many connections queries and counts leave free, if the pool has as many as spareFrom.
const (
	spare     = 2
	spareFrom = 4
)

// New returns a store on a pool whose role may read. wait bounds the time to get a connection (an open
// one, or a new one), work the time that one read may take then.
func New(pool *pgxpool.Pool, wait, work time.Duration) *Store {
	most := int64(pool.Config().MaxConns)
	if most >= spareFrom {
		most -= spare
	}
	return &Store{pool: pool, wait: wait, work: work, bulk: semaphore.NewWeighted(most)}
}

// session is what a connection is asked once.
type session struct {
	databaseID uint64
}

// sessionKey is the connection's place for its session.
const sessionKey = "apiary.search.session"

// prepareSession makes Postgres execute package plan's statements as they are written. Every statement is
// planned once per connection; nested loops over indexes are the only good plan, and what statistics say
// about a partition that began to fill a minute ago is not asked. One read takes one core and no JIT.
const prepareSession = `SELECT system_identifier,
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false),
    set_config('enable_bitmapscan', 'off', false),
    set_config('enable_hashjoin', 'off', false),
    set_config('enable_mergejoin', 'off', false),
    set_config('enable_memoize', 'off', false),
    set_config('enable_incremental_sort', 'off', false),
    set_config('max_parallel_workers_per_gather', '0', false),
    set_config('jit', 'off', false)
FROM pg_catalog.pg_control_system()`

// sessionOf returns the connection's session, preparing it if the connection is new.
func sessionOf(ctx context.Context, conn *pgx.Conn) (session, error) {
	data := conn.PgConn().CustomData()
	if s, ok := data[sessionKey].(session); ok {
		return s, nil
	}
	rows, err := conn.Query(ctx, prepareSession, pgx.QueryExecModeExec)
	if err != nil {
		return session{}, fmt.Errorf("prepare session: %w", err)
	}
	id, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (int64, error) {
		var id int64
		return id, row.Scan(&id, nil, nil, nil, nil, nil, nil, nil, nil, nil)
	})
	if err != nil {
		return session{}, fmt.Errorf("prepare session: %w", err)
	}
	s := session{databaseID: uint64(id)}
	data[sessionKey] = s
	return s, nil
}

// read runs fn on a connection, again if that turns out to be broken or others were in the way; fn must be
// repeatable. The error is a fault that may be sent to clients.
func (s *Store) read(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn, session session) error) error {
	var err error
	for attempt := 1; ; attempt++ {
		var got bool
		got, err = s.readOnce(ctx, fn)
		// Without a connection the server is away. A statement that timed out broke nothing; a caller that
		// left wants no other try.
		broken := postgres.IsUnavailable(err)
		again := broken || postgres.IsRetryable(err)
		if err == nil || !got || attempt == attempts || ctx.Err() != nil || postgres.IsTimeout(err) || !again {
			break
		}
		if broken && attempt == attempts-1 {
			s.pool.Reset() // two in a row: the last try gets a new connection
		}
	}
	if err != nil {
		return failure(ctx, err)
	}
	return nil
}

// errNoConnection is the cause when there was no connection in time.
var errNoConnection = errors.New("no database connection in time")

// readBulk is read for queries and counts.
func (s *Store) readBulk(ctx context.Context, fn func(context.Context, *pgx.Conn, session) error) error {
	waiting, cancel := context.WithTimeoutCause(ctx, s.wait, errNoConnection)
	defer cancel()
	if err := s.bulk.Acquire(waiting, 1); err != nil {
		return failure(ctx, fmt.Errorf("wait for other queries: %w", context.Cause(waiting)))
	}
	defer s.bulk.Release(1)
	return s.read(ctx, fn)
}

// readOnce reports besides whether it got a connection.
func (s *Store) readOnce(ctx context.Context, fn func(context.Context, *pgx.Conn, session) error) (got bool, err error) {
	waiting, cancel := context.WithTimeoutCause(ctx, s.wait, errNoConnection)
	defer cancel()
	conn, err := s.pool.Acquire(waiting)
	if err != nil {
		if errors.Is(context.Cause(waiting), errNoConnection) {
			return false, fmt.Errorf("%w: %w", errNoConnection, err)
		}
		return false, fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()

	// The caller's deadline holds, its cancellation does not (see the package comment).
	end := time.Now().Add(s.work)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	work, stop := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer stop()
	session, err := sessionOf(work, conn.Conn())
	if err != nil {
		return true, err
	}
	if err := fn(work, conn.Conn(), session); err != nil {
		recoverConn(work, conn.Conn())
		return true, err
	}
	return true, nil
}

// recoverConn ends a transaction that failed, so that the connection can be used again; the pool closes a
// connection that is still inside one.
func recoverConn(ctx context.Context, conn *pgx.Conn) {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "ROLLBACK") // if this fails too, the pool closes the connection
	}
}

// failure gives err its reason. Nothing that Postgres says reaches a client.
func failure(ctx context.Context, err error) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, errNoConnection):
		return fault.Wrap(fault.Overloaded, "", err)
	case errors.Is(ctx.Err(), context.Canceled):
		return fault.Wrap(fault.Cancelled, "", err)
	case postgres.IsTimeout(err):
		return fault.Wrap(fault.Timeout, "query timed out", err)
	case postgres.IsUnavailable(err), postgres.IsRetryable(err):
		return fault.Wrap(fault.Overloaded, "", err)
	default:
		return err // the server's interceptor makes it internal, with a reference to the log
	}
}
