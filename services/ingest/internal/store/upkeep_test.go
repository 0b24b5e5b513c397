package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

func TestEnsurePartitions(t *testing.T) {
	f := newFixture(t)
	from := time.Date(2023, time.November, 30, 23, 59, 0, 0, time.UTC)
	made, err := f.EnsurePartitions(t.Context(), from, 3)
	require.NoError(t, err)
	require.Equal(t, 6, made, "events and tags of three months")
	made, err = f.EnsurePartitions(t.Context(), from, 3)
	require.NoError(t, err)
	require.Zero(t, made)

	f.accept(f.candidate("alice", nostrtest.Tag("t", "x")), f.candidate("alice", nostrtest.CreatedAt(1)))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.events_y2023m11`))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.event_tags_y2023m11`))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.events_default`), "what is far off")
}

func TestReplacementAcrossPartitions(t *testing.T) {
	f := newFixture(t)
	_, err := f.EnsurePartitions(t.Context(), time.Unix(nostrtest.Epoch, 0), 2)
	require.NoError(t, err)
	at := func(created int64) []nostrtest.Option {
		return []nostrtest.Option{nostrtest.Kind(10002), nostrtest.CreatedAt(created), nostrtest.Tag("r", "x")}
	}
	last := f.candidate("alice", at(nostrtest.Epoch+40*24*3600)...)
	f.accept(f.candidate("alice", at(5)...), f.candidate("alice", at(nostrtest.Epoch)...), last)
	f.requireStored(last)
}

func TestSweepExpired(t *testing.T) {
	f := newFixture(t)
	second := f.newCommunity("two.example", AccessOpen)
	at := func(second string) nostrtest.Option { return nostrtest.Tag("expiration", second) }
	kept := f.candidate("alice", nostrtest.Content("kept"))
	later := f.candidate("alice", at("1700000100"))
	f.accept(
		kept, later,
		f.candidate("alice", at("1700000010"), nostrtest.Tag("t", "x")),
		f.candidate("alice", at("1700000020"), nostrtest.Kind(30023), nostrtest.Tag("d", "x")),
		f.candidate("bob", at("1700000005")),
		f.candidateIn(second, "alice", at("1700000010")),
	)
	removed, err := f.SweepExpired(t.Context(), time.Unix(nostrtest.Epoch+4, 0), 100)
	require.NoError(t, err)
	require.Zero(t, removed)
	total := 0
	for {
		removed, err := f.SweepExpired(t.Context(), time.Unix(nostrtest.Epoch+20, 0), 1)
		require.NoError(t, err)
		require.LessOrEqual(t, removed, 2, "one of each community")
		if total += removed; removed == 0 {
			break
		}
	}
	require.Equal(t, 4, total)
	f.requireStored(kept, later)
}
