package ingest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// withKey gives the relay a key.
func withKey(o *options) { o.cfg.RelayKey = config.NewSecret(nostrtest.Key("relay").Hex()) }

// Whoever changes the roster, the relay says so, to those who listen as well: the operator, moderators, and who joins
// over HTTP or by an event.
func TestTheRosterIsPublishedWhoeverChangesIt(t *testing.T) {
	h := newHarness(t)
	one, two := h.start("one", withKey), h.start("two", withKey)
	h.awaitStreams()
	community := h.community(one, "team.example", closed)
	owner, bob, carol := nostrtest.PubKey("owner"), nostrtest.PubKey("bob"), nostrtest.PubKey("carol")
	_, err := two.directory.PutMember(t.Context(), &ingestv1.PutMemberRequest{Host: "team.example", Pubkey: bob[:], Role: "member"})
	require.NoError(t, err)
	_, err = one.moderator.Moderate(t.Context(), &ingestv1.ModerateRequest{
		Community: community, Actor: owner[:], Change: &ingestv1.ModerateRequest_BanPubkey{BanPubkey: bob[:]},
	})
	require.NoError(t, err)
	invite, err := two.invites.MintInvite(t.Context(), &ingestv1.MintInviteRequest{Community: community, Actor: owner[:]})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(72*time.Hour), invite.GetExpiresAt().AsTime(), time.Hour)
	claim, err := one.invites.ClaimInvite(t.Context(), &ingestv1.ClaimInviteRequest{Community: community, Pubkey: carol[:], Code: invite.GetCode()})
	require.NoError(t, err)
	require.Equal(t, ingestv1.ClaimOutcome_CLAIM_OUTCOME_JOINED, claim.GetOutcome())
	_, err = one.invites.ClaimInvite(t.Context(), &ingestv1.ClaimInviteRequest{Community: community, Pubkey: bob[:], Code: invite.GetCode()})
	require.Equal(t, codes.PermissionDenied, status.Code(err), "bob is banned")

	// A request to join is of an ephemeral kind, but is carried out; the same event at another replica, as after a broken
	// stream, is not carried out again.
	join := event(t, "dave", nostrtest.Kind(nostr.KindRelayJoinRequest), nostrtest.Tag("claim", invite.GetCode()))
	requireVerdict(t, commonv1.Reason_REASON_UNSPECIFIED, "info: welcome to this relay", h.open(one).offer(by(community, join, "dave")))
	requireVerdict(t, commonv1.Reason_REASON_DUPLICATE, "you are already a member of this relay", h.open(two).offer(by(community, join, "dave")))
	bad := event(t, "erin", nostrtest.Kind(nostr.KindRelayJoinRequest), nostrtest.Tag("claim", "x"))
	requireVerdict(t, commonv1.Reason_REASON_RESTRICTED, "that is an invalid invite code", h.open(one).offer(by(community, bad, "erin")))

	count := map[nostr.Kind]int{}
	var last *nostr.Event
	for _, e := range h.published() {
		ev, err := wire.DecodeEvent(e.GetRaw(), wire.DefaultLimits())
		require.NoError(t, err)
		require.NoError(t, ev.Verify())
		require.Equal(t, nostrtest.PubKey("relay"), ev.PubKey)
		if count[ev.Kind]++; ev.Kind == nostr.KindRelayMembers && (last == nil || ev.CreatedAt > last.CreatedAt) {
			last = ev
		}
	}
	require.Equal(t, map[nostr.Kind]int{
		nostr.KindRelayMembers: 5, nostr.KindRelayMemberAdded: 4, nostr.KindRelayMemberRemoved: 1, nostr.KindRelayRole: 3,
	}, count)
	require.Equal(t, 3, last.Tags.Count("member"), "owner, carol and dave")
}

func TestInviteRefusals(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "team.example", closed)
	owner, stranger := nostrtest.PubKey("owner"), nostrtest.PubKey("stranger")
	for name, c := range map[string]struct {
		req  *ingestv1.MintInviteRequest
		code codes.Code
	}{
		"no actor":      {&ingestv1.MintInviteRequest{Community: community}, codes.InvalidArgument},
		"no moderator":  {&ingestv1.MintInviteRequest{Community: community, Actor: stranger[:]}, codes.PermissionDenied},
		"no community":  {&ingestv1.MintInviteRequest{Community: community + 9, Actor: owner[:]}, codes.PermissionDenied},
		"a short life":  {&ingestv1.MintInviteRequest{Community: community, Actor: owner[:], Life: durationpb.New(0)}, codes.InvalidArgument},
		"a long life":   {&ingestv1.MintInviteRequest{Community: community, Actor: owner[:], Life: durationpb.New(31 * 24 * time.Hour)}, codes.InvalidArgument},
		"too many uses": {&ingestv1.MintInviteRequest{Community: community, Actor: owner[:], MaxUses: 10_001}, codes.InvalidArgument},
	} {
		_, err := r.invites.MintInvite(t.Context(), c.req)
		require.Equal(t, c.code, status.Code(err), name)
	}
	// Without a key of the relay there is a code, and no event of it; commands are refused.
	invite, err := r.invites.MintInvite(t.Context(), &ingestv1.MintInviteRequest{Community: community, Actor: owner[:], Life: durationpb.New(time.Hour), MaxUses: 1})
	require.NoError(t, err)
	require.Empty(t, invite.GetEvent())
	join := event(t, "dave", nostrtest.Kind(nostr.KindRelayJoinRequest), nostrtest.Tag("claim", invite.GetCode()))
	got := h.open(r).offer(by(community, join, "dave"))
	requireVerdict(t, commonv1.Reason_REASON_RESTRICTED, "this relay has no key to sign with, so it does not take this command", got)
	for _, c := range []struct {
		name, code string
		want       ingestv1.ClaimOutcome
	}{
		{"dave", "v2.nothing", ingestv1.ClaimOutcome_CLAIM_OUTCOME_INVALID},
		{"dave", invite.GetCode(), ingestv1.ClaimOutcome_CLAIM_OUTCOME_JOINED},
		{"dave", invite.GetCode(), ingestv1.ClaimOutcome_CLAIM_OUTCOME_ALREADY_MEMBER},
		{"erin", invite.GetCode(), ingestv1.ClaimOutcome_CLAIM_OUTCOME_USED_UP},
		{"erin", string(make([]byte, 257)), ingestv1.ClaimOutcome_CLAIM_OUTCOME_INVALID},
	} {
		key := nostrtest.PubKey(c.name)
		resp, err := r.invites.ClaimInvite(t.Context(), &ingestv1.ClaimInviteRequest{Community: community, Pubkey: key[:], Code: c.code})
		require.NoError(t, err)
		require.Equal(t, c.want, resp.GetOutcome())
	}
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.events`))
}

// What has to be accepted by whoever joins is the same on each replica, and so are its receipts.
func TestJoinPolicy(t *testing.T) {
	h := newHarness(t)
	asks := func(o *options) {
		withKey(o)
		o.cfg.JoinTerms, o.cfg.JoinAgeAttestation = "# Terms", true
	}
	one, two := h.start("one", asks), h.start("two", asks)
	community := h.community(one, "team.example", closed)
	owner, carol := nostrtest.PubKey("owner"), nostrtest.PubKey("carol")
	invite, err := one.invites.MintInvite(t.Context(), &ingestv1.MintInviteRequest{Community: community, Actor: owner[:]})
	require.NoError(t, err)
	got, err := two.invites.GetJoinPolicy(t.Context(), &ingestv1.GetJoinPolicyRequest{})
	require.NoError(t, err)
	require.Equal(t, "# Terms", got.GetPolicy().GetTermsMarkdown())
	require.Empty(t, got.GetPolicy().GetPrivacyMarkdown())
	require.True(t, got.GetPolicy().GetAgeAttestationRequired())
	accept := func(code, version string, age bool) (string, error) {
		resp, err := one.invites.AcceptJoinPolicy(t.Context(), &ingestv1.AcceptJoinPolicyRequest{
			Community: community, Code: code, Version: version, AgeConfirmed: age,
		})
		return resp.GetReceipt(), err
	}
	for _, c := range []struct {
		code, version string
		age           bool
		message       string
	}{
		{invite.GetCode(), got.GetPolicy().GetVersion(), false, "join_policy_not_accepted: age"},
		{invite.GetCode(), "", true, "join_policy_not_accepted: policy_version"},
		{"", got.GetPolicy().GetVersion(), true, "code must have 1 to 256 bytes"},
		{string(make([]byte, 257)), got.GetPolicy().GetVersion(), true, "code must have 1 to 256 bytes"},
	} {
		_, err := accept(c.code, c.version, c.age)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.Equal(t, c.message, status.Convert(err).Message())
	}
	_, err = accept("whether good or not is not told", got.GetPolicy().GetVersion(), true)
	require.NoError(t, err)
	receipt, err := accept(invite.GetCode(), got.GetPolicy().GetVersion(), true)
	require.NoError(t, err)
	for _, c := range []struct {
		receipt string
		want    ingestv1.ClaimOutcome
	}{
		{"", ingestv1.ClaimOutcome_CLAIM_OUTCOME_POLICY_REQUIRED}, {receipt, ingestv1.ClaimOutcome_CLAIM_OUTCOME_JOINED},
	} {
		resp, err := two.invites.ClaimInvite(t.Context(), &ingestv1.ClaimInviteRequest{
			Community: community, Pubkey: carol[:], Code: invite.GetCode(), PolicyReceipt: c.receipt,
		})
		require.NoError(t, err)
		require.Equal(t, c.want, resp.GetOutcome())
	}
	none := h.start("without")
	got, err = none.invites.GetJoinPolicy(t.Context(), &ingestv1.GetJoinPolicyRequest{})
	require.NoError(t, err)
	require.Nil(t, got.GetPolicy())
	_, err = none.invites.AcceptJoinPolicy(t.Context(), &ingestv1.AcceptJoinPolicyRequest{Community: community, Code: "x"})
	require.Equal(t, codes.NotFound, status.Code(err))
}
