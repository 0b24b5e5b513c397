package store

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// age makes all rows old.
func (f *fixture) age() {
	f.t.Helper()
	_, err := f.admin.Exec(f.t.Context(), `UPDATE ingest.outbox SET created_at = created_at - interval '1 minute'`)
	require.NoError(f.t, err)
}

func (f *fixture) rows() int { return f.count(`SELECT count(*) FROM ingest.outbox`) }

func TestOutbox(t *testing.T) {
	f := newFixture(t)
	var want []*Row
	for i := range 5 {
		_, row := f.commit(f.candidate("alice", nostrtest.Content(strconv.Itoa(i))))
		want = append(want, row)
	}
	rows, _, err := f.OutboxState(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, rows)

	found, err := f.SweepOutbox(t.Context(), time.Second, 0, 10, func([]*Row) []int64 {
		require.Fail(t, "rows are not overdue")
		return nil
	})
	require.NoError(t, err)
	require.Zero(t, found)

	f.age()
	_, oldest, err := f.OutboxState(t.Context())
	require.NoError(t, err)
	require.Greater(t, oldest, 50*time.Second)
	found, err = f.SweepOutbox(t.Context(), time.Second, 0, 3, func(list []*Row) []int64 {
		require.Len(t, list, 3)
		for i, row := range list {
			require.Equal(t, want[i].ID, row.ID)
			require.Empty(t, cmp.Diff(want[i].Partitions, row.Partitions, protocmp.Transform()))
			require.Equal(t, want[i].CreatedAt.Add(-time.Minute), row.CreatedAt)
		}
		// While they are held here, another replica sees only the others.
		found, err := f.replica().SweepOutbox(t.Context(), time.Second, 0, 10, func(rest []*Row) []int64 {
			require.Equal(t, want[3].ID, rest[0].ID)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 2, found)
		return []int64{list[0].ID, list[2].ID}
	})
	require.NoError(t, err)
	require.Equal(t, 3, found)
	require.Equal(t, 3, f.rows(), "what was not published stays")

	require.NoError(t, f.DeleteRows(t.Context(), []int64{want[1].ID, want[3].ID, 424242}))
	require.Equal(t, 1, f.rows())
}

func TestSweepGoesOnBehindARow(t *testing.T) {
	f := newFixture(t)
	var ids []int64
	for i := range 3 {
		_, row := f.commit(f.candidate("alice", nostrtest.Content(strconv.Itoa(i))))
		ids = append(ids, row.ID)
	}
	f.age()
	_, err := f.admin.Exec(t.Context(), `UPDATE ingest.outbox SET payload = '\xff' WHERE id = $1`, ids[1])
	require.NoError(t, err)
	found, err := f.SweepOutbox(t.Context(), time.Second, ids[0], 10, func(list []*Row) []int64 {
		require.Len(t, list, 2)
		require.Equal(t, ids[1], list[0].ID)
		require.ErrorContains(t, list[0].Err, "decode payload")
		require.Equal(t, ids[2], list[1].ID)
		require.NoError(t, list[1].Err)
		require.NotEmpty(t, list[1].Partitions)
		return []int64{ids[2]}
	})
	require.NoError(t, err)
	require.Equal(t, 2, found)
	require.Equal(t, 2, f.rows())
}
