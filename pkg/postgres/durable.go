package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// pinCommits keeps synchronous_commit as the session got it from the server, the database or the URL, so that a later
// reload of the server's configuration changes nothing, but raises "off" to "on", Postgres's own default. Every
// other value flushes the commit to the server's disk before it is answered (local, remote_write), and on that of the
// synchronous standbys if there are any (on), or lets them apply it (remote_apply): how much more than one disk a
// commit waits for is the operator's choice.
const pinCommits = `SELECT set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)`

// waitForDisk returns what makes the commits of a new connection wait for the disk. A transaction that need not
// wait says so with SET LOCAL.
func waitForDisk(timeout time.Duration) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if _, err := conn.PgConn().Exec(ctx, pinCommits).ReadAll(); err != nil {
			return fmt.Errorf("make commits wait for the disk: %w", err)
		}
		return nil
	}
}

// UnsafeSettings returns the server's settings with which it may lose, when the machine or its power fails,
// transactions that it has answered, whatever a session asks for: fsync and full_page_writes, if they are off.
func UnsafeSettings(ctx context.Context, q Querier) ([]string, error) {
	var names []string
	err := q.QueryRow(ctx, `
SELECT coalesce(array_agg(name ORDER BY name), '{}') FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'`).Scan(&names)
	if err != nil {
		return nil, fmt.Errorf("read the server's settings: %w", err)
	}
	return names, nil
}
