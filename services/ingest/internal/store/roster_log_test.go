package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// TestCommandsOfTheRosterAreLogged has those of moderators, each with its key and the command, and nothing that was refused.
func TestCommandsOfTheRosterAreLogged(t *testing.T) {
	f := newFixture(t).withKey()
	closed := f.staff()
	logged := func(action, subject string) int {
		return f.count(`SELECT count(*) FROM ingest.moderation_actions WHERE community_id = $1 AND action = $2 AND subject = $3
			AND command_id IS NOT NULL AND actor = $4`, closed, action, subject, bytesOf(nostrtest.PubKey("owner")))
	}
	for _, c := range []struct {
		command         nostr.Kind
		tags            []nostrtest.Option
		action, subject string
	}{
		{nostr.KindRelayAddMember, []nostrtest.Option{p("dave")}, ActionAllow, "member"},
		{nostr.KindRelayChangeRole, []nostrtest.Option{p("dave"), nostrtest.Tag("role", "admin")}, ActionRole, "admin"},
		{nostr.KindRelayRemoveMember, []nostrtest.Option{p("dave")}, ActionKick, ""},
		{nostr.KindRelaySetProfile, []nostrtest.Option{nostrtest.Tag("icon", "")}, ActionDescribe, ""},
	} {
		v, _ := f.order(f.command(closed, "bob", c.command, c.tags...))
		require.False(t, v.Accepted(), "kind %d", c.command)
		require.Zero(t, logged(c.action, c.subject), "what was refused is no action")
		v, _ = f.order(f.command(closed, "owner", c.command, c.tags...))
		require.Equal(t, policy.Verdict{}, v, "kind %d", c.command)
		require.Equal(t, 1, logged(c.action, c.subject), "kind %d", c.command)
	}
	require.Equal(t, 4, f.count(`SELECT count(*) FROM ingest.moderation_actions`))
}
