package store

import (
	"testing"

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
