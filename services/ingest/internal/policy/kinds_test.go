package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/kind"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Whatever the table keeps from clients is refused before the signature is looked at, and nothing else.
func TestCheckKindReadsTheTable(t *testing.T) {
	for n := range 1 << 16 {
		k := nostr.Kind(n)
		v := policy.CheckKind(k)
		switch kind.Of(k).Sender {
		case kind.Relay, kind.Proof, kind.Reserved:
			require.False(t, v.Accepted(), "kind %d", k)
		default:
			require.True(t, v.Accepted(), "kind %d", k)
		}
	}
	require.Equal(t, policy.Verdict{Reason: fault.Restricted, Message: "unknown event kind"}, policy.CheckKind(nostr.KindAuditEntry))
	require.Equal(t, policy.Verdict{Reason: fault.Restricted, Message: "relay-only kind"}, policy.CheckKind(nostr.KindApprovalGranted))
	require.Equal(t, policy.Verdict{Reason: fault.Invalid, Message: "authorization events cannot be submitted"}, policy.CheckKind(nostr.KindIdentityBinding))
}

// A profile is one for each author: in a private channel it would take the author's profile from everybody else.
func TestGlobalKindsAreInNoChannel(t *testing.T) {
	for _, h := range []string{"general", "no channel"} {
		ev := nostrtest.Event(t, "alice", nostrtest.Kind(0), nostrtest.Content(`{}`), nostrtest.Tag("h", h))
		c, v := policy.Check(submission("alice"), ev, limits, now)
		require.True(t, v.Accepted())
		require.Empty(t, c.Channel)
	}
	c, v := policy.Check(submission("alice"), nostrtest.Event(t, "alice", nostrtest.Tag("h", "general")), limits, now)
	require.True(t, v.Accepted())
	require.Equal(t, "general", c.Channel, "any event that is no roster, list or wrap may be sent to a channel")
}
