package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apiary-relay/apiary/pkg/postgres"
)

// Statements of the upkeep.
const (
	sqlNow = `SELECT clock_timestamp()`

	sqlEnsurePartitions = `SELECT ingest.ensure_event_partitions($1, $2)`

	// By events_expiry, of every partition.
	sqlExpiredCommunities = `
SELECT DISTINCT community_id
FROM (SELECT community_id FROM ingest.events WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2) AS expired`

	// By events_expiry, of every partition.
	sqlExpired = `
SELECT 1::bigint, community_id, raw FROM ingest.events
WHERE expires_at <= $1 AND community_id = $2
ORDER BY expires_at LIMIT $3`
)

// Now returns the time by the database's clock, by which all replicas find the same things due.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	if err := s.pool.QueryRow(ctx, sqlNow).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return now, nil
}

// EnsurePartitions makes the monthly partitions from the month of from on, and returns how many tables it
// made. It may run on several replicas at once.
func (s *Store) EnsurePartitions(ctx context.Context, from time.Time, months int) (int, error) {
	var made int
	if err := s.pool.QueryRow(ctx, sqlEnsurePartitions, from, months).Scan(&made); err != nil {
		return 0, fmt.Errorf("ensure event partitions: %w", err)
	}
	return made, nil
}

// UnsafeSettings returns the settings with which the server may lose what it has committed.
func (s *Store) UnsafeSettings(ctx context.Context) ([]string, error) {
	return postgres.UnsafeSettings(ctx, s.pool)
}

// SweepExpired removes up to limit events of each of some communities that have expired by now (NIP-40),
// and returns how many it removed; when that is 0 there are no more. It holds the communities exclusively,
// one after the other and briefly: an address must not be taken away while a batch decides who wins it.
func (s *Store) SweepExpired(ctx context.Context, now time.Time, limit int) (int, error) {
	rows, err := s.pool.Query(ctx, sqlExpiredCommunities, now.Unix(), limit)
	if err != nil {
		return 0, fmt.Errorf("find expired events: %w", err)
	}
	communities, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("find expired events: %w", err)
	}
	removed := 0
	for _, community := range communities {
		n, err := s.sweepCommunity(ctx, community, now, limit)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (s *Store) sweepCommunity(ctx context.Context, community int64, now time.Time, limit int) (int, error) {
	locks := lockSet{}
	locks.exclusive(communityLock(community))
	removed := 0
	err := s.inTx(ctx, locks, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, sqlExpired, now.Unix(), community, limit)
		if err != nil {
			return err
		}
		var expired []stored
		if err := collectStored(func(_ int, st stored) { expired = append(expired, st) })(rows); err != nil {
			return err
		}
		removed = len(expired)
		b := &pgx.Batch{}
		queueErase(b, expired, true)
		return conn.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return 0, fmt.Errorf("remove expired events: %w", err)
	}
	return removed, nil
}
