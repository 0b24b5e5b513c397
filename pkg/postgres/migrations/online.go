package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
)

// index is one of a table of schema ingest that may be large, and is built while others write to it. Postgres builds none of a
// partitioned table that way: its own is made first, which costs nothing and has every partition get its part that is made from then on;
// then those of the partitions are built one by one, and given to it. It is good when all of them are. Whatever ends that in between, the
// next run goes on where it was: an index that is not valid is half built, and is built anew. What is there already, however it was
// made, is left as it is.
type index struct {
	name, table string
	// on is what CREATE INDEX says behind the table.
	on string
}

// online is a migration that builds indexes, in no transaction.
func online(version int64, indexes ...index) *goose.Migration {
	return goose.NewGoMigration(version, each(indexes, index.build), each(indexes, index.drop))
}

// each does something for every index, on one connection.
func each(indexes []index, do func(index, context.Context, *sql.Conn) error) *goose.GoFunc {
	return &goose.GoFunc{RunDB: func(ctx context.Context, db *sql.DB) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // it goes back to its pool
		// To build may take hours, and to wait for others first; nobody waits for that.
		if _, err := conn.ExecContext(ctx, "SET statement_timeout = 0; SET lock_timeout = 0"); err != nil {
			return err
		}
		for _, one := range indexes {
			if err := do(one, ctx, conn); err != nil {
				return fmt.Errorf("index %s: %w", one.name, err)
			}
		}
		_, err = conn.ExecContext(ctx, "RESET statement_timeout; RESET lock_timeout")
		return err
	}}
}

func inIngest(name string) pgx.Identifier { return pgx.Identifier{"ingest", name} }

func (i index) build(ctx context.Context, conn *sql.Conn) error {
	table, name := inIngest(i.table), inIngest(i.name)
	var partitioned bool
	const kind = "SELECT relkind = 'p' FROM pg_catalog.pg_class WHERE oid = to_regclass($1)"
	if err := conn.QueryRowContext(ctx, kind, table.Sanitize()).Scan(&partitioned); err != nil {
		return fmt.Errorf("look at its table: %w", err)
	}
	if !partitioned {
		return i.concurrently(ctx, conn, table, name)
	}
	exists, valid, err := state(ctx, conn, name)
	if err != nil || valid {
		return err
	}
	if !exists {
		if err := briefly(ctx, conn, fmt.Sprintf("CREATE INDEX %s ON ONLY %s %s", quoted(i.name), table.Sanitize(), i.on)); err != nil {
			return fmt.Errorf("create: %w", err)
		}
	}
	without, err := partitionsWithout(ctx, conn, table, name)
	if err != nil {
		return err
	}
	for _, partition := range without {
		part := pgx.Identifier{partition[0], partition[1] + strings.TrimPrefix(i.name, i.table)}
		if err := i.concurrently(ctx, conn, partition, part); err != nil {
			return fmt.Errorf("%s: %w", partition[1], err)
		}
		if err := briefly(ctx, conn, fmt.Sprintf("ALTER INDEX %s ATTACH PARTITION %s", name.Sanitize(), part.Sanitize())); err != nil {
			return fmt.Errorf("attach that of %s: %w", partition[1], err)
		}
	}
	if _, valid, err = state(ctx, conn, name); err == nil && !valid {
		err = errors.New("it is not valid, although every partition has its part")
	}
	return err
}

// concurrently builds an index of one table that is not partitioned, unless it is there.
func (i index) concurrently(ctx context.Context, conn *sql.Conn, table, name pgx.Identifier) error {
	exists, valid, err := state(ctx, conn, name)
	if err != nil || valid {
		return err
	}
	if exists {
		if _, err := conn.ExecContext(ctx, "DROP INDEX CONCURRENTLY "+name.Sanitize()); err != nil {
			return fmt.Errorf("drop what is half built: %w", err)
		}
	}
	create := fmt.Sprintf("CREATE INDEX CONCURRENTLY %s ON %s %s", quoted(name[1]), table.Sanitize(), i.on)
	if _, err := conn.ExecContext(ctx, create); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return nil
}

// state reports whether there is an index, and whether it is complete.
func state(ctx context.Context, conn *sql.Conn, name pgx.Identifier) (exists, valid bool, err error) {
	const ask = "SELECT indisvalid FROM pg_catalog.pg_index WHERE indexrelid = to_regclass($1)"
	switch err := conn.QueryRowContext(ctx, ask, name.Sanitize()).Scan(&valid); {
	case errors.Is(err, sql.ErrNoRows):
		return false, false, nil
	case err != nil:
		return false, false, fmt.Errorf("look for %s: %w", name[1], err)
	}
	return true, valid, nil
}

// partitionsWithout lists the partitions of a table that have no part of an index of it yet.
func partitionsWithout(ctx context.Context, conn *sql.Conn, table, name pgx.Identifier) (list []pgx.Identifier, err error) {
	rows, err := conn.QueryContext(ctx, `
SELECT n.nspname, c.relname FROM pg_catalog.pg_inherits p
JOIN pg_catalog.pg_class c ON c.oid = p.inhrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.inhparent = to_regclass($1) AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_index x JOIN pg_catalog.pg_inherits a ON a.inhrelid = x.indexrelid
    WHERE x.indrelid = c.oid AND a.inhparent = to_regclass($2))
ORDER BY c.relname`, table.Sanitize(), name.Sanitize())
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err tells
	for rows.Next() {
		one := make(pgx.Identifier, 2)
		if err := rows.Scan(&one[0], &one[1]); err != nil {
			return nil, fmt.Errorf("list partitions: %w", err)
		}
		list = append(list, one)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	return list, nil
}

// drop takes no time but needs a lock before which everybody waits.
func (i index) drop(ctx context.Context, conn *sql.Conn) error {
	return briefly(ctx, conn, "DROP INDEX IF EXISTS "+inIngest(i.name).Sanitize())
}

// Bounds of a lock before which others wait: for how long one statement may hold them up, how long they are let pass then, and
// how often it is tried.
const (
	lockWait  = 500 * time.Millisecond
	lockPause = 500 * time.Millisecond
	lockTries = 120
	// notLocked is the SQLSTATE lock_not_available.
	notLocked = "55P03"
)

// briefly runs a statement that is done at once when it has its lock, but may wait for transactions that are open, and then has all
// others wait behind it. It gives up soon, lets them pass and tries again.
func briefly(ctx context.Context, conn *sql.Conn, statement string) error {
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET lock_timeout = %d", lockWait.Milliseconds())); err != nil {
		return err
	}
	for try := 1; ; try++ {
		_, err := conn.ExecContext(ctx, statement)
		if err == nil {
			_, err = conn.ExecContext(ctx, "SET lock_timeout = 0")
			return err
		}
		var said *pgconn.PgError
		if try == lockTries || !errors.As(err, &said) || said.Code != notLocked {
			return err
		}
		timer := time.NewTimer(lockPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }
