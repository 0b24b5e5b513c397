package store

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// told collects what the store says was revoked.
func (f *fixture) told() *[]Revocation {
	var all []Revocation
	f.revoked = func(_ context.Context, r Revocation) { all = append(all, r) }
	return &all
}

func until(at time.Time) nostrtest.Option {
	return nostrtest.Tag("expiration", strconv.FormatInt(at.Unix(), 10))
}

// staff makes an admin, two members and a community that is closed, and returns it.
func (f *fixture) staff() int64 {
	f.t.Helper()
	closed := f.newCommunity("closed.example", AccessClosed)
	f.put(closed, "admin", policy.RoleAdmin)
	f.put(closed, "second", policy.RoleAdmin)
	f.put(closed, "bob", policy.RoleMember)
	f.put(closed, "carol", policy.RoleMember)
	return closed
}

func TestWhoMayTakeMeasures(t *testing.T) {
	f := newFixture(t)
	closed := f.staff()
	soon := until(time.Now().Add(time.Hour))
	for _, kind := range []nostr.Kind{nostr.KindBan, nostr.KindTimeout, nostr.KindUnban} {
		for _, c := range []struct {
			by, against string
			want        policy.Verdict
		}{
			{"bob", "carol", policy.ModeratorsOnly},
			{"bob", "bob", policy.ModeratorsOnly},
			{"admin", "owner", policy.OwnerIsSafe},
			{"admin", "second", policy.AdminIsSafe},
			{"admin", "admin", policy.AdminIsSafe},
			{"owner", "owner", policy.OwnerIsSafe},
		} {
			v, _ := f.order(f.command(closed, c.by, kind, p(c.against), soon))
			require.Equal(t, c.want, v, "kind %d: %s against %s", kind, c.by, c.against)
		}
	}
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.moderation_actions`), "what was refused is no action")
	for _, who := range []string{"bob", "second"} {
		v, _ := f.order(f.command(closed, "owner", nostr.KindBan, p(who)))
		require.Equal(t, policy.Verdict{}, v)
	}
	v, _ := f.order(f.command(f.community, "admin", nostr.KindBan, p("bob")))
	require.Equal(t, policy.ModeratorsOnly, v, "who moderates elsewhere")
}

func TestACommandBans(t *testing.T) {
	f := newFixture(t)
	told, closed := f.told(), f.staff()
	version := f.version(closed)
	ban := f.command(closed, "admin", nostr.KindBan, p("bob"), nostrtest.Tag("reason", "rude"))
	v, _ := f.order(ban)
	require.Equal(t, policy.Verdict{}, v)
	bob := nostrtest.PubKey("bob")
	require.Equal(t, []Revocation{{Community: closed, PubKey: &bob, ACLVersion: version + 1}}, *told)
	require.Equal(t, policy.Banned, f.verdict(f.candidateIn(closed, "bob")))
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.community_members WHERE pubkey = $1`, bob[:]))
	require.Equal(t, 1, f.count(`
SELECT count(*) FROM ingest.moderation_actions
WHERE community_id = $1 AND action = 'ban' AND actor = $2 AND command_id = $3 AND pubkey = $4 AND reason = 'rude' AND expires_at IS NULL`,
		closed, bytesOf(nostrtest.PubKey("admin")), ban.Event.ID[:], bob[:]))

	v, _ = f.order(ban)
	require.Equal(t, policy.Processed, v)
	require.Len(t, *told, 1)

	// Membership does not lift the ban, whoever grants it; NIP-86's allowpubkey means both.
	v, _ = f.order(f.withKey().command(closed, "admin", nostr.KindRelayAddMember, p("bob")))
	require.Equal(t, policy.TargetBanned, v)
	_, err := f.PutMember(t.Context(), closed, bob, policy.RoleMember)
	require.ErrorIs(t, err, ErrBanned)
	f.moderateIn(closed, AllowPubKey(bob))
	f.accept(f.candidateIn(closed, "bob"))

	v, _ = f.order(f.command(closed, "admin", nostr.KindBan, p("bob")))
	require.Equal(t, policy.Verdict{}, v)
	v, _ = f.order(f.command(closed, "admin", nostr.KindUnban, p("bob")))
	require.Equal(t, policy.Verdict{}, v)
	require.Equal(t, policy.NotMember, f.verdict(f.candidateIn(closed, "bob", nostrtest.Content("again"))), "that does not make a member")
}

// TestABanEnds has a ban that is over: by itself, and with a new access version once it is swept.
func TestABanEnds(t *testing.T) {
	f := newFixture(t)
	v, _ := f.order(f.command(f.community, "owner", nostr.KindBan, p("bob"), until(time.Now().Add(time.Hour))))
	require.Equal(t, policy.Verdict{}, v)
	require.Equal(t, policy.Banned, f.verdict(f.candidate("bob")))
	n, err := f.EndBans(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, n)

	_, err = f.admin.Exec(t.Context(), `UPDATE ingest.banned_pubkeys SET expires_at = now()`)
	require.NoError(t, err)
	f.accept(f.candidate("bob"))
	version := f.version(f.community)
	for _, want := range []int{1, 0} {
		n, err = f.EndBans(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, want, n)
		require.Equal(t, version+1, f.version(f.community))
	}
}

func TestTimeouts(t *testing.T) {
	f := newFixture(t).withKey()
	closed, end := f.staff(), time.Now().Add(time.Hour)
	v, _ := f.order(f.command(closed, "admin", nostr.KindTimeout, p("bob"), until(end)))
	require.Equal(t, policy.Verdict{}, v)
	silenced := policy.TimedOut(end.Unix())
	require.Equal(t, fmt.Sprintf("you are timed out until %d", end.Unix()), silenced.Message)
	require.Equal(t, silenced, f.verdict(f.candidateIn(closed, "bob")))
	leave := f.command(closed, "bob", nostr.KindRelayLeaveRequest, nostrtest.Tag("-"))
	require.Equal(t, silenced, f.verdict(leave))
	typing := f.candidateIn(closed, "bob", nostrtest.Kind(20002))
	st, err := f.ReadState(t.Context(), []*policy.Candidate{typing})
	require.NoError(t, err)
	require.Equal(t, silenced, policy.Admit(typing, st), "ephemeral events as well")
	f.accept(f.candidateIn(closed, "bob", nostrtest.Kind(nostr.KindReport), p("carol")), f.candidateIn(closed, "carol"))

	// A moderator who was silenced may still moderate.
	v, _ = f.order(f.command(closed, "owner", nostr.KindTimeout, p("admin"), until(end)))
	require.Equal(t, policy.Verdict{}, v)
	require.Equal(t, silenced, f.verdict(f.candidateIn(closed, "admin")))
	for _, who := range []string{"bob", "admin"} {
		v, _ = f.order(f.command(closed, "admin", nostr.KindUntimeout, p(who)))
		require.Equal(t, policy.Verdict{}, v)
		f.accept(f.candidateIn(closed, who, nostrtest.Content("back")))
	}
	v, _ = f.order(f.command(closed, "bob", nostr.KindUntimeout, p("bob")))
	require.Equal(t, policy.ModeratorsOnly, v)

	v, _ = f.order(f.command(closed, "admin", nostr.KindTimeout, p("bob"), until(end), nostrtest.Tag("reason", "again")))
	require.Equal(t, policy.Verdict{}, v)
	_, err = f.admin.Exec(t.Context(), `UPDATE ingest.timeouts SET expires_at = now()`)
	require.NoError(t, err)
	f.accept(f.candidateIn(closed, "bob", nostrtest.Content("it is over")))
	n, err := f.ForgetTimeouts(t.Context(), time.Now().Add(time.Minute), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 5, f.count(`SELECT count(*) FROM ingest.moderation_actions WHERE action IN ('timeout', 'untimeout')`))
}

func TestReportsAreResolved(t *testing.T) {
	f := newFixture(t)
	told, closed := f.told(), f.staff()
	bad := f.candidateIn(closed, "bob", nostrtest.Content("bad"))
	e := nostrtest.Tag("e", bad.Event.ID.String(), "spam")
	// The reporter accuses somebody else of bob's event.
	report := f.candidateIn(closed, "carol", nostrtest.Kind(nostr.KindReport), e, p("owner"))
	ofKey := f.candidateIn(closed, "carol", nostrtest.Kind(nostr.KindReport), p("bob"), nostrtest.Content("rude"))
	vague := f.candidateIn(closed, "carol", nostrtest.Kind(nostr.KindReport))
	f.accept(bad, report, ofKey, vague)
	resolve := func(by string, c *policy.Candidate, status, action string, more ...nostrtest.Option) policy.Verdict {
		v, _ := f.order(f.command(closed, by, nostr.KindResolveReport, append(more, nostrtest.Tag("report", c.Event.ID.String()),
			nostrtest.Tag("status", status), nostrtest.Tag("action", action))...))
		return v
	}
	status := func(c *policy.Candidate) string {
		var s string
		require.NoError(t, f.admin.QueryRow(t.Context(), `
SELECT coalesce((SELECT status || ' ' || action FROM ingest.report_decisions WHERE community_id = $1 AND report_id = $2), '')`,
			closed, c.Event.ID[:]).Scan(&s))
		return s
	}
	require.Equal(t, policy.ModeratorsOnly, resolve("bob", report, "dismissed", "dismiss"))
	require.Equal(t, policy.NoReport, resolve("admin", bad, "dismissed", "dismiss"))
	require.Equal(t, policy.ReportsNobody, resolve("admin", vague, "resolved", "ban"))
	require.Equal(t, policy.ReportsNoEvent, resolve("admin", ofKey, "resolved", "delete"))
	require.Empty(t, status(report))

	require.Equal(t, policy.Verdict{}, resolve("admin", report, "resolved", "escalate"))
	require.Equal(t, "escalated escalate", status(report))
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.decided_reports`))
	require.Equal(t, policy.Verdict{}, resolve("owner", report, "resolved", "timeout", until(time.Now().Add(time.Hour))))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.timeouts WHERE pubkey = $1`, bytesOf(nostrtest.PubKey("bob"))), "the author")
	require.Equal(t, policy.Verdict{}, resolve("admin", report, "resolved", "delete"))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.banned_events WHERE id = $1`, bad.Event.ID[:]), "it may not come back")
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.decided_reports WHERE target_id = $1`, bad.Event.ID[:]))
	require.Equal(t, policy.OwnerIsSafe, resolve("admin", report, "resolved", "ban"), "the event is gone: the reporter's word")

	require.Empty(t, *told)
	require.Equal(t, policy.Verdict{}, resolve("admin", ofKey, "resolved", "kick"))
	require.Equal(t, policy.Verdict{}, resolve("admin", ofKey, "resolved", "ban"))
	require.Len(t, *told, 2)
	require.Equal(t, "resolved ban", status(ofKey))
	require.Equal(t, policy.Verdict{}, resolve("admin", vague, "dismissed", "dismiss"))
	require.Equal(t, 6, f.count(`SELECT count(*) FROM ingest.moderation_actions WHERE report_id IS NOT NULL`))
}

// TestWhatIsRevoked is told of what takes access, and of nothing else.
func TestWhatIsRevoked(t *testing.T) {
	f := newFixture(t).withKey()
	told, closed := f.told(), f.staff()
	bob, network := nostrtest.PubKey("bob"), netip.MustParsePrefix("192.0.2.0/24")
	for _, community := range []int64{f.community, closed} {
		f.put(community, "bob", policy.RoleMember)
		f.moderateIn(community, UnallowPubKey(bob))
		f.put(community, "bob", policy.RoleMember)
		_, err := f.RemoveMember(t.Context(), community, bob)
		require.NoError(t, err)
		f.put(community, "bob", policy.RoleMember)
		v, _ := f.order(f.command(community, "owner", nostr.KindRelayRemoveMember, p("bob")))
		require.Equal(t, policy.Verdict{}, v)
	}
	require.Len(t, *told, 3, "an open community takes everybody")
	for _, r := range *told {
		require.Equal(t, closed, r.Community)
		require.Equal(t, bob, *r.PubKey)
	}
	f.put(closed, "bob", policy.RoleMember)
	*told = nil
	v, _ := f.order(f.command(closed, "bob", nostr.KindRelayLeaveRequest, nostrtest.Tag("-")))
	require.Equal(t, policy.Left, v)
	require.Empty(t, *told, "who leaves shall get the answer")
	f.moderate(BlockNetwork(network))
	require.Equal(t, []Revocation{{Community: f.community, Network: network, ACLVersion: f.version(f.community)}}, *told)
}

// TestManagementIsLogged has every change of NIP-86 in the log.
func TestManagementIsLogged(t *testing.T) {
	f := newFixture(t)
	bob := nostrtest.PubKey("bob")
	network := netip.MustParsePrefix("192.0.2.0/24")
	changes := []Change{
		BanPubKey(bob), UnbanPubKey(bob), AllowPubKey(bob), UnallowPubKey(bob), BanEvent(nostr.ID{1}), AllowEvent(nostr.ID{1}),
		AllowKind(1), DisallowKind(1), BlockNetwork(network), UnblockNetwork(network), Describe(Description{Name: new("One")}),
	}
	for _, c := range changes {
		f.moderate(c)
	}
	require.Equal(t, len(changes), f.count(`
SELECT count(DISTINCT action) FROM ingest.moderation_actions WHERE actor = $1 AND command_id IS NULL AND reason = 'because'`,
		bytesOf(nostrtest.PubKey("owner"))))
}

// The log goes when it is old, but what the moderators' list may show stays.
func TestTheLogOfModerationIsBounded(t *testing.T) {
	f := newFixture(t)
	other := f.newCommunity("two.example", AccessOpen)
	write := func(community int64, n int, age string) {
		_, err := f.admin.Exec(t.Context(), `INSERT INTO ingest.moderation_actions (community_id, action, actor, decided_at)
SELECT $1, 'ban', $2, now() - $4::interval FROM generate_series(1, $3)`, community, bytesOf(nostrtest.PubKey("owner")), n, age)
		require.NoError(t, err)
	}
	left := func(community int64) int {
		return f.count(`SELECT count(*) FROM ingest.moderation_actions WHERE community_id = $1`, community)
	}
	write(f.community, 30, "3 years")
	write(f.community, tenant.MaxModerationList-10, "2 years")
	write(f.community, 7, "1 day")
	write(other, 20, "3 years")
	year := time.Now().AddDate(-1, 0, 0)
	forget := func(limit int) int {
		n, err := f.ForgetActions(t.Context(), year, limit)
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 10, forget(10), "a page")
	require.Equal(t, 17, forget(100))
	require.Zero(t, forget(100))
	require.Equal(t, tenant.MaxModerationList, left(f.community))
	require.Equal(t, 20, left(other), "they are all that its moderators see")

	write(f.community, tenant.MaxModerationList+5, "1 day")
	require.Equal(t, tenant.MaxModerationList-7, forget(10_000))
	require.Equal(t, tenant.MaxModerationList+12, left(f.community), "what is not old stays, however much it is")
}

// Moderators get every report, also one about a channel that they do not see: what its h tag says means nothing, and so tells
// nothing either.
func TestReportsAreInNoChannel(t *testing.T) {
	f := newFixture(t)
	f.channel("secret", nostrtest.Tag("private"))
	for _, author := range []string{"owner", "mallory"} {
		for _, h := range []string{"secret", "nowhere", "no channel id!"} {
			report := f.candidate(author, nostrtest.Kind(nostr.KindReport), p("carol"), nostrtest.Tag("h", h))
			f.accept(report)
			require.Empty(t, f.storedIn(report))
		}
	}
}

// TestWhatIsRevokedFromAll has gateways look at everybody's sockets when they may have lost what let them in.
func TestWhatIsRevokedFromAll(t *testing.T) {
	f := newFixture(t)
	told := f.told()
	all := func() Revocation {
		return Revocation{Community: f.community, Whole: true, ACLVersion: f.version(f.community)}
	}
	for name, change := range map[string]CommunityChange{"closed": {Access: new(AccessClosed)}, "without agents": {Agents: new(AgentsRefuse)}} {
		*told = nil
		_, err := f.UpdateCommunity(t.Context(), f.community, change)
		require.NoError(t, err)
		require.Equal(t, []Revocation{all()}, *told, name)
	}
	_, err := f.AddHost(t.Context(), f.community, "alias.example")
	require.NoError(t, err)
	*told = nil
	before := f.version(f.community)
	require.NoError(t, f.RemoveHost(t.Context(), f.community, "alias.example"))
	require.Greater(t, f.version(f.community), before, "or a replica that is behind would be believed")
	require.Equal(t, []Revocation{all()}, *told)
	*told = nil
	before = f.version(f.community)
	require.ErrorIs(t, f.RemoveHost(t.Context(), f.community, "alias.example"), ErrNoCommunity)
	require.Equal(t, before, f.version(f.community))
	require.Empty(t, *told)
	_, err = f.UpdateCommunity(t.Context(), f.community, CommunityChange{Name: new("Two"), Access: new(AccessClosed)})
	require.NoError(t, err)
	require.Empty(t, *told)
}
