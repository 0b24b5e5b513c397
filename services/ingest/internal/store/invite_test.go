package store

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// occupy holds a community until it is released, exclusively or as batches do.
func (f *fixture) occupy(community int64, lock string) (release func()) {
	f.t.Helper()
	tx, err := f.admin.Begin(f.t.Context())
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(f.t.Context())) }) // also when the test fails
	_, err = tx.Exec(f.t.Context(), `SELECT `+lock+`($1)`, communityLock(community))
	require.NoError(f.t, err)
	return func() { require.NoError(f.t, tx.Rollback(f.t.Context())) }
}

// The community does not wait for strangers who guess codes, nor do they wait for it.
func TestWrongCodesHoldNobodyUp(t *testing.T) {
	f := newFixture(t).withKey()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	release := f.occupy(f.community, "pg_advisory_xact_lock")
	_, err := f.ClaimInvite(ctx, Claim{Community: f.community, PubKey: nostrtest.PubKey("mallory"), Code: "v2.nothing"})
	require.ErrorIs(t, err, ErrInviteInvalid)
	_, err = f.ClaimInvite(ctx, Claim{Community: f.community, PubKey: nostrtest.PubKey("owner"), Code: "v2.nothing"})
	require.ErrorIs(t, err, ErrAlreadyMember)
	release()

	release = f.occupy(f.community, "pg_advisory_xact_lock_shared")
	defer release()
	result, err := f.Commit(ctx, []*policy.Candidate{f.command(f.community, "mallory", nostr.KindRelayJoinRequest, nostrtest.Tag("claim", "v2.nothing"))})
	require.NoError(t, err)
	require.Equal(t, []policy.Verdict{policy.InviteInvalid}, result.Verdicts)
}

// Nor for those who would moderate and are no moderators.
func TestWhoMayNotModerateHoldsNobodyUp(t *testing.T) {
	f := newFixture(t).withKey()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	release := f.occupy(f.community, "pg_advisory_xact_lock_shared")
	defer release()
	mallory := nostrtest.PubKey("mallory")
	_, err := f.MintInvite(ctx, f.community, mallory, time.Hour, 0)
	require.ErrorIs(t, err, ErrNotModerator)
	_, err = f.Moderate(ctx, Moderator{Community: f.community, Actor: mallory}, BanPubKey(nostrtest.PubKey("bob")))
	require.ErrorIs(t, err, ErrNotModerator)
	soon := until(time.Now().Add(time.Hour))
	for _, kind := range []nostr.Kind{
		nostr.KindRelayAddMember, nostr.KindRelayRemoveMember, nostr.KindRelayChangeRole,
		nostr.KindBan, nostr.KindUnban, nostr.KindTimeout, nostr.KindUntimeout, nostr.KindResolveReport,
	} {
		result, err := f.Commit(ctx, []*policy.Candidate{f.command(f.community, "mallory", kind, p("bob"), soon, nostrtest.Tag("role", "member"),
			nostrtest.Tag("report", strings.Repeat("ab", 32)), nostrtest.Tag("status", "dismissed"), nostrtest.Tag("action", "dismiss"))})
		require.NoError(t, err, kind)
		require.False(t, result.Verdicts[0].Accepted(), kind)
		require.Nil(t, result.Row, kind)
	}
	for _, c := range []*policy.Candidate{
		f.command(f.community, "mallory", nostr.KindRelaySetProfile, nostrtest.Tag("icon", "")),
		f.command(f.community, "mallory", nostr.KindRelayLeaveRequest, nostrtest.Tag("-")),
		f.command(f.community, "owner", nostr.KindRelayLeaveRequest, nostrtest.Tag("-")),
	} {
		result, err := f.Commit(ctx, []*policy.Candidate{c})
		require.NoError(t, err, c.Event.Kind)
		require.False(t, result.Verdicts[0].Accepted(), c.Event.Kind)
	}
}

// However many changes wait for a community, batches of the others find a connection.
func TestChangesLeaveConnectionsToBatches(t *testing.T) {
	f := newFixture(t).withKey()
	other := f.newCommunity("two.example", AccessOpen)
	release := f.occupy(f.community, "pg_advisory_xact_lock")
	most := int(f.pool.Config().MaxConns)
	var waiting sync.WaitGroup
	for i := range 2 * most {
		key := nostrtest.PubKey("key " + strconv.Itoa(i))
		waiting.Go(func() {
			_, err := f.PutMember(t.Context(), f.community, key, policy.RoleMember)
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool {
		return f.count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) >= max(most/changesPart, 1)
	}, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i := range 10 {
		_, err := f.Commit(ctx, []*policy.Candidate{f.candidateIn(other, "alice", nostrtest.Content(strconv.Itoa(i)))})
		require.NoError(t, err)
	}
	release()
	waiting.Wait()
}

// A code is worth what its maker may do when it is used, and does not come to life again with the maker's rights.
func TestInvitesEndWithTheRightsOfTheirMaker(t *testing.T) {
	for name, end := range map[string]func(f *fixture){
		"removed": func(f *fixture) {
			v, _ := f.order(f.command(f.community, "owner", nostr.KindRelayRemoveMember, p("admin")))
			require.Equal(f.t, policy.Verdict{}, v)
		},
		"demoted": func(f *fixture) {
			v, _ := f.order(f.command(f.community, "owner", nostr.KindRelayChangeRole, p("admin"), nostrtest.Tag("role", "member")))
			require.Equal(f.t, policy.Verdict{}, v)
		},
		"banned": func(f *fixture) {
			f.moderate(BanPubKey(nostrtest.PubKey("admin")))
			f.moderate(UnbanPubKey(nostrtest.PubKey("admin")))
		},
		"left": func(f *fixture) {
			v, _ := f.order(f.command(f.community, "admin", nostr.KindRelayLeaveRequest, nostrtest.Tag("-")))
			require.Equal(f.t, policy.Left, v)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t).withKey()
			f.put(f.community, "admin", policy.RoleAdmin)
			own, err := f.MintInvite(t.Context(), f.community, nostrtest.PubKey("owner"), time.Hour, 0)
			require.NoError(t, err)
			invite, err := f.MintInvite(t.Context(), f.community, nostrtest.PubKey("admin"), time.Hour, 0)
			require.NoError(t, err)
			end(f)
			f.put(f.community, "admin", policy.RoleAdmin)
			_, err = f.ClaimInvite(t.Context(), Claim{Community: f.community, PubKey: nostrtest.PubKey("x"), Code: invite.Code})
			require.ErrorIs(t, err, ErrInviteInvalid)
			_, err = f.ClaimInvite(t.Context(), Claim{Community: f.community, PubKey: nostrtest.PubKey("x"), Code: own.Code})
			require.NoError(t, err, "the codes of others are good")
		})
	}
	f := newFixture(t)
	invite, err := f.MintInvite(t.Context(), f.community, nostrtest.PubKey("owner"), time.Hour, 0)
	require.NoError(t, err)
	_, err = f.admin.Exec(t.Context(), `UPDATE ingest.community_members SET role = 'member'`)
	require.NoError(t, err)
	_, err = f.ClaimInvite(t.Context(), Claim{Community: f.community, PubKey: nostrtest.PubKey("x"), Code: invite.Code})
	require.ErrorIs(t, err, ErrInviteInvalid, "whatever took the rights")
}

func TestChannelInvitesEndWithTheRightsOfTheirMaker(t *testing.T) {
	admin := nostrtest.Tag("role", "admin")
	for name, end := range map[string]func(h *hall){
		"removed": func(h *hall) { h.must("alice", nostr.KindRemoveUser, p("bob")) },
		"demoted": func(h *hall) { h.must("alice", nostr.KindPutUser, p("bob"), nostrtest.Tag("role", "member")) },
		"banned": func(h *hall) {
			h.moderate(BanPubKey(nostrtest.PubKey("bob")))
			h.moderate(UnbanPubKey(nostrtest.PubKey("bob")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHall(t, nostrtest.Tag("private"))
			h.must("alice", nostr.KindPutUser, p("bob"), admin)
			h.must("alice", nostr.KindCreateInvite, nostrtest.Tag("code", "front door"))
			h.must("bob", nostr.KindCreateInvite, nostrtest.Tag("code", "back door"))
			end(h)
			h.must("alice", nostr.KindPutUser, p("bob"), admin)
			v, _ := h.do("mallory", nostr.KindJoinRequest, nostrtest.Tag("code", "back door"))
			require.False(t, v.Accepted())
			h.must("carol", nostr.KindJoinRequest, nostrtest.Tag("code", "front door"))
		})
	}
}

func TestChannelInvitesExpire(t *testing.T) {
	h := newHall(t)
	h.must("alice", nostr.KindCreateInvite, nostrtest.Tag("code", "back door"), nostrtest.Tag("expiration", "250000000000"))
	rows, err := h.admin.Query(t.Context(), `SELECT expires_at FROM ingest.channel_invites`)
	require.NoError(t, err)
	expires, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(policy.ChannelInviteLife), expires, time.Minute)
}

// A request to join that was granted once says nothing about what its author is now.
func TestAJoinThatIsSentAgain(t *testing.T) {
	f := newFixture(t).withKey()
	closed := f.newCommunity("closed.example", AccessClosed)
	invite, err := f.MintInvite(t.Context(), closed, nostrtest.PubKey("owner"), time.Hour, 0)
	require.NoError(t, err)
	join := f.command(closed, "bob", nostr.KindRelayJoinRequest, nostrtest.Tag("claim", invite.Code))
	v, _ := f.order(join)
	require.Equal(t, policy.Welcome, v)
	v, _ = f.order(join)
	require.Equal(t, policy.AlreadyMember, v)
	v, _ = f.order(f.command(closed, "owner", nostr.KindRelayRemoveMember, p("bob")))
	require.Equal(t, policy.Verdict{}, v)
	v, row := f.order(join)
	require.Equal(t, policy.NotMember, v)
	require.Nil(t, row)
}

// An agent that has rights of its own has none of them while its owner is banned: neither its codes nor new ones open anything.
func TestABannedOwnersAgentOpensNothing(t *testing.T) {
	h := newHall(t, nostrtest.Tag("private"))
	ctx, bot := t.Context(), nostrtest.PubKey("bot")
	h.put(h.community, "bot", policy.RoleAdmin)
	require.NoError(t, h.attest(h.community, "bot", "bob", time.Time{}))
	h.must("alice", nostr.KindPutUser, p("bot"), nostrtest.Tag("role", "admin"))
	h.must("bot", nostr.KindCreateInvite, nostrtest.Tag("code", "back door"))
	invite, err := h.MintInvite(ctx, h.community, bot, time.Hour, 0)
	require.NoError(t, err)

	h.moderate(BanPubKey(nostrtest.PubKey("bob")))
	_, err = h.ClaimInvite(ctx, Claim{Community: h.community, PubKey: nostrtest.PubKey("mallory"), Code: invite.Code})
	require.ErrorIs(t, err, ErrInviteInvalid)
	v, _ := h.do("mallory", nostr.KindJoinRequest, nostrtest.Tag("code", "back door"))
	require.Equal(t, policy.JoinRefused, v)
	_, err = h.MintInvite(ctx, h.community, bot, time.Hour, 0)
	require.ErrorIs(t, err, ErrNotModerator)
	_, err = h.Moderate(ctx, Moderator{Community: h.community, Actor: bot}, UnbanPubKey(nostrtest.PubKey("bob")))
	require.ErrorIs(t, err, ErrNotModerator, "least of all its owner's ban")

	h.moderate(UnbanPubKey(nostrtest.PubKey("bob")))
	_, err = h.ClaimInvite(ctx, Claim{Community: h.community, PubKey: nostrtest.PubKey("carol"), Code: invite.Code})
	require.NoError(t, err, "what it may do now")
	h.must("carol", nostr.KindJoinRequest, nostrtest.Tag("code", "back door"))
}

// Who joins with an invite has to accept the policy, at either door, and not before the code is good. Who is a member is not asked again.
func TestTheJoinPolicyIsAccepted(t *testing.T) {
	f := newFixture(t).withKey()
	asks := policy.NewJoinPolicy("Be kind.", "", false, []byte("secret"))
	WithJoinPolicy(asks)(f.Store)
	closed, other := f.newCommunity("closed.example", AccessClosed), f.newCommunity("other.example", AccessClosed)
	invite, err := f.MintInvite(t.Context(), closed, nostrtest.PubKey("owner"), time.Hour, 2)
	require.NoError(t, err)
	claim := func(name, code, receipt string) error {
		_, err := f.ClaimInvite(t.Context(), Claim{Community: closed, PubKey: nostrtest.PubKey(name), Code: code, Receipt: receipt})
		return err
	}
	join := func(name, receipt string) policy.Verdict {
		v, _ := f.order(f.command(closed, name, nostr.KindRelayJoinRequest, nostrtest.Tag("claim", invite.Code), nostrtest.Tag("policy_receipt", receipt)))
		return v
	}
	receipt, wrong := asks.Accept(closed, invite.Code, asks.Version(), false)
	require.Empty(t, wrong)
	elsewhere, _ := asks.Accept(other, invite.Code, asks.Version(), false)
	of, _ := asks.Accept(closed, "v2.nothing", asks.Version(), false)
	for _, bad := range []string{"", elsewhere, of} {
		require.ErrorIs(t, claim("alice", invite.Code, bad), ErrPolicyRequired)
		require.Equal(t, policy.JoinPolicyRequired, join("alice", bad))
	}
	require.ErrorIs(t, claim("alice", "v2.nothing", of), ErrInviteInvalid)
	require.NoError(t, claim("alice", invite.Code, receipt), "what was refused used nothing up")
	require.ErrorIs(t, claim("alice", invite.Code, ""), ErrAlreadyMember)
	require.Equal(t, policy.Welcome, join("bob", receipt))
	require.Equal(t, policy.InviteUsedUp, join("carol", ""))
}
