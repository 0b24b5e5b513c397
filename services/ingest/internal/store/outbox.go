package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
)

// Statements of the outbox.
const (
	// By outbox_pkey. Rows that another replica's sweep holds are skipped.
	sqlOldRows = `
SELECT id, created_at, payload FROM ingest.outbox
WHERE id > $1 AND created_at < now() - make_interval(secs => $2)
ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED`

	// By outbox_pkey.
	sqlDeleteRows = `DELETE FROM ingest.outbox WHERE id = ANY($1::bigint[])`

	// By outbox_pkey; bounded, since a long outage leaves many rows.
	sqlOutboxState = `
SELECT count(*), coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8
FROM (SELECT created_at FROM ingest.outbox ORDER BY id LIMIT 10000) AS oldest`
)

// DeleteRows removes rows that JetStream has acknowledged. The commit does not wait for the disk: a row
// that comes back after a crash is published again under the same message id.
func (s *Store) DeleteRows(ctx context.Context, ids []int64) error {
	err := s.retry(ctx, func(conn *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(sqlBegin)
		b.Queue(sqlNoWait)
		b.Queue(sqlDeleteRows, ids)
		b.Queue(sqlCommit)
		return conn.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return fmt.Errorf("delete %d outbox rows: %w", len(ids), err)
	}
	return nil
}

// SweepOutbox gives publish up to limit rows older than age whose ids are greater than after, by id, deletes those
// whose ids it returns, and returns how many rows it found. The rows are locked meanwhile, so that no other replica publishes them too;
// publish must be done well before the pool's idle-in-transaction timeout.
func (s *Store) SweepOutbox(ctx context.Context, age time.Duration, after int64, limit int, publish func([]*Row) []int64) (int, error) {
	found := 0
	err := s.withConn(ctx, func(conn *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(sqlBegin)
		b.Queue(sqlNoWait)
		var list []*Row
		b.Queue(sqlOldRows, after, age.Seconds(), limit).Query(func(rows pgx.Rows) error {
			var err error
			list, err = pgx.CollectRows(rows, scanRow)
			return err
		})
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		found = len(list)
		if found == 0 {
			return nil
		}
		published := publish(list)
		if len(published) == 0 {
			return nil
		}
		end := &pgx.Batch{}
		end.Queue(sqlDeleteRows, published)
		end.Queue(sqlCommit)
		return conn.SendBatch(ctx, end).Close()
	})
	if err != nil {
		return found, fmt.Errorf("sweep outbox: %w", err)
	}
	return found, nil
}

func scanRow(r pgx.CollectableRow) (*Row, error) {
	row, payload := &Row{}, []byte(nil)
	if err := r.Scan(&row.ID, &row.CreatedAt, &payload); err != nil {
		return nil, err
	}
	var p busv1.OutboxPayload
	if err := proto.Unmarshal(payload, &p); err != nil {
		row.Err = fmt.Errorf("decode payload: %w", err)
		return row, nil // the rows behind it are not to suffer
	}
	row.Partitions = p.GetPartitions()
	return row, nil
}

// OutboxState says how many rows wait in the outbox, counting at most 10,000, and the age of the oldest.
func (s *Store) OutboxState(ctx context.Context) (rows int64, oldest time.Duration, err error) {
	var seconds float64
	if err := s.pool.QueryRow(ctx, sqlOutboxState).Scan(&rows, &seconds); err != nil {
		return 0, 0, fmt.Errorf("read outbox state: %w", err)
	}
	return rows, time.Duration(seconds * float64(time.Second)), nil
}
