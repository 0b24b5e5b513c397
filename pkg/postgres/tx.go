package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// Beginner starts transactions; *pgxpool.Pool and *pgx.Conn do.
type Beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

const (
	txAttempts  = 5
	txFirstWait = 5 * time.Millisecond
)

// InTx runs fn in a transaction and commits it. When Postgres aborts the transaction for a serialisation
// failure or a deadlock it runs again from the start, up to five times with growing, jittered waits; so
// fn must be repeatable and do nothing but SQL. An error of fn rolls back and is returned as it is.
//
// When the connection breaks during the commit, the error says so and the outcome is unknown: callers
// are idempotent or ask.
func InTx(ctx context.Context, db Beginner, opts pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	wait := txFirstWait
	for attempt := 1; ; attempt++ {
		err := inTxOnce(ctx, db, opts, fn)
		if err == nil || !IsRetryable(err) || attempt == txAttempts {
			return err
		}
		timer := time.NewTimer(wait/2 + rand.N(wait)) //nolint:gosec // jitter needs no secrecy
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("retry transaction: %w", context.Cause(ctx))
		}
		wait *= 3
	}
}

func inTxOnce(ctx context.Context, db Beginner, opts pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	// A rollback after a commit does nothing. ctx may have ended already, and the connection has to be
	// clean before it goes back to the pool; pgx bounds this by closing the connection on failure.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(ctx) // pgx has closed the connection if this fails
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	return nil
}
