package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/search/internal/hll"
	"github.com/apiary-relay/apiary/services/search/internal/plan"
)

// Event is a stored event.
type Event struct {
	// CreatedAt and ID are its place in the order: created_at descending, id ascending.
	CreatedAt int64
	ID        nostr.ID
	// Raw is its JSON as it was submitted.
	Raw []byte
}

// Before reports whether e comes before other: newer, or as old with a lower id.
func (e *Event) Before(other *Event) bool {
	if e.CreatedAt != other.CreatedAt {
		return e.CreatedAt > other.CreatedAt
	}
	return bytes.Compare(e.ID[:], other.ID[:]) < 0
}

// Observer is told how long each statement took and how many rows it gave, in the order of the plans.
type Observer func(p *plan.Plan, took time.Duration, rows int)

// The statements around the plans. One batch is one round trip, and repeatable read is one snapshot, taken
// by the first statement.
const (
	begin        = `BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY`
	readSnapshot = `SELECT pg_catalog.pg_current_snapshot()::text, pg_catalog.pg_is_in_recovery(),
    (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint`
	commit = `COMMIT`
	// A search needs what no other plan may have: a GIN index can be read as a bitmap only.
	allowBitmaps  = `SET LOCAL enable_bitmapscan = on`
	forbidBitmaps = `SET LOCAL enable_bitmapscan = off`
)

var errStandby = errors.New("the database is a standby")

// Query runs plans (made by plan.Rows) in one snapshot and returns it with the answer of each, in order.
// On a replica it fails with Overloaded: its snapshot says nothing about what was published meanwhile,
// and a query that is joined with live delivery would have a gap.
func (s *Store) Query(ctx context.Context, plans []plan.Plan, observe Observer) (Snapshot, [][]Event, error) {
	var snap Snapshot
	var answers [][]Event
	err := s.inSnapshot(ctx, plans, func(taken Snapshot, standby bool) error {
		if standby {
			return fault.Wrap(fault.Overloaded, "", errStandby)
		}
		snap, answers = taken, make([][]Event, 0, len(plans))
		return nil
	}, func(p *plan.Plan, rows pgx.Rows) (int, error) {
		var events []Event
		for rows.Next() {
			var e Event
			var id []byte
			var raw pgtype.DriverBytes // the bytes of the read buffer, valid until the next row
			if err := rows.Scan(&e.CreatedAt, &id, &raw); err != nil {
				return 0, err
			}
			if copy(e.ID[:], id) != len(e.ID) || len(id) != len(e.ID) {
				return 0, fmt.Errorf("event id of %d bytes", len(id))
			}
			e.Raw = bytes.Clone(raw)
			events = append(events, e)
		}
		answers = append(answers, events)
		return len(events), rows.Err()
	}, observe)
	if err != nil {
		return Snapshot{}, nil, err
	}
	return snap, answers, nil
}

// Count returns how many distinct events plans match together, at most limit. The plans are made by
// plan.IDs with that limit; a single one may be made by plan.Count, and then counted is true.
func (s *Store) Count(ctx context.Context, plans []plan.Plan, counted bool, limit int, observe Observer) (int, error) {
	count := 0
	var seen map[nostr.ID]struct{}
	err := s.inSnapshot(ctx, plans, func(Snapshot, bool) error {
		count, seen = 0, make(map[nostr.ID]struct{})
		return nil
	}, func(p *plan.Plan, rows pgx.Rows) (int, error) {
		n := 0
		for ; rows.Next(); n++ {
			if counted {
				if err := rows.Scan(&count); err != nil {
					return 0, err
				}
				continue
			}
			var raw pgtype.DriverBytes
			if err := rows.Scan(&raw); err != nil {
				return 0, err
			}
			if len(seen) < limit {
				seen[nostr.ID(raw)] = struct{}{}
			}
		}
		return n, rows.Err()
	}, observe)
	if err != nil {
		return 0, err
	}
	if !counted {
		count = len(seen)
	}
	return min(count, limit), nil
}

// Estimate counts like Count for one plan made by plan.Authors, and returns besides the registers over the
// authors of what it counted (NIP-45), with the filter's offset.
func (s *Store) Estimate(ctx context.Context, p plan.Plan, offset int, observe Observer) (n int, registers hll.Registers, err error) {
	err = s.inSnapshot(ctx, []plan.Plan{p}, func(Snapshot, bool) error {
		n, registers = 0, hll.Registers{}
		return nil
	}, func(_ *plan.Plan, rows pgx.Rows) (int, error) {
		for ; rows.Next(); n++ {
			var raw pgtype.DriverBytes
			if err := rows.Scan(&raw); err != nil {
				return 0, err
			}
			if len(raw) != len(nostr.PubKey{}) {
				return 0, fmt.Errorf("public key of %d bytes", len(raw))
			}
			registers.Add(nostr.PubKey(raw), offset)
		}
		return n, rows.Err()
	}, observe)
	return n, registers, err
}

// inSnapshot sends everything at once. opened is called with the snapshot before the first answer, answer
// for each plan in order; both again from the start if the connection breaks.
func (s *Store) inSnapshot(
	ctx context.Context, plans []plan.Plan,
	opened func(taken Snapshot, standby bool) error,
	answer func(*plan.Plan, pgx.Rows) (int, error), observe Observer,
) error {
	return s.readBulk(ctx, func(ctx context.Context, conn *pgx.Conn, session session) error {
		var batch pgx.Batch
		batch.Queue(begin)
		batch.Queue(readSnapshot)
		for i := range plans {
			if searches(&plans[i]) {
				batch.Queue(allowBitmaps)
			}
			batch.Queue(plans[i].SQL, plans[i].Args...)
			if searches(&plans[i]) {
				batch.Queue(forbidBitmaps)
			}
		}
		batch.Queue(commit)
		results := conn.SendBatch(ctx, &batch)
		err := readResults(results, session, plans, opened, answer, observe)
		if closed := results.Close(); err == nil && closed != nil {
			err = fmt.Errorf("end snapshot: %w", closed)
		}
		return err
	})
}

func searches(p *plan.Plan) bool { return p.Shape.Driver == plan.DriverWords }

func readResults(
	results pgx.BatchResults, session session, plans []plan.Plan,
	opened func(Snapshot, bool) error, answer func(*plan.Plan, pgx.Rows) (int, error), observe Observer,
) error {
	if _, err := results.Exec(); err != nil {
		return fmt.Errorf("begin snapshot: %w", err)
	}
	var text string
	var standby bool
	var takenAt int64
	if err := results.QueryRow().Scan(&text, &standby, &takenAt); err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	taken, err := parseSnapshot(session.databaseID, text)
	if err != nil {
		return err
	}
	taken.TakenAt = takenAt
	if err := opened(taken, standby); err != nil {
		return err
	}
	last := time.Now()
	set := func(p *plan.Plan) error {
		if !searches(p) {
			return nil
		}
		if _, err := results.Exec(); err != nil {
			return fmt.Errorf("prepare plan %s: %w", p.Shape, err)
		}
		return nil
	}
	for i := range plans {
		if err := set(&plans[i]); err != nil {
			return err
		}
		rows, err := results.Query()
		if err != nil {
			return fmt.Errorf("run plan %s: %w", plans[i].Shape, err)
		}
		n, err := answer(&plans[i], rows)
		rows.Close()
		if err != nil {
			return fmt.Errorf("read plan %s: %w", plans[i].Shape, err)
		}
		if err := set(&plans[i]); err != nil {
			return err
		}
		now := time.Now()
		observe(&plans[i], now.Sub(last), n)
		last = now
	}
	if _, err := results.Exec(); err != nil {
		return fmt.Errorf("commit snapshot: %w", err)
	}
	return nil
}
