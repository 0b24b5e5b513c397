package search

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	"github.com/apiary-relay/apiary/services/search/internal/access"
	"github.com/apiary-relay/apiary/services/search/internal/fixture"
	"github.com/apiary-relay/apiary/services/search/internal/store"
)

// visible is how the gateway reads a snapshot.
func visible(s store.Snapshot, xid uint64) bool {
	return xid < s.Xmin || (xid < s.Xmax && !slices.Contains(s.InProgress, xid))
}

// An event is in the answer exactly when the snapshot can see its transaction, while writers commit, and
// leave transactions open across the commits of others.
func TestSnapshotSaysWhatTheAnswerHolds(t *testing.T) {
	const writers, rounds, readers = 4, 30, 2
	cfg := DefaultConfig()
	cfg.Limit = maxLimit
	s, db := newService(t, cfg)
	community := db.Community(t, "open")
	pool := pgtest.New(t)

	events := nostrtest.Filler(t, "alice", writers*rounds)
	var writing, reading sync.WaitGroup
	failed := make(chan error, writers)
	for w := range writers {
		writing.Go(func() { failed <- commitAll(t.Context(), pool, community, events[w*rounds:(w+1)*rounds]) })
	}
	done := make(chan struct{})
	type answer struct {
		snapshot store.Snapshot
		ids      map[nostr.ID]bool
	}
	answers := make([][]answer, readers)
	errs := make([]error, readers)
	for i := range readers {
		reading.Go(func() {
			for {
				// Two filters, two statements: one snapshot.
				snapshot, _, parts, err := s.query(t.Context(), access.Reader{Community: community, Now: testNow},
					[]*nostr.Filter{{Authors: []nostr.PubKey{nostrtest.PubKey("alice")}}, {}}, nil)
				if err != nil {
					errs[i] = err
					return
				}
				ids := map[nostr.ID]bool{}
				for _, e := range parts[0] {
					ids[e.ID] = true
				}
				if len(parts[0]) != len(parts[1]) {
					errs[i] = fmt.Errorf("the filters saw %d and %d events", len(parts[0]), len(parts[1]))
					return
				}
				answers[i] = append(answers[i], answer{snapshot, ids})
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	for range writers {
		require.NoError(t, <-failed)
	}
	require.Equal(t, make([]error, readers), errs)

	xids := map[nostr.ID]uint64{}
	rows, err := pool.Query(t.Context(), `SELECT id, commit_xid::text::bigint FROM ingest.events`)
	require.NoError(t, err)
	var id []byte
	var xid int64
	_, err = pgx.ForEachRow(rows, []any{&id, &xid}, func() error {
		xids[nostr.ID(id)] = uint64(xid)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, xids, writers*rounds)
	var database int64
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT system_identifier FROM pg_control_system()`).Scan(&database))

	partial := 0
	for _, a := range slices.Concat(answers...) {
		require.Equal(t, uint64(database), a.snapshot.DatabaseID)
		for id, xid := range xids {
			require.Equal(t, visible(a.snapshot, xid), a.ids[id], "xid %d, snapshot %+v", xid, a.snapshot)
		}
		if len(a.ids) > 0 && len(a.ids) < len(xids) {
			partial++
		}
	}
	require.Positive(t, partial, "some queries ran between the commits")
}

// The moment of a snapshot lies between the beginnings of what it could see and of what came later.
func TestSnapshotSaysWhenItWasTaken(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	community := db.Community(t, "open")
	pool := pgtest.New(t)
	began := func() (microseconds int64) {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(), `SELECT (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint, pg_current_xact_id()`).
				Scan(&microseconds, nil)
		}))
		return microseconds
	}
	for range 20 {
		before := began()
		snapshot, _, _, err := s.query(t.Context(), access.Reader{Community: community, Now: testNow}, []*nostr.Filter{{}}, nil)
		require.NoError(t, err)
		require.Less(t, before, snapshot.TakenAt)
		require.Less(t, snapshot.TakenAt, began())
		require.Equal(t, snapshot.TakenAt, snapshot.Proto().GetTakenAt())
	}
}

// commitAll commits events in transactions of one to three, of which some wait for another one to commit
// in between.
func commitAll(ctx context.Context, pool *pgxpool.Pool, community tenant.ID, events []*nostr.Event) error {
	for len(events) > 0 {
		n := min(len(events), 1+rand.IntN(3))
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := tx.SendBatch(ctx, fixture.Batch(community, events[:n]...)).Close(); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, rand.Float64()/100)
			return err
		})
		if err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}
