package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
)

// claimName begins the application_name of a session that holds a claim; the process follows.
const claimName = "apiary serve "

// claimKey is the advisory lock of the all-in-one on a database, "serve" in ASCII.
const claimKey = 0x7365727665

const (
	// claimPatience is how long a start waits for the claim, so that a restart after a crash does not meet what is
	// left of the session before.
	claimPatience = 3 * time.Second
	// claimPause lies between two tries to get the claim.
	claimPause = 200 * time.Millisecond
	// claimCheck is how often a quiet session is asked whether it is still there; one that the server ends is
	// noticed at once.
	claimCheck = 2 * time.Second
	// claimAnswer bounds every statement and every connect.
	claimAnswer = 5 * time.Second
)

// claimedError says that another process has the database.
type claimedError struct {
	// by names the holder as far as this user may know, such as "process 17 on hive"; since is when it came.
	by      string
	session session // the holder's
}

// session is one in Postgres: process ids are used again.
type session struct {
	pid   int32
	since time.Time // zero if this user may not know
}

func (e *claimedError) Error() string {
	holder := "another apiary serve"
	if e.by != "" {
		holder += fmt.Sprintf(" (%s, since %s)", e.by, e.session.since.UTC().Format(time.RFC3339))
	}
	return holder + " uses this database: each has a NATS of its own inside, so clients of one would not hear what is " +
		"published through the other. Stop that one, give this one another database (DATABASE_URL), " +
		"or run the services apart, as a cluster with one NATS"
}

// claim keeps other all-in-ones off a database: a session of its own in Postgres that holds an advisory lock.
// The goroutine that runs watch owns it; before and after that, whoever has taken it.
type claim struct {
	url  config.Secret
	log  *slog.Logger
	conn *pgx.Conn
	// session is the one of conn, which has the lock or had it last.
	session session
}

// takeClaim claims the database at url; a *claimedError says who has it.
func takeClaim(ctx context.Context, url config.Secret, log *slog.Logger) (*claim, error) {
	c := &claim{url: url, log: log}
	for deadline := time.Now().Add(claimPatience); ; {
		err := c.try(ctx)
		var claimed *claimedError
		if err == nil {
			return c, nil
		}
		if !errors.As(err, &claimed) || time.Now().After(deadline) || !lifecycle.Pause(ctx, claimPause) {
			return nil, err
		}
	}
}

// try opens a session and claims the database with it.
func (c *claim) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimAnswer)
	defer cancel()
	cfg, err := pgx.ParseConfig(c.url.Reveal())
	if err != nil {
		return fmt.Errorf("parse postgres url: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unnamed host"
	}
	cfg.RuntimeParams["application_name"] = fmt.Sprintf("%s%d on %.40s", claimName, os.Getpid(), host)
	cfg.RuntimeParams["idle_session_timeout"] = "0"
	// Should this machine vanish, the server lets the claim go within half a minute.
	cfg.RuntimeParams["tcp_keepalives_idle"] = "10"
	cfg.RuntimeParams["tcp_keepalives_interval"] = "5"
	cfg.RuntimeParams["tcp_keepalives_count"] = "3"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("reach postgres: %w", err)
	}
	own, err := lock(ctx, conn)
	if err != nil {
		return errors.Join(err, closeSession(ctx, conn))
	}
	c.conn, c.session = conn, own
	return nil
}

// The holder of the lock, by the way in which pg_locks shows an advisory lock of 64 bits. What another user's session
// is called is hidden from users without rights.
const sqlHolder = `SELECT l.pid, coalesce(a.application_name, ''), coalesce(a.backend_start, 'epoch')
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
	AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
	AND l.classid::bigint = $1::bigint >> 32 AND l.objid::bigint = $1::bigint & 4294967295`

// lock takes the advisory lock, or says in a *claimedError who has it.
func lock(ctx context.Context, conn *pgx.Conn) (own session, err error) {
	var taken bool
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(claimKey)).Scan(&taken); err != nil {
		return own, fmt.Errorf("claim the database: %w", err)
	}
	var holder session
	var name string
	err = conn.QueryRow(ctx, sqlHolder, int64(claimKey)).Scan(&holder.pid, &name, &holder.since)
	if err != nil && (taken || !errors.Is(err, pgx.ErrNoRows)) { // without a row the holder has left meanwhile
		return own, fmt.Errorf("find who has claimed the database: %w", err)
	}
	if taken {
		return holder, nil
	}
	by, named := strings.CutPrefix(name, claimName)
	if named {
		by = "process " + by
	}
	return own, &claimedError{by: by, session: holder}
}

// watch keeps the claim until ctx is done: should the session end, it gets another one. It fails with a
// *claimedError when somebody else has claimed the database meanwhile. While Postgres cannot be reached nobody can,
// and this goes on.
func (c *claim) watch(ctx context.Context) error {
	for {
		err := c.wait(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // being asked to stop is no failure
		}
		c.log.LogAttrs(ctx, slog.LevelWarn, "claim on the database lost, trying to get it again", slog.Any("error", err))
		if err := c.again(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		c.log.LogAttrs(ctx, slog.LevelInfo, "database claimed again")
	}
}

// wait returns when the session has ended or ctx is done.
func (c *claim) wait(ctx context.Context) error {
	for ctx.Err() == nil {
		quiet, cancel := context.WithTimeout(ctx, claimCheck)
		_, err := c.conn.WaitForNotification(quiet) // there are none; it returns when the server hangs up
		cancel()
		if err != nil && c.conn.IsClosed() {
			return err
		}
		if err := c.ping(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *claim) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimAnswer)
	defer cancel()
	return c.conn.Ping(ctx)
}

// again gets another session with the lock. One of ours that the server still believes in is ended.
func (c *claim) again(ctx context.Context) error {
	for {
		_ = closeSession(ctx, c.conn) // broken anyway
		err := c.try(ctx)
		var claimed *claimedError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &claimed) && claimed.session.pid == 0: // it has left meanwhile
		case claimed != nil && claimed.session == c.session:
			err = c.terminate(ctx)
		case claimed != nil:
			return claimed
		}
		c.log.LogAttrs(ctx, slog.LevelDebug, "database not claimed yet", slog.Any("error", err))
		if !lifecycle.Pause(ctx, claimPause) {
			return nil
		}
	}
}

// terminate ends what the server still has of the session that was lost.
func (c *claim) terminate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, claimAnswer)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url.Reveal())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2`,
		c.session.pid, c.session.since)
	return errors.Join(err, closeSession(ctx, conn))
}

// close gives the claim back.
func (c *claim) close(ctx context.Context) error { return closeSession(ctx, c.conn) }

// closeSession says goodbye within the time of one answer, also when ctx is done.
func closeSession(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimAnswer)
	defer cancel()
	err := conn.Close(ctx)
	select {
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
	return err
}
