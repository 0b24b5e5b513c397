package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Readers find out about the audience of an event by its mark, which goes with the event.
func TestAudiencesAreMarked(t *testing.T) {
	f := newFixture(t)
	persona := func(name, shared string) *policy.Candidate {
		return f.candidate("alice", nostrtest.Kind(nostr.KindPersona), nostrtest.Tag("d", name), nostrtest.Tag("shared", shared))
	}
	shared, hidden := persona("shared", "true"), persona("hidden", "false")
	metric := f.candidate("alice", nostrtest.Kind(nostr.KindTurnMetric), nostrtest.Tag("p", nostrtest.PubKey("bob").String()))
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
