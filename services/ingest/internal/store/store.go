package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/apiary-relay/apiary/pkg/limit"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Transaction control, sent in the same round trip as what follows or precedes.
const (
	sqlBegin     = `BEGIN ISOLATION LEVEL READ COMMITTED`
	sqlBeginRead = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
	sqlCommit    = `COMMIT`
	sqlRollback  = `ROLLBACK`

	// sqlNoWait makes this transaction's commit not wait for the disk. Only for what may be lost.
	sqlNoWait = `SET LOCAL synchronous_commit = off`
)

// Store runs ingest's statements.
type Store struct {
	pool       *pgxpool.Pool
	partitions uint32
	changes    *limit.Budget // connections of changes that are no batches
	eraseBytes int64         // what one deletion may cover
	most       func() int    // bytes of a message, nil for any number
	maxOwned   int           // communities of an owner, 0 for any number
	counts     counts
	key        *nostr.SecretKey
	publish    func(ctx context.Context, row *Row)
	revoked    func(ctx context.Context, r Revocation)
	joins      *policy.JoinPolicy
}

// changesPart is the part of the pool's connections that changes may use which are no batches.
const changesPart = 4

// maxEraseBytes is how many bytes of events one deletion request may cover by id, and as many by address. They
// are read to find out what belongs to them, while the community waits.
const maxEraseBytes = 64 << 20

// Option changes how a store works.
type Option func(*Store)

// WithKey has the relay sign with a key what follows from changes. Without one nothing is signed, and commands that
// need it are refused.
func WithKey(key *nostr.SecretKey) Option { return func(s *Store) { s.key = key } }

// WithPublish has publish told of the outbox rows of changes that are no batches. It must not block. Without it they
// are left to the sweeper.
func WithPublish(publish func(ctx context.Context, row *Row)) Option {
	return func(s *Store) { s.publish = publish }
}

// WithRevoked has revoked told of every access that was taken, after the commit. It must not block. Without it nobody
// is told, and gateways find out by themselves.
func WithRevoked(revoked func(ctx context.Context, r Revocation)) Option {
	return func(s *Store) { s.revoked = revoked }
}

// WithJoinPolicy has whoever joins with an invite accept a policy first; nil is none.
func WithJoinPolicy(p *policy.JoinPolicy) Option { return func(s *Store) { s.joins = p } }

// WithMaxOwned bounds how many communities a key can own; 0 is any number. What it owns already stays.
func WithMaxOwned(most int) Option { return func(s *Store) { s.maxOwned = most } }

// WithMessageBytes has each transaction ask how many bytes one message to be published may have, and fail with a
// RefusedError instead of committing a larger one.
func WithMessageBytes(most func() int) Option {
	return func(s *Store) { s.most = most }
}

// tell tells of what was revoked by a transaction that has committed.
func (s *Store) tell(ctx context.Context, revoked []Revocation) {
	if s.revoked == nil {
		return
	}
	for _, r := range revoked {
		s.revoked(ctx, r)
	}
}

// New returns a store on the pool, whose role must be apiary_ingest (or own the schema). partitions is the
// cluster's number of partitions.
func New(pool *pgxpool.Pool, partitions uint32, opts ...Option) *Store {
	s := &Store{
		pool: pool, partitions: partitions, eraseBytes: maxEraseBytes,
		changes: limit.NewBudget(max(int64(pool.Config().MaxConns)/changesPart, 1)),
	}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// errMoved says that a row went away between two statements that relied on it.
var errMoved = errors.New("row changed during the transaction")

// IsTransient reports whether the same transaction may succeed later.
func IsTransient(err error) bool {
	return postgres.IsRetryable(err) || postgres.IsUnavailable(err) || postgres.IsTimeout(err) ||
		errors.Is(err, errMoved) || errors.Is(err, context.Canceled)
}

// Retries inside one call. They are short: a caller that waits holds up everybody behind it.
const (
	conflictAttempts = 5
	firstWait        = 2 * time.Millisecond
	rollbackTimeout  = time.Second
)

// retry runs fn again when it lost against another transaction, and once when the connection it was given
// turned out to be dead: on a new one, since whatever ended that one may have ended all that are in the pool. Both
// are safe, also when a commit's outcome is unknown: everything here is idempotent by key.
func (s *Store) retry(ctx context.Context, fn func(*pgx.Conn) error) error {
	wait, reconnected := firstWait, false
	for attempt := 1; ; attempt++ {
		err := s.withConn(ctx, fn)
		switch {
		case err == nil, ctx.Err() != nil, attempt == conflictAttempts:
			return err
		case postgres.IsRetryable(err), errors.Is(err, errMoved):
		case postgres.IsUnavailable(err) && !reconnected:
			reconnected = true
			s.pool.Reset()
		default:
			return err
		}
		timer := time.NewTimer(wait/2 + rand.N(wait)) //nolint:gosec // jitter needs no secrecy
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("retry transaction: %w", err)
		}
		wait *= 3
	}
}

// withConn lends fn a connection and leaves it without a transaction. It exists because pgx's own
// transactions cost two round trips more than a batch that begins and commits in passing.
func (s *Store) withConn(ctx context.Context, fn func(*pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	err = fn(conn.Conn())
	if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
		// ctx may have ended; the pool throws the connection away if this fails.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		if _, rollbackErr := conn.Exec(ctx, sqlRollback); rollbackErr != nil {
			return errors.Join(err, fmt.Errorf("roll back: %w", rollbackErr))
		}
	}
	return err
}

// inTx runs fn between BEGIN and COMMIT, holding locks from before fn's first statement.
func (s *Store) inTx(ctx context.Context, locks lockSet, fn func(*pgx.Conn) error) error {
	return s.retry(ctx, func(conn *pgx.Conn) error {
		begin := &pgx.Batch{}
		begin.Queue(sqlBegin)
		locks.queue(begin)
		if err := conn.SendBatch(ctx, begin).Close(); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if err := fn(conn); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, sqlCommit); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		return nil
	})
}
