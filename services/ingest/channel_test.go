package ingest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// Who sends a creation again, because the first answer was lost, is told the channel's id as well.
func TestACreationSentAgainIsAnsweredAsTheFirst(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	c := h.open(r)
	creation := event(t, "alice", nostrtest.Kind(9007), nostrtest.Tag("name", "Hall"))
	first := c.verdicts(c.send(by(community, creation, "alice"))...)[0]
	require.Contains(t, first.GetMessage(), `response:{"channel_id":"`)
	again := c.verdicts(c.send(by(community, creation, "alice"))...)[0]
	requireVerdict(t, first.GetReason(), first.GetMessage(), again)
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.channels`))
}
