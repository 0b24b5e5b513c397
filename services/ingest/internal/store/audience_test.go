package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Readers find out about the audience of an event by its mark, which goes with the event.
func TestAudiencesAreMarked(t *testing.T) {
	f := newFixture(t)
	persona := func(name string, opts ...nostrtest.Option) *policy.Candidate {
		return f.candidate("alice", append(opts, nostrtest.Kind(nostr.KindPersona), nostrtest.Tag("d", name))...)
	}
	shared, hidden := persona("shared", nostrtest.Tag("shared", "true")), persona("hidden")
	require.NoError(t, f.attest(f.community, "alice", "bob", time.Time{}))
	metric := f.candidate("alice", nostrtest.Kind(nostr.KindTurnMetric), of("p", "bob"), of("agent", "alice"), sealed)
	f.accept(shared, hidden, metric)
	marked := func(c *policy.Candidate, mark string) int {
		return f.count(`SELECT count(*) FROM ingest.event_tags WHERE id = $1 AND name = $2 AND value = $3`, c.Event.ID[:], kind.MarkName, []byte(mark))
	}
	require.Equal(t, 1, marked(shared, kind.MarkEverybody))
	require.Zero(t, marked(hidden, kind.MarkEverybody))
	require.Equal(t, 1, marked(metric, nostrtest.PubKey("bob").String()))

	f.accept(f.candidate("alice", nostrtest.Kind(5), nostrtest.Tag("e", shared.Event.ID.String())))
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.event_tags WHERE id = $1`, shared.Event.ID[:]))
}

// Of what is in a channel and not for everybody there, those whom it is not for learn nothing by trying to act on it.
func TestWhatIsNotForEverybodyIsMissing(t *testing.T) {
	h := newHall(t)
	h.must("alice", nostr.KindEditMetadata, nostrtest.Tag("previous_required", "true"))
	first := nostrtest.Tag("previous", h.state("hall", nostr.KindGroupMetadata).ID.String()[:8])
	hidden := h.candidate("carol", nostrtest.Kind(nostr.KindDirectMessage), nostrtest.Channel("hall"), p("dave"), first)
	h.accept(hidden)
	e := nostrtest.Tag("e", hidden.Event.ID.String())
	for _, who := range []string{"bob", "alice"} {
		h.refuse("target event not found or not yours to delete", who, nostr.KindDeleteEvent, e)
	}
	said := h.verdict(h.candidate("bob", nostrtest.Kind(9), nostrtest.Channel("hall"), nostrtest.Tag("previous", hidden.Event.ID.String()[:8])))
	require.Equal(t, "messages here must refer to earlier events of the channel, and to no others (previous tag)", said.Message)
	h.must("carol", nostr.KindDeleteEvent, e)
}

// What has expired, or whose author has vanished, is missing also while it is still stored.
func TestWhatIsGoneIsMissing(t *testing.T) {
	h := newHall(t)
	expired, vanished := h.chat("carol", "hall", "expired"), h.chat("dave", "hall", "vanished")
	h.accept(expired, vanished)
	_, err := h.admin.Exec(t.Context(), `UPDATE ingest.events SET expires_at = 1 WHERE id = $1`, expired.Event.ID[:])
	require.NoError(t, err)
	_, err = h.admin.Exec(t.Context(), `INSERT INTO ingest.vanished (community_id, pubkey, until, request_id) VALUES ($1, $2, $3, $2)`,
		h.community, vanished.Event.PubKey[:], vanished.Event.CreatedAt)
	require.NoError(t, err)
	for _, c := range []*policy.Candidate{expired, vanished} {
		h.refuse("target event not found or not yours to delete", "bob", nostr.KindDeleteEvent, nostrtest.Tag("e", c.Event.ID.String()))
	}
}
