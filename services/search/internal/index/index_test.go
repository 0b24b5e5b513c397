package index

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/search/internal/fixture"
	"github.com/apiary-relay/apiary/services/search/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long what has to happen may take.
const patience = 20 * time.Second

// readOnly is a pool as production has it: every transaction that does not say otherwise only reads.
func readOnly(t *testing.T) *pgxpool.Pool {
	t.Helper()
	cfg := pgtest.NewAs(t, "apiary_search").Config().Copy()
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func newIndex(t *testing.T, b Bus) (*Index, *fixture.DB) {
	t.Helper()
	x, err := New(b, store.New(readOnly(t), patience, patience), slog.New(slog.DiscardHandler), noop.NewMeterProvider().Meter(""))
	require.NoError(t, err)
	return x, fixture.New(t.Context(), pgtest.New(t))
}

// run runs the index until the test ends.
func run(t *testing.T, x *Index) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func publish(t *testing.T, b *bus.Bus, community tenant.ID, events ...*nostr.Event) {
	t.Helper()
	m := &busv1.EnvelopeBatch{}
	for _, e := range events {
		m.Envelopes = append(m.Envelopes, &commonv1.Envelope{
			Header: &commonv1.Header{Id: e.ID[:], Pubkey: e.PubKey[:], CreatedAt: e.CreatedAt, Kind: uint32(e.Kind), Community: int64(community)},
			Raw:    nostrtest.Raw(e),
		})
	}
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	_, err = b.Publish(t.Context(), subject.Events(1), events[0].ID.String(), data)
	require.NoError(t, err)
}

// documents returns the ids that are indexed, newest first.
func documents(t *testing.T, pool *pgxpool.Pool) []nostr.ID {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT id FROM search.documents ORDER BY created_at DESC, id`)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id nostr.ID, err error) {
		var b []byte
		err = row.Scan(&b)
		return nostr.ID(b), err
	})
	require.NoError(t, err)
	return ids
}

func chat(t *testing.T, at int64, content string) *nostr.Event {
	t.Helper()
	return nostrtest.Event(t, "alice", nostrtest.Kind(nostr.KindChat), nostrtest.Content(content), nostrtest.CreatedAt(nostrtest.Epoch+at))
}

// What comes by the stream is indexed: the kinds that hold text, each once, and not what was deleted.
func TestTheStreamIsIndexed(t *testing.T) {
	t.Parallel()
	b := bustest.NewBus(t)
	x, db := newIndex(t, b)
	pool := pgtest.New(t)
	community := db.Community(t, "open")
	run(t, x)
	_, err := b.Publish(t.Context(), subject.Events(2), "broken", []byte("\xff"))
	require.NoError(t, err)

	first, second, deleted := chat(t, 1, "bees"), chat(t, 2, "wax\x00"), chat(t, 3, "gone")
	wrap := nostrtest.Event(t, "bob", nostrtest.Kind(nostr.KindGiftWrap), nostrtest.Content("secret"))
	db.Insert(t, community, first, second, wrap)
	publish(t, b, community, first, wrap, deleted)
	publish(t, b, community, second, first)
	require.Eventually(t, func() bool { return len(documents(t, pool)) == 2 }, patience, 10*time.Millisecond)
	require.Equal(t, []nostr.ID{second.ID, first.ID}, documents(t, pool))
}

// quiet is a bus without messages.
type quiet struct{}

func (quiet) ConsumeDurable(ctx context.Context, _ bus.DurableConfig, _ func(context.Context, []bus.Msg) error) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// gappy is a bus that has lost everything.
type gappy struct{ lose chan struct{} }

func (g gappy) ConsumeDurable(ctx context.Context, cfg bus.DurableConfig, _ func(context.Context, []bus.Msg) error) error {
	for {
		select {
		case <-g.lose:
			if err := cfg.OnGap(ctx, bus.Gap{Stream: cfg.Stream, Subject: cfg.Subject, From: 1, To: 2}); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// What the stream had lost before it was indexed is read from Postgres, without waiting for the next walk.
func TestWhatTheStreamLostIsIndexed(t *testing.T) {
	t.Parallel()
	g := gappy{make(chan struct{})}
	x, db := newIndex(t, g)
	pool := pgtest.New(t)
	community := db.Community(t, "open")
	first, second := chat(t, 1, "bees"), chat(t, 2, "wax")
	db.Insert(t, community, first)
	run(t, x)
	require.Eventually(t, func() bool { return len(documents(t, pool)) == 1 }, patience, 10*time.Millisecond, "the walk at the start")
	db.Insert(t, community, second)
	g.lose <- struct{}{}
	require.Eventually(t, func() bool { return len(documents(t, pool)) == 2 }, patience, 10*time.Millisecond)
	require.Equal(t, []nostr.ID{second.ID, first.ID}, documents(t, pool))
}

// Whatever is stored is indexed in the end, over several pages, and documents of deleted events go; a
// second walk changes nothing. Only one replica walks at a time.
func TestTheWalkMakesIndexAndEventsAgree(t *testing.T) {
	t.Parallel()
	x, db := newIndex(t, quiet{})
	pool := pgtest.New(t)
	communities := []tenant.ID{db.Community(t, "open"), db.Community(t, "closed")}
	var want []nostr.ID
	for _, c := range communities {
		events := nostrtest.Filler(t, "alice", 2*pageEvents+3, nostrtest.Kind(nostr.KindChat), nostrtest.CreatedAt(nostrtest.Epoch))
		events = append(events, nostrtest.Event(t, "bob", nostrtest.Kind(nostr.KindArticle), nostrtest.Tag("d", "x")))
		db.Insert(t, c, events...)
		db.Insert(t, c, nostrtest.Event(t, "bob", nostrtest.Kind(1059)))
		for _, e := range events {
			want = append(want, e.ID)
		}
	}
	db.Exec(t, `INSERT INTO search.documents SELECT c, sha256(('gone' || n)::bytea), n, 9, '' FROM generate_series(1, 1500) n, unnest($1::bigint[]) c`,
		[]int64{int64(communities[1]), int64(communities[1]) + 77})

	for range 2 {
		mine, err := x.store.TakeCare(t.Context(), func(ctx context.Context, c *store.Caretaker) error {
			again, err := x.store.TakeCare(ctx, x.walk)
			require.NoError(t, err)
			require.False(t, again, "another one is at it")
			return x.walk(ctx, c)
		})
		require.NoError(t, err)
		require.True(t, mine)
		require.ElementsMatch(t, want, documents(t, pool))
	}
}
