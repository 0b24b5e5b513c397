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

// What the relay signs once is of a channel, not of its id. It is another event, too: who listens has seen the first one,
// or was not allowed to, and what comes twice is dropped.
func TestAChannelMadeAnewHasItsOwnState(t *testing.T) {
	h := newHall(t)
	kinds := []nostr.Kind{nostr.KindGroupMetadata, nostr.KindGroupAdmins, nostr.KindGroupMembers, nostr.KindGroupRoles}
	seen := map[nostr.ID]bool{}
	for _, kind := range kinds {
		seen[h.state("hall", kind).ID] = true
	}
	h.must("alice", nostr.KindDeleteGroup)
	h.must("bob", nostr.KindCreateGroup, nostrtest.Tag("name", "Second"))
	for _, kind := range kinds {
		require.False(t, seen[h.state("hall", kind).ID], "kind %d is the same event again", kind)
	}
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

// A channel that nobody may change any more, or nobody may even read, would be lost together with its id.
func TestAChannelThatItsLastOwnerLeavesIsNotLost(t *testing.T) {
	for name, tt := range map[string]struct {
		private bool
		others  []string // and their roles
		want    map[string]string
	}{
		"a member before guests and bots":  {true, []string{"bot", "bot", "guest", "guest", "bob", "member"}, holding("bot", "bot", "guest", "guest", "bob", "owner")},
		"guests and bots":                  {true, []string{"bot", "bot", "guest", "guest"}, holding("bot", "bot", "guest", "guest", "owner", "owner")},
		"the community's owner as a guest": {true, []string{"owner", "guest"}, holding("owner", "owner")},
		"open to everybody":                {false, nil, holding("owner", "owner")},
		"nobody":                           {true, nil, holding()},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []nostrtest.Option
			if tt.private {
				opts = append(opts, nostrtest.Tag("private"))
			}
			h := newHall(t, opts...)
			for i := 0; i < len(tt.others); i += 2 {
				h.must("alice", nostr.KindPutUser, p(tt.others[i]), nostrtest.Tag("role", tt.others[i+1]))
			}
			h.moderate(BanPubKey(nostrtest.PubKey("alice")))
			require.Equal(t, tt.want, h.members())
			if len(tt.want) > 0 {
				h.requireSnapshots("hall")
				return
			}
			require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.deleted_channels`))
			h.must("bob", nostr.KindCreateGroup, nostrtest.Tag("name", "Second"))
			h.requireSnapshots("hall")
			require.NotNil(t, h.state("hall", nostr.KindGroupRoles))
		})
	}
}
