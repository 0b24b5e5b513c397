package store

import (
	"encoding/base64"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
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
			require.NoError(t, f.attest(closed, "enrolled", "bob", time.Time{}))
			f.put(closed, "enrolled", policy.RoleMember)
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
			require.Contains(t, keys, nostrtest.PubKey("enrolled"), "and those of one that is a member itself")
			require.False(t, f.verdict(f.candidateIn(closed, "bot")).Accepted())
			require.Equal(t, name != "banned", f.verdict(f.candidateIn(closed, "enrolled")).Accepted())
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

// of is a tag with the key of somebody.
func of(tag, name string) nostrtest.Option {
	return nostrtest.Tag(tag, nostrtest.PubKey(name).String())
}

// sealed looks like something encrypted.
var sealed = nostrtest.Content(base64.StdEncoding.EncodeToString(append([]byte{2}, make([]byte, 200)...)))

func TestMetricsAreForTheOwner(t *testing.T) {
	f := newFixture(t)
	metric := func(owner, content string) *policy.Candidate {
		return f.candidate("bot", nostrtest.Kind(nostr.KindTurnMetric), of("p", owner), of("agent", "bot"), sealed, nostrtest.Tag("n", content))
	}
	refused := policy.Verdict{Reason: fault.Restricted, Message: "agent-turn-metric is not for the owner of this agent"}
	require.Equal(t, refused, f.verdict(metric("bob", "1")), "the tags alone prove nothing")
	require.NoError(t, f.attest(f.community, "bot", "bob", time.Time{}))
	f.accept(metric("bob", "1"))
	require.Equal(t, refused, f.verdict(metric("carol", "2")))
}

func TestOwnersEditAndDeleteWhatTheirAgentsSay(t *testing.T) {
	f := newFixture(t)
	f.channel("hall")
	require.NoError(t, f.attest(f.community, "bot", "bob", time.Time{}))
	message := f.chat("bot", "hall", "said by bot")
	f.accept(message)
	edit := func(author, text string) *policy.Candidate {
		return f.candidate(author, nostrtest.Kind(nostr.KindMessageEdit), nostrtest.Channel("hall"),
			nostrtest.Tag("e", message.Event.ID.String()), nostrtest.Content(text))
	}
	// In one batch: who may is one thing for each of them.
	verdicts, _ := f.commit(edit("carol", "1"), edit("bob", "2"), edit("mallory", "3"), edit("bot", "4"))
	refused := policy.Verdict{Reason: fault.Invalid, Message: "edit target not found or not editable by you"}
	require.Equal(t, []policy.Verdict{refused, {}, refused, {}}, verdicts)
	own := f.chat("bob", "hall", "said by bob")
	f.accept(own)
	require.Equal(t, refused, f.verdict(f.candidate("bot", nostrtest.Kind(nostr.KindMessageEdit), nostrtest.Channel("hall"),
		nostrtest.Tag("e", own.Event.ID.String()))), "an agent has no right to what its owner says")

	remove := func(author string) policy.Verdict {
		v, _ := f.order(f.command(f.community, author, nostr.KindDeleteEvent, nostrtest.Channel("hall"), nostrtest.Tag("e", message.Event.ID.String())))
		return v
	}
	require.False(t, remove("carol").Accepted())
	require.Equal(t, policy.Verdict{}, remove("bob"))
	require.Equal(t, policy.Deleted, f.verdict(message), "it does not come back")
}

func TestOwnersManageWhatTheirAgentsOwn(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.attest(f.community, "bot", "bob", time.Time{}))
	found := func(h string, opts ...nostrtest.Option) {
		v, _ := f.order(f.command(f.community, "bot", nostr.KindCreateGroup, append(opts, nostrtest.Channel(h), nostrtest.Tag("name", h))...))
		require.Equal(t, policy.Verdict{}, v)
	}
	do := func(author string, kind nostr.Kind, h string, opts ...nostrtest.Option) policy.Verdict {
		v, _ := f.order(f.command(f.community, author, kind, append(opts, nostrtest.Channel(h))...))
		return v
	}
	found("lab")
	found("den", nostrtest.Tag("private"))
	require.False(t, do("carol", nostr.KindEditMetadata, "lab", nostrtest.Tag("name", "mine")).Accepted())
	require.Equal(t, policy.Verdict{}, do("bob", nostr.KindEditMetadata, "lab", nostrtest.Tag("name", "ours")))
	require.Equal(t, policy.NotChannelMember, do("bob", nostr.KindEditMetadata, "den", nostrtest.Tag("name", "ours")), "what it is not in it does not see")
	require.False(t, do("carol", nostr.KindDeleteGroup, "lab").Accepted())
	require.Equal(t, policy.Verdict{}, do("bob", nostr.KindDeleteGroup, "lab"))

	f.channel("hall")
	for _, name := range []string{"bob", "bot", "carol"} {
		require.Equal(t, policy.Verdict{}, do(name, nostr.KindJoinRequest, "hall"))
	}
	require.False(t, do("carol", nostr.KindRemoveUser, "hall", p("bot")).Accepted())
	require.False(t, do("bot", nostr.KindRemoveUser, "hall", p("bob")).Accepted())
	require.Equal(t, policy.Verdict{}, do("bob", nostr.KindRemoveUser, "hall", p("bot")))
	require.Equal(t, policy.Verdict{}, do("bot", nostr.KindJoinRequest, "hall", nostrtest.Tag("n", "again")))
	require.Equal(t, policy.Verdict{}, do("bob", nostr.KindLeaveRequest, "hall"))
	require.False(t, do("bob", nostr.KindRemoveUser, "hall", p("bot"), nostrtest.Tag("n", "again")).Accepted(), "whoever is not in it acts on nobody, not even its own")
}

func TestJobs(t *testing.T) {
	f := newFixture(t)
	f.channel("hall")
	f.channel("den", nostrtest.Tag("private"))
	require.NoError(t, f.attest(f.community, "bot", "bob", time.Time{}))
	require.NoError(t, f.attest(f.community, "idle", "carol", time.Time{}))
	for _, channel := range []string{"", "hall"} {
		in := func(h string, opts ...nostrtest.Option) []nostrtest.Option {
			if h == "" {
				return opts
			}
			return append(opts, nostrtest.Channel(h))
		}
		request := f.candidate("alice", in(channel, nostrtest.Kind(nostr.KindJobRequest), of("p", "bot"))...)
		f.accept(request)
		about := func(author string, kind nostr.Kind, h string) *policy.Candidate {
			return f.candidate(author, in(h, nostrtest.Kind(kind), nostrtest.Tag("e", request.Event.ID.String()))...)
		}
		refused := policy.Verdict{Reason: fault.Invalid, Message: "job request not found, or not yours to answer"}
		for _, kind := range []nostr.Kind{nostr.KindJobAccepted, nostr.KindJobProgress, nostr.KindJobResult, nostr.KindJobError} {
			verdicts, _ := f.commit(about("bot", kind, channel), about("alice", kind, channel), about("bob", kind, channel), about("idle", kind, channel))
			require.Equal(t, []policy.Verdict{{}, refused, refused, refused}, verdicts, "kind %d", kind)
		}
		verdicts, _ := f.commit(about("alice", nostr.KindJobCancel, channel), about("bob", nostr.KindJobCancel, channel),
			about("bot", nostr.KindJobCancel, channel), about("carol", nostr.KindJobCancel, channel))
		require.Equal(t, []policy.Verdict{{}, {}, refused, refused}, verdicts)
		elsewhere := map[string]string{"": "hall", "hall": ""}[channel]
		require.Equal(t, refused, f.verdict(about("bot", nostr.KindJobProgress, elsewhere)), "in another place")
		other := f.candidate("alice", in(channel, nostrtest.Content("no job"), of("p", "bot"))...)
		f.accept(other)
		require.Equal(t, refused, f.verdict(f.candidate("bot", in(channel, nostrtest.Kind(nostr.KindJobResult), nostrtest.Tag("e", other.Event.ID.String()))...)))
		require.Equal(t, refused, f.verdict(f.candidate("bot", in(channel, nostrtest.Kind(nostr.KindJobResult), nostrtest.Tag("e", nostr.ID{7}.String()))...)))
	}
}

// TestABanDoesNotReachAbove keeps an admin from taking away an owner's or an admin's rights through who owns that key.
func TestABanDoesNotReachAbove(t *testing.T) {
	f := newFixture(t).withKey()
	closed := f.staff()
	require.NoError(t, f.attest(closed, "enrolled", "bob", time.Time{}))
	for role, want := range map[policy.Role]policy.Verdict{policy.RoleAdmin: policy.AdminIsSafe, policy.RoleOwner: policy.OwnerIsSafe} {
		f.put(closed, "enrolled", role)
		for _, kind := range []nostr.Kind{nostr.KindBan, nostr.KindTimeout} {
			until := nostrtest.Tag("expiration", strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10))
			v, _ := f.order(f.command(closed, "admin", kind, p("bob"), until))
			require.Equal(t, want, v, "%s %d", role, kind)
		}
		require.NotEqual(t, policy.Banned, f.verdict(f.candidateIn(closed, "enrolled")))
	}
}

// TestNoDoorLetsInWhoIsBannedWithItsOwner knocks with an agent whose owner is banned at every door that adds a member or gives a role.
func TestNoDoorLetsInWhoIsBannedWithItsOwner(t *testing.T) {
	f := newFixture(t).withKey()
	closed := f.staff()
	bot := nostrtest.PubKey("bot")
	require.NoError(t, f.attest(closed, "bot", "bob", time.Time{}))
	f.moderateIn(closed, BanPubKey(nostrtest.PubKey("bob")))
	before := f.version(closed)

	for _, role := range []policy.Role{policy.RoleMember, policy.RoleAdmin, policy.RoleOwner} {
		_, err := f.PutMember(t.Context(), closed, bot, role)
		require.ErrorIs(t, err, ErrBanned, role)
	}
	_, err := f.TransferCommunity(t.Context(), closed, bot, nil)
	require.ErrorIs(t, err, ErrBanned)
	v, _ := f.order(f.command(closed, "owner", nostr.KindRelayAddMember, p("bot")))
	require.Equal(t, policy.TargetBanned, v)
	m := Moderator{Community: closed, Actor: nostrtest.PubKey("owner")}
	_, err = f.Moderate(t.Context(), m, AllowPubKey(bot))
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, policy.OwnerBanned, refused.Verdict)
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.community_members WHERE community_id = $1 AND pubkey = $2`, closed, bot[:]))
	require.Equal(t, before, f.version(closed), "nothing has changed")

	// Its own ban stays as well: that door opens only as a whole.
	f.moderateIn(closed, BanPubKey(bot))
	_, err = f.Moderate(t.Context(), m, AllowPubKey(bot))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.banned_pubkeys WHERE community_id = $1 AND pubkey = $2`, closed, bot[:]))
	f.moderateIn(closed, UnbanPubKey(nostrtest.PubKey("bob")))
	f.moderateIn(closed, AllowPubKey(bot))
	f.accept(f.candidateIn(closed, "bot"))
	f.put(closed, "bot", policy.RoleMember)
	f.moderateIn(closed, BanPubKey(nostrtest.PubKey("bob")))
	v, _ = f.order(f.command(closed, "owner", nostr.KindRelayChangeRole, p("bot"), nostrtest.Tag("role", "admin")))
	require.Equal(t, policy.TargetBanned, v, "a member that is banned with its owner moderates nothing")
}

// TestEveryDoorTellsWhoAdmitsARemovedAgent removes an agent by NIP-86, because of a report, and as the operator does.
func TestEveryDoorTellsWhoAdmitsARemovedAgent(t *testing.T) {
	f := newFixture(t).withKey()
	closed := f.staff()
	bot, bob := nostrtest.PubKey("bot"), nostrtest.PubKey("bob")
	require.NoError(t, f.attest(closed, "bot", "bob", time.Time{}))
	m := Moderator{Community: closed, Actor: nostrtest.PubKey("owner")}
	moderate := func(c Change) *nostr.PubKey {
		f.put(closed, "bot", policy.RoleMember)
		done, err := f.Moderate(t.Context(), m, c)
		require.NoError(t, err)
		require.Zero(t, f.count(`SELECT count(*) FROM ingest.community_members WHERE community_id = $1 AND pubkey = $2`, closed, bot[:]))
		return done.AdmittedBy
	}
	require.Equal(t, &bob, moderate(UnallowPubKey(bot)))
	report := f.candidateIn(closed, "carol", nostrtest.Kind(nostr.KindReport), p("bot"), nostrtest.Content("noisy"))
	f.accept(report)
	resolve := func(action string) policy.Verdict {
		f.put(closed, "bot", policy.RoleMember)
		v, _ := f.order(f.command(closed, "admin", nostr.KindResolveReport, nostrtest.Tag("report", report.Event.ID.String()),
			nostrtest.Tag("status", "resolved"), nostrtest.Tag("action", action)))
		return v
	}
	require.Equal(t, policy.AdmittedByOwner(bob), resolve("kick"))
	require.Equal(t, policy.Verdict{}, resolve("ban"), "a ban keeps it out")
	f.moderateIn(closed, UnbanPubKey(bot))
	require.Nil(t, moderate(BanPubKey(bot)), "likewise")
	f.moderateIn(closed, UnbanPubKey(bot))
	operate := func(was bool) *nostr.PubKey {
		done, err := f.RemoveMember(t.Context(), closed, bot)
		require.NoError(t, err)
		require.Equal(t, was, done.Removed)
		return done.AdmittedBy
	}
	require.Equal(t, &bob, operate(false), "also of an agent that is no member")
	f.put(closed, "bot", policy.RoleMember)
	require.Equal(t, &bob, operate(true))
	_, err := f.UpdateCommunity(t.Context(), closed, CommunityChange{Agents: new(AgentsRefuse)})
	require.NoError(t, err)
	require.Nil(t, moderate(UnallowPubKey(bot)), "agents are refused")
	require.Nil(t, operate(false), "likewise")
}

// TestARemovedAgentMayStay tells who removes an agent that its owner admits it all the same.
func TestARemovedAgentMayStay(t *testing.T) {
	f := newFixture(t).withKey()
	closed := f.staff()
	bob := nostrtest.PubKey("bob")
	for _, community := range []int64{closed, f.community} {
		require.NoError(t, f.attest(community, "bot", "bob", time.Time{}))
	}
	n := 0
	remove := func(community int64) policy.Verdict {
		n++
		f.put(community, "bot", policy.RoleMember)
		v, _ := f.order(f.command(community, "owner", nostr.KindRelayRemoveMember, p("bot"), nostrtest.Tag("n", strconv.Itoa(n))))
		require.Zero(t, f.count(`SELECT count(*) FROM ingest.community_members WHERE community_id = $1 AND pubkey = $2`,
			community, bytesOf(nostrtest.PubKey("bot"))))
		return v
	}
	v := remove(closed)
	require.True(t, v.Accepted())
	require.Equal(t, `response:{"admitted_by":"`+bob.String()+`"}`, v.Message)
	f.accept(f.candidateIn(closed, "bot"))
	v, _ = f.order(f.command(closed, "owner", nostr.KindRelayRemoveMember, p("carol")))
	require.Equal(t, policy.Verdict{}, v, "nobody's agent")
	require.Equal(t, policy.Verdict{}, remove(f.community), "an open community admits everybody")

	_, err := f.UpdateCommunity(t.Context(), closed, CommunityChange{Agents: new(AgentsRefuse)})
	require.NoError(t, err)
	require.Equal(t, policy.Verdict{}, remove(closed), "agents are refused")
	_, err = f.UpdateCommunity(t.Context(), closed, CommunityChange{Agents: new(AgentsAdmit)})
	require.NoError(t, err)
	v, _ = f.order(f.command(closed, "owner", nostr.KindRelayRemoveMember, p("bob")))
	require.Equal(t, policy.Verdict{}, v)
	require.Equal(t, policy.Verdict{}, remove(closed), "its owner is no member")
	require.Equal(t, policy.NotMember, f.verdict(f.candidateIn(closed, "bot")))
}
