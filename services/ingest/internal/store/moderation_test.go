package store

import (
	"context"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// moderate makes a change as the owner and returns the version.
func (f *fixture) moderate(change Change) uint64 {
	f.t.Helper()
	return f.moderateIn(f.community, change)
}

func (f *fixture) moderateIn(community int64, change Change) uint64 {
	f.t.Helper()
	done, err := f.Moderate(f.t.Context(), Moderator{Community: community, Actor: nostrtest.PubKey("owner"), Reason: "because"}, change)
	require.NoError(f.t, err)
	return done.ACLVersion
}

func TestOnlyModeratorsModerate(t *testing.T) {
	f := newFixture(t)
	second := f.newCommunity("two.example", AccessOpen)
	for name, role := range map[string]policy.Role{"admin": "admin", "member": "member"} {
		_, err := f.PutMember(t.Context(), f.community, nostrtest.PubKey(name), role)
		require.NoError(t, err)
	}
	for _, c := range []struct {
		name      string
		community int64
		allowed   bool
	}{
		{"owner", f.community, true},
		{"admin", f.community, true},
		{"member", f.community, false},
		{"stranger", f.community, false},
		{"admin", second, false},
		{"owner", 999, false},
	} {
		_, err := f.Moderate(t.Context(), Moderator{Community: c.community, Actor: nostrtest.PubKey(c.name)}, AllowKind(1))
		if c.allowed {
			require.NoError(t, err, c.name)
			continue
		}
		require.ErrorIs(t, err, ErrNotModerator, c.name)
	}
	for _, change := range []Change{BanPubKey(nostrtest.PubKey("owner")), UnallowPubKey(nostrtest.PubKey("owner"))} {
		_, err := f.Moderate(t.Context(), Moderator{Community: f.community, Actor: nostrtest.PubKey("admin")}, change)
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, policy.OwnerIsSafe, refused.Verdict)
	}
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.banned_pubkeys`))
}

func TestBans(t *testing.T) {
	f := newFixture(t)
	bob := nostrtest.PubKey("bob")
	note := func(content string) *policy.Candidate { return f.candidate("bob", nostrtest.Content(content)) }
	wrap := f.candidate("throw-away", nostrtest.Kind(1059), p("alice"))
	wrap.Principal = []nostr.PubKey{nostrtest.PubKey("alice"), bob}
	require.EqualValues(t, 2, f.moderate(AllowPubKey(bob)))
	require.EqualValues(t, 2, f.moderate(AllowPubKey(bob)), "a member already")
	f.accept(note("1"))

	require.EqualValues(t, 3, f.moderate(BanPubKey(bob)))
	require.EqualValues(t, 3, f.moderate(BanPubKey(bob)))
	require.Equal(t, policy.Banned, f.verdict(note("2")))
	require.Equal(t, policy.Banned, f.verdict(wrap), "a throw-away key hides nobody")
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.community_members`))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.banned_pubkeys WHERE reason = 'because' AND decided_by = $1`, bytesOf(nostrtest.PubKey("owner"))))
	st, err := f.ReadState(t.Context(), []*policy.Candidate{note("2")})
	require.NoError(t, err)
	require.Equal(t, policy.Banned, policy.Admit(note("2"), st), "ephemeral events as well")

	require.EqualValues(t, 4, f.moderate(UnbanPubKey(bob)))
	require.EqualValues(t, 4, f.moderate(UnbanPubKey(bob)))
	f.accept(note("2"))
	require.EqualValues(t, 5, f.moderate(BanPubKey(bob)), "also of somebody who is no member")
	require.EqualValues(t, 6, f.moderate(AllowPubKey(bob)))
	f.accept(note("3"), wrap)
	require.EqualValues(t, 7, f.moderate(UnallowPubKey(bob)))
	require.EqualValues(t, 7, f.moderate(UnallowPubKey(bob)))
	f.accept(note("4")) // it is an open community
}

func TestAllowedKeepTheirRole(t *testing.T) {
	f := newFixture(t)
	require.EqualValues(t, 1, f.moderate(AllowPubKey(nostrtest.PubKey("owner"))))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.community_members WHERE role = 'owner'`))
}

// TestABanWaitsForBatchesInFlight bans a key whose event is between its judgement and its commit.
func TestABanWaitsForBatchesInFlight(t *testing.T) {
	f := newFixture(t)
	tx, err := f.admin.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock_shared($1)`, communityLock(f.community))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := f.Moderate(t.Context(), Moderator{Community: f.community, Actor: nostrtest.PubKey("owner")}, BanPubKey(nostrtest.PubKey("bob")))
		done <- err
	}()
	require.Eventually(t, func() bool { // Postgres tells nobody who begins to wait
		return f.count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 1
	}, 30*time.Second, 5*time.Millisecond)
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.banned_pubkeys`))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
	require.Equal(t, policy.Banned, f.verdict(f.candidate("bob")))
}

func TestBannedEvents(t *testing.T) {
	f := newFixture(t)
	second := f.newCommunity("two.example", AccessOpen)
	bad := f.candidate("bob", nostrtest.Kind(30023), nostrtest.Tag("d", "x"), nostrtest.Tag("t", "x"))
	kept, elsewhere := f.candidate("bob"), f.candidateIn(second, "bob", nostrtest.Kind(30023), nostrtest.Tag("d", "x"), nostrtest.Tag("t", "x"))
	never := f.candidate("alice", nostrtest.Content("never seen"))
	f.accept(bad, kept, elsewhere)
	require.EqualValues(t, 1, f.moderate(BanEvent(bad.Event.ID)))
	require.EqualValues(t, 1, f.moderate(BanEvent(bad.Event.ID)))
	f.moderate(BanEvent(never.Event.ID))
	f.requireStored(kept, elsewhere)
	require.Equal(t, policy.BannedEvent, f.verdict(bad))
	require.Equal(t, policy.BannedEvent, f.verdict(never))
	require.Equal(t, 2, f.count(`SELECT count(*) FROM ingest.banned_events WHERE reason = 'because'`))
	require.Equal(t, 2, f.count(`SELECT count(*) FROM ingest.decided_reports`))

	f.moderate(AllowEvent(bad.Event.ID))
	f.moderate(AllowEvent(kept.Event.ID))
	f.accept(bad)
	f.requireStored(kept, elsewhere, bad)
	require.Equal(t, 3, f.count(`SELECT count(*) FROM ingest.decided_reports`))

	// What is reported again after a decision, since it was edited, is decided on again.
	_, err := f.admin.Exec(t.Context(), `UPDATE ingest.decided_reports SET decided_at = now() - interval '1 day'`)
	require.NoError(t, err)
	f.moderate(AllowEvent(kept.Event.ID))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.decided_reports WHERE decided_at > now() - interval '1 hour' AND target_id = $1`, kept.Event.ID[:]))
}

func TestAllowedKinds(t *testing.T) {
	f := newFixture(t)
	second := f.newCommunity("two.example", AccessOpen)
	reaction := func(community int64, content string) *policy.Candidate {
		return f.candidateIn(community, "bob", nostrtest.Kind(7), nostrtest.Content(content))
	}
	f.moderate(AllowKind(1))
	f.moderate(AllowKind(1))
	f.accept(f.candidate("bob"), reaction(second, "+"))
	require.Equal(t, policy.Verdict{Reason: fault.Restricted, Message: "kind 7 is not accepted here"}, f.verdict(reaction(f.community, "+")))
	f.moderate(AllowKind(7))
	f.accept(reaction(f.community, "+"))
	f.moderate(DisallowKind(1))
	f.moderate(DisallowKind(7))
	f.accept(reaction(f.community, "-"), f.candidate("bob", nostrtest.Content("again")))
}

func TestBlockedNetworks(t *testing.T) {
	f := newFixture(t)
	network := netip.MustParsePrefix("192.0.2.0/24")
	f.moderate(BlockNetwork(network))
	f.moderate(BlockNetwork(network))
	f.moderate(BlockNetwork(netip.MustParsePrefix("2001:db8::/32")))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.blocked_networks WHERE network = '192.0.2.0/24' AND reason = 'because'`))
	_, err := f.admin.Exec(t.Context(), `
INSERT INTO ingest.blocked_networks (community_id, network, decided_by)
SELECT $1, ('10.' || n / 256 || '.' || n % 256 || '.0/24')::cidr, '' FROM generate_series(1, $2::integer) AS n`, f.community, MaxNetworks-2)
	require.NoError(t, err)
	f.moderate(BlockNetwork(network)) // it is there already
	m := Moderator{Community: f.community, Actor: nostrtest.PubKey("owner")}
	_, err = f.Moderate(t.Context(), m, BlockNetwork(netip.MustParsePrefix("198.51.100.1/32")))
	require.ErrorIs(t, err, ErrTooManyNetworks)
	f.moderate(UnblockNetwork(network))
	f.moderate(UnblockNetwork(network))
	f.moderate(BlockNetwork(netip.MustParsePrefix("198.51.100.1/32")))
	require.Equal(t, MaxNetworks, f.count(`SELECT count(*) FROM ingest.blocked_networks`))
}

func TestDescribe(t *testing.T) {
	f := newFixture(t)
	f.moderate(Describe(Description{Name: new("One")}))
	f.moderate(Describe(Description{About: new("About")}))
	f.moderate(Describe(Description{Icon: new("https://one.example/i.png")}))
	require.EqualValues(t, 1, f.moderate(Describe(Description{MinPow: new(int16(4))})), "nothing of it is access")
	require.Equal(t, 1, f.count(`
SELECT count(*) FROM ingest.communities
WHERE name = 'One' AND description = 'About' AND icon = 'https://one.example/i.png' AND min_pow = 4`))
}

// TestMinPow mines events, which takes some tries for a few bits.
func TestMinPow(t *testing.T) {
	f := newFixture(t)
	f.moderate(Describe(Description{MinPow: new(int16(4))}))
	mine := func(target string, enough func(bits int) bool) *policy.Candidate {
		for n := 0; ; n++ {
			if c := f.candidate("bob", nostrtest.Tag("nonce", strconv.Itoa(n), target)); enough(c.Event.ID.LeadingZeroBits()) {
				return c
			}
		}
	}
	good := func(bits int) bool { return bits >= 4 }
	f.accept(mine("4", good), mine("", good))
	require.Equal(t, policy.Verdict{Reason: fault.Pow, Message: "committed difficulty 3 is less than 4"}, f.verdict(mine("3", good)))
	require.Equal(t, policy.Verdict{Reason: fault.Pow, Message: "difficulty 0 is less than 4"}, f.verdict(mine("4", func(bits int) bool { return bits == 0 })))
}

func TestTokens(t *testing.T) {
	f := newFixture(t)
	second := f.newCommunity("two.example", AccessOpen)
	at := time.Unix(nostrtest.Epoch, 0)
	for i, community := range []int64{f.community, second} {
		require.NoError(t, f.ConsumeToken(t.Context(), community, nostr.ID{1}, at.Add(time.Duration(i)*time.Minute)))
		require.ErrorIs(t, f.ConsumeToken(t.Context(), community, nostr.ID{1}, at), ErrTokenUsed)
	}
	require.ErrorIs(t, f.ConsumeToken(t.Context(), 999, nostr.ID{1}, at), ErrNoCommunity)
	for _, want := range []int{1, 0} {
		removed, err := f.ExpireTokens(t.Context(), at.Add(time.Second), 10)
		require.NoError(t, err)
		require.Equal(t, want, removed)
	}
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.http_tokens WHERE community_id = $1`, second))
}
