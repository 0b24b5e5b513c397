package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// What was done in a channel stays on its record, also against the will of who did it: members read there who added whom.
func TestADeletionLeavesTheRecordOfAChannel(t *testing.T) {
	h := newHall(t)
	add := h.command(h.community, "alice", nostr.KindPutUser, nostrtest.Channel("hall"), p("bob"))
	h.order(add)
	message := h.chat("alice", "hall", "hello")
	h.accept(message)
	require.Equal(t, policy.Verdict{}, h.verdict(h.candidate("alice", deletion(e(add), e(message))...)))
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.events WHERE id = $1`, add.Event.ID[:]))
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.events WHERE id = $1`, message.Event.ID[:]))
	v, _ := h.order(add)
	require.Equal(t, policy.Processed, v)
}
