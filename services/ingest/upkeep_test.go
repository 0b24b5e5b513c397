package ingest_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest"
)

func TestUpkeep(t *testing.T) {
	h := newHarness(t)
	noon := time.Date(2023, time.December, 31, 12, 0, 0, 0, time.UTC)
	r := h.start("one", func(o *options) {
		o.cfg.ExpiryInterval = 20 * time.Millisecond
		o.now = func() time.Time { return noon }
	})
	require.Eventually(t, func() bool { // made in the background, and nobody is told
		return h.count(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'ingest.events'::regclass`) == 6
	}, patience, 10*time.Millisecond, "November to March, and the default")
	require.Equal(t, 1, h.count(`SELECT count(*) FROM pg_class WHERE relname = 'events_y2024m03'`))

	community := h.community(r, "one.example", open)
	c := h.open(r)
	at := noon.Unix()
	note := func(opts ...nostrtest.Option) { // at the service's time
		c.accept(by(community, nostrtest.Event(t, "alice", append(opts, nostrtest.CreatedAt(at))...), "alice"))
	}
	note(nostrtest.Content("stays"))
	note(nostrtest.Content("stays a while"), nostrtest.Tag("expiration", "1900000000"))
	_, err := h.admin.Exec(t.Context(), `UPDATE ingest.events SET expires_at = $1 WHERE expires_at IS NOT NULL`, at)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return h.count(`SELECT count(*) FROM ingest.events`) == 1 }, patience, 10*time.Millisecond)
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.event_ids`))
}

// TestStreamsComeBack gives NATS a new disk.
func TestStreamsComeBack(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	h.awaitStreams()
	h.nats.RestartEmpty(t)
	h.awaitStreams()
	list := notes(t, community, "alice", "note ", 3)
	h.open(r).accept(list...)
	requireOnce(t, h.published(), list...)
}

func TestConfig(t *testing.T) {
	cfg := ingest.DefaultConfig()
	require.NoError(t, cfg.Validate())
	bad := ingest.Config{MaxContent: -1, BatchBytes: 5, MaxEvent: 10, ExpiryInterval: -1}
	err := bad.Validate()
	require.ErrorContains(t, err, "partitions must be positive")
	require.ErrorContains(t, err, "batch-bytes must be at least max-event (10), not 5")
	require.ErrorContains(t, err, "expiry-interval must not be negative")
	_, err = ingest.New(bad, ingest.Deps{})
	require.ErrorContains(t, err, "configure ingest: ")
	_, err = ingest.New(cfg, ingest.Deps{})
	require.Error(t, err)
	cfg.JoinTerms = "Be kind."
	require.NoError(t, cfg.Validate(), "the all-in-one makes its key later")
	_, err = ingest.New(cfg, ingest.Deps{})
	require.ErrorContains(t, err, "configure ingest: join-terms, join-privacy and join-age-attestation need relay-key")
}

// What is due, and what has expired, the database's clock says: a replica with a wrong clock neither reminds early nor holds
// back, and removes nothing that is still good.
func TestWhatIsDueGoesByTheDatabase(t *testing.T) {
	for name, off := range map[string]time.Duration{"a clock that is ahead": 48 * time.Hour, "a clock that is behind": -48 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			r := h.start("one", func(o *options) {
				o.cfg.ExpiryInterval, o.cfg.MaxSkew = 20*time.Millisecond, 0
				o.now = func() time.Time { return time.Now().Add(off) }
			})
			community := h.community(r, "one.example", open)
			after := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
			reminder := func(d, due string) *ingestv1.Submission {
				return by(community, event(t, "alice", nostrtest.Kind(nostr.KindReminder),
					nostrtest.Tag("d", d), nostrtest.Tag("not_before", due)), "alice")
			}
			c := h.open(r)
			c.accept(reminder("soon", after(2*time.Second)), reminder("tomorrow", after(24*time.Hour)),
				by(community, event(t, "alice", nostrtest.Tag("expiration", after(72*time.Hour))), "alice"))
			_, err := h.admin.Exec(t.Context(), `UPDATE ingest.events SET expires_at = $1 WHERE expires_at IS NOT NULL`, after(24*time.Hour))
			require.NoError(t, err)
			require.Eventually(t, func() bool { return h.count(`SELECT count(*) FROM ingest.reminders`) == 1 }, patience, 10*time.Millisecond)
			require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.reminders WHERE due_at > extract(epoch FROM now())`))
			require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.events WHERE expires_at IS NOT NULL`))
		})
	}
}
