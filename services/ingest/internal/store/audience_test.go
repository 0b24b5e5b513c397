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
