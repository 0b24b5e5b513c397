package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// Fan-out would take what it knows of the deleted channel for what holds in the new one.
func TestTheVersionsOfAChannelDoNotBeginAgain(t *testing.T) {
	h := newHall(t)
	for range 3 {
		h.must("alice", nostr.KindPutUser, p("bob"))
		h.must("alice", nostr.KindRemoveUser, p("bob"))
	}
	before := h.channelVersion()
	h.must("alice", nostr.KindDeleteGroup)
	h.must("bob", nostr.KindCreateGroup, nostrtest.Tag("name", "Second"))
	require.Greater(t, h.channelVersion(), before+1, "the deletion has a version as well")
}

// What the relay signs once is of a channel, not of its id.
func TestAChannelMadeAnewHasItsOwnState(t *testing.T) {
	h := newHall(t)
	h.must("alice", nostr.KindDeleteGroup)
	h.must("bob", nostr.KindCreateGroup, nostrtest.Tag("name", "Second"))
	for range 2 {
		require.NotNil(t, h.state("hall", nostr.KindGroupRoles))
		h.requireSnapshots("hall")
		for {
			n, err := h.SweepDeleted(t.Context(), time.Now().Add(time.Minute), 100)
			require.NoError(t, err)
			if n == 0 {
				break
			}
		}
	}
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.events WHERE kind = 39003`))
}
