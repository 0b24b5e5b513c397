package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// A command that is kept is the record of what was done, which does not vanish by itself. Elsewhere the tag is part of
// what is asked for.
func TestTheRecordOfAChannelDoesNotExpire(t *testing.T) {
	bob := nostrtest.PubKey("bob").String()
	later := nostrtest.Tag("expiration", "1700003600")
	for kind, kept := range map[nostr.Kind]bool{
		nostr.KindPutUser: true, nostr.KindRemoveUser: true, nostr.KindLeaveRequest: true, nostr.KindDeleteGroup: true,
		nostr.KindCreateGroup: true, nostr.KindCreateInvite: false, nostr.KindTimeout: false,
	} {
		ev := nostrtest.Event(t, "alice", nostrtest.Kind(kind), nostrtest.Channel("hall"), nostrtest.Tag("p", bob), nostrtest.Tag("code", "12345678"), later)
		_, v := policy.Check(policy.Submission{
			Community: 1, Raw: nostrtest.Raw(ev), Principal: []nostr.PubKey{ev.PubKey},
		}, ev, policy.Limits{}, time.Unix(nostrtest.Epoch, 0))
		if kept {
			require.Equal(t, "the record of a channel cannot expire", v.Message, kind)
		} else {
			require.True(t, v.Accepted(), "kind %d: %s", kind, v.Message)
		}
	}
}
