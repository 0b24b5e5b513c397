package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

const mostAgents = 2

// attest has an agent show that it has an owner, until a moment or for ever.
func (f *fixture) attest(community int64, agent, owner string, end time.Time) error {
	f.t.Helper()
	_, err := f.Attest(f.t.Context(), Attestation{community, nostrtest.PubKey(agent), nostrtest.PubKey(owner), end}, mostAgents)
	return err
}

func TestAttest(t *testing.T) {
	f := newFixture(t)
	closed := f.staff()
	version := f.version(closed)
	require.Equal(t, policy.NotMember, f.verdict(f.candidateIn(closed, "bot")))
	require.NoError(t, f.attest(closed, "bot", "bob", time.Time{}))
	require.Equal(t, version+1, f.version(closed), "it gives access")
	f.accept(f.candidateIn(closed, "bot"))
	require.NoError(t, f.attest(closed, "bot", "bob", time.Time{}))
	require.NoError(t, f.attest(closed, "bot", "bob", time.Now().Add(time.Hour)), "what lasts longer was shown before")
	require.Equal(t, version+1, f.version(closed), "and a repeat changes nothing")

	require.ErrorIs(t, f.attest(closed, "bot", "carol", time.Time{}), ErrOwned, "the first owner stays")
	require.ErrorIs(t, f.attest(closed, "other", "mallory", time.Time{}), ErrNotMember)
	require.ErrorIs(t, f.attest(closed, "other", "bot", time.Time{}), ErrNotMember)
	f.put(closed, "bot", policy.RoleMember)
	require.ErrorIs(t, f.attest(closed, "other", "bot", time.Time{}), ErrAgentOfAgent)
	require.ErrorIs(t, f.attest(closed, "bob", "carol", time.Time{}), ErrAgentOfAgent)
	require.NoError(t, f.attest(closed, "second bot", "bob", time.Time{}))
	require.ErrorIs(t, f.attest(closed, "third bot", "bob", time.Time{}), ErrTooManyAgents)
	require.NoError(t, f.attest(closed, "bot", "bob", time.Time{}), "one of them comes back")
	require.ErrorIs(t, f.attest(1<<40, "bot", "bob", time.Time{}), ErrNoCommunity)

	require.NoError(t, f.attest(f.community, "bot", "carol", time.Time{}), "another community knows nothing of it")
	require.NoError(t, f.attest(f.community, "walker", "mallory", time.Time{}), "in an open one owners need not be members")
	f.moderate(BanPubKey(nostrtest.PubKey("mallory")))
	require.ErrorIs(t, f.attest(f.community, "runner", "mallory", time.Time{}), ErrBanned)
}

func TestAgentsLoseWhatTheirOwnerLoses(t *testing.T) {
	for name, take := range map[string]func(f *fixture, community int64){
		"banned": func(f *fixture, community int64) { f.moderateIn(community, BanPubKey(nostrtest.PubKey("bob"))) },
		"removed": func(f *fixture, community int64) {
			_, err := f.RemoveMember(f.t.Context(), community, nostrtest.PubKey("bob"))
			require.NoError(f.t, err)
		},
		"left": func(f *fixture, community int64) {
			v, _ := f.order(f.command(community, "bob", nostr.KindRelayLeaveRequest, nostrtest.Tag("-")))
			require.Equal(f.t, policy.Left, v)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t).withKey()
			closed := f.staff()
			require.NoError(t, f.attest(closed, "bot", "bob", time.Time{}))
			require.NoError(t, f.attest(closed, "carol's bot", "carol", time.Time{}))
			v, _ := f.order(f.command(closed, "carol", nostr.KindCreateGroup, nostrtest.Tag("h", "den"), nostrtest.Tag("name", "den"),
				nostrtest.Tag("visibility", "private")))
			require.Equal(t, policy.Verdict{}, v)
			for _, agent := range []string{"bot", "carol's bot"} {
				v, _ = f.order(f.command(closed, "carol", nostr.KindPutUser, nostrtest.Tag("h", "den"), p(agent)))
				require.Equal(t, policy.Verdict{}, v)
			}
			told, version := f.told(), f.version(closed)

			take(f, closed)
			require.Greater(t, f.version(closed), version)
			bot := nostrtest.PubKey("bot")
			require.Zero(t, f.count(`SELECT count(*) FROM ingest.channel_members WHERE pubkey = $1`, bot[:]))
			var keys []nostr.PubKey
			for _, r := range *told {
				keys = append(keys, *r.PubKey)
				require.Equal(t, f.version(closed), r.ACLVersion)
			}
			require.Contains(t, keys, bot, "its sockets are looked at")
			require.False(t, f.verdict(f.candidateIn(closed, "bot")).Accepted())
			f.accept(f.candidateIn(closed, "carol's bot"))

			f.moderateIn(closed, AllowPubKey(nostrtest.PubKey("bob")))
			f.accept(f.candidateIn(closed, "bot"))
			require.Equal(t, policy.NotChannelMember, f.verdict(f.candidateIn(closed, "bot", nostrtest.Kind(9), nostrtest.Channel("den"))),
				"to what it was let into, it has to be let into again")
		})
	}
}

func TestAnAgentIsSilentWithItsOwner(t *testing.T) {
	f := newFixture(t)
	closed, end := f.staff(), time.Now().Add(time.Hour)
	require.NoError(t, f.attest(closed, "bot", "bob", time.Time{}))
	v, _ := f.order(f.command(closed, "admin", nostr.KindTimeout, p("bob"), until(end)))
	require.Equal(t, policy.Verdict{}, v)
	require.Equal(t, policy.TimedOut(end.Unix()), f.verdict(f.candidateIn(closed, "bot")))
	v, _ = f.order(f.command(closed, "admin", nostr.KindTimeout, p("bot"), until(end.Add(-time.Minute))))
	require.Equal(t, policy.Verdict{}, v)
	require.Equal(t, policy.TimedOut(end.Unix()), f.verdict(f.candidateIn(closed, "bot")), "the longer one counts")
	v, _ = f.order(f.command(closed, "admin", nostr.KindUntimeout, p("bob")))
	require.Equal(t, policy.Verdict{}, v)
	require.Equal(t, policy.TimedOut(end.Add(-time.Minute).Unix()), f.verdict(f.candidateIn(closed, "bot")))
	f.accept(f.candidateIn(closed, "bob"))
}

func TestAttestationsEnd(t *testing.T) {
	f := newFixture(t)
	closed := f.staff()
	require.NoError(t, f.attest(closed, "bot", "bob", time.Now().Add(time.Hour)))
	require.NoError(t, f.attest(f.community, "bot", "bob", time.Now().Add(time.Hour)))
	f.accept(f.candidateIn(closed, "bot"))
	n, err := f.EndAttestations(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, n)

	_, err = f.admin.Exec(t.Context(), `UPDATE ingest.agents SET until = now()`)
	require.NoError(t, err)
	require.Equal(t, policy.NotMember, f.verdict(f.candidateIn(closed, "bot")), "at once")
	f.accept(f.candidate("bot"))
	told, version, open := f.told(), f.version(closed), f.version(f.community)
	for _, want := range []int{2, 0} {
		n, err = f.EndAttestations(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, want, n)
		require.Equal(t, version+1, f.version(closed))
		require.Equal(t, open, f.version(f.community), "where it gave nothing")
	}
	require.Len(t, *told, 1)

	require.ErrorIs(t, f.attest(closed, "bot", "carol", time.Time{}), ErrOwned, "what was owned stays so")
	f.moderateIn(closed, BanPubKey(nostrtest.PubKey("bob")))
	require.Equal(t, policy.Banned, f.verdict(f.candidateIn(closed, "bot")), "also for what its owner answers for")
	f.moderateIn(closed, AllowPubKey(nostrtest.PubKey("bob")))
	require.NoError(t, f.attest(closed, "bot", "bob", time.Now().Add(time.Hour)))
	f.accept(f.candidateIn(closed, "bot", nostrtest.Content("again")))
}

func TestACommunityRefusesAgents(t *testing.T) {
	f := newFixture(t)
	closed := f.staff()
	require.NoError(t, f.attest(closed, "bot", "bob", time.Time{}))
	version := f.version(closed)
	change := func(agents string) {
		_, err := f.UpdateCommunity(t.Context(), closed, CommunityChange{Agents: &agents})
		require.NoError(t, err)
	}
	change(AgentsRefuse)
	require.Equal(t, version+1, f.version(closed))
	require.Equal(t, policy.NotMember, f.verdict(f.candidateIn(closed, "bot")))
	change(AgentsRefuse)
	require.Equal(t, version+1, f.version(closed))
	f.put(closed, "bot", policy.RoleMember)
	f.accept(f.candidateIn(closed, "bot"))
	change(AgentsAdmit)
}

func TestAnAgentIsAddedByItsOwnerOnly(t *testing.T) {
	f := newFixture(t)
	closed := f.staff()
	require.NoError(t, f.attest(closed, "bot", "bob", time.Time{}))
	for _, name := range []string{"bob", "carol"} {
		v, _ := f.order(f.command(closed, name, nostr.KindCreateGroup, nostrtest.Tag("h", name), nostrtest.Tag("name", name)))
		require.Equal(t, policy.Verdict{}, v)
	}
	add := func(by, agent string) policy.Verdict {
		v, _ := f.order(f.command(closed, by, nostr.KindPutUser, nostrtest.Tag("h", by), p(agent)))
		return v
	}
	f.accept(f.candidateIn(closed, "bot", nostrtest.Kind(nostr.KindAgentProfile), nostrtest.Content(`{"channel_add_policy":"owner_only"}`)))
	v := add("carol", "bot")
	require.False(t, v.Accepted())
	require.Contains(t, v.Message, "policy:owner_only — only the agent owner ("+nostrtest.PubKey("bob").String()+")")
	require.Equal(t, policy.Verdict{}, add("bob", "bot"))
}
