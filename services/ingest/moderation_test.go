package ingest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// moderate asks for one change as the owner.
func moderate(tb testing.TB, r *replica, req *ingestv1.ModerateRequest) (*ingestv1.ModerateResponse, error) {
	tb.Helper()
	if req.Actor == nil {
		owner := nostrtest.PubKey("owner")
		req.Actor = owner[:]
	}
	return r.moderator.Moderate(tb.Context(), req)
}

func TestModeration(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	c := h.open(r)
	bob := nostrtest.PubKey("bob")
	note := event(t, "bob", nostrtest.Content("1"))
	c.accept(by(community, note, "bob"))

	banned, err := moderate(t, r, &ingestv1.ModerateRequest{Community: community, Reason: "spam", Change: &ingestv1.ModerateRequest_BanPubkey{BanPubkey: bob[:]}})
	require.NoError(t, err)
	require.EqualValues(t, 2, banned.GetAclVersion())
	requireVerdict(t, commonv1.Reason_REASON_BLOCKED, "you are banned from this community", c.offer(by(community, event(t, "bob"), "bob")))
	h.awaitStreams()
	requireVerdict(t, commonv1.Reason_REASON_BLOCKED, "you are banned from this community", c.offer(by(community, event(t, "bob", nostrtest.Kind(20001)), "bob")))
	_, err = moderate(t, r, &ingestv1.ModerateRequest{Community: community, Change: &ingestv1.ModerateRequest_AllowPubkey{AllowPubkey: bob[:]}})
	require.NoError(t, err)
	c.accept(by(community, event(t, "bob", nostrtest.Content("2")), "bob"))

	_, err = moderate(t, r, &ingestv1.ModerateRequest{Community: community, Change: &ingestv1.ModerateRequest_BanEvent{BanEvent: note.ID[:]}})
	require.NoError(t, err)
	requireVerdict(t, commonv1.Reason_REASON_BLOCKED, "event was removed by a moderator", c.offer(by(community, note, "bob")))
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.events`))

	for _, text := range []string{"192.0.2.77/24", "::ffff:192.0.2.1/120", "192.0.2.0/24"} {
		_, err = moderate(t, r, &ingestv1.ModerateRequest{Community: community, Change: &ingestv1.ModerateRequest_BlockIp{BlockIp: text}})
		require.NoError(t, err, text)
	}
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.blocked_networks WHERE network = '192.0.2.0/24'`))

	for _, req := range []*ingestv1.ModerateRequest{
		{Change: &ingestv1.ModerateRequest_UnbanPubkey{UnbanPubkey: bob[:]}},
		{Change: &ingestv1.ModerateRequest_UnallowPubkey{UnallowPubkey: bob[:]}},
		{Change: &ingestv1.ModerateRequest_AllowEvent{AllowEvent: note.ID[:]}},
		{Change: &ingestv1.ModerateRequest_UnblockIp{UnblockIp: "192.0.2.0/24"}},
		{Change: &ingestv1.ModerateRequest_Name{Name: "Team"}},
		{Change: &ingestv1.ModerateRequest_Description{Description: "All of us"}},
		{Change: &ingestv1.ModerateRequest_Icon{Icon: "https://one.example/i.png"}},
		{Change: &ingestv1.ModerateRequest_Icon{}},
		{Change: &ingestv1.ModerateRequest_AllowKind{AllowKind: 1}},
		{Change: &ingestv1.ModerateRequest_MinPow{MinPow: 64}},
	} {
		req.Community = community
		_, err := moderate(t, r, req)
		require.NoError(t, err, req)
	}
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.communities WHERE name = 'Team' AND description = 'All of us' AND icon = '' AND min_pow = 64`))
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.blocked_networks`))
	requireVerdict(t, commonv1.Reason_REASON_RESTRICTED, "kind 7 is not accepted here", c.offer(by(community, event(t, "bob", nostrtest.Kind(7)), "bob")))
	require.Equal(t, commonv1.Reason_REASON_POW, c.offer(by(community, note, "bob")).GetReason())
	_, err = moderate(t, r, &ingestv1.ModerateRequest{Community: community, Change: &ingestv1.ModerateRequest_MinPow{}})
	require.NoError(t, err)
	_, err = moderate(t, r, &ingestv1.ModerateRequest{Community: community, Change: &ingestv1.ModerateRequest_DisallowKind{DisallowKind: 1}})
	require.NoError(t, err)
	c.accept(by(community, event(t, "bob", nostrtest.Kind(7)), "bob"))
}

func TestModerationRefusals(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	owner, bob := nostrtest.PubKey("owner"), nostrtest.PubKey("bob")
	for _, c := range []struct {
		name string
		req  *ingestv1.ModerateRequest
		code codes.Code
	}{
		{"nothing", &ingestv1.ModerateRequest{}, codes.InvalidArgument},
		{"a short actor", &ingestv1.ModerateRequest{Actor: bob[:31], Change: &ingestv1.ModerateRequest_Name{Name: "x"}}, codes.InvalidArgument},
		{"a stranger", &ingestv1.ModerateRequest{Actor: bob[:], Change: &ingestv1.ModerateRequest_Name{Name: "x"}}, codes.PermissionDenied},
		{"the owner", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_BanPubkey{BanPubkey: owner[:]}}, codes.PermissionDenied},
		{"a long reason", &ingestv1.ModerateRequest{Reason: strings.Repeat("x", 1025), Change: &ingestv1.ModerateRequest_BanPubkey{BanPubkey: bob[:]}}, codes.InvalidArgument},
		{"a short key", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_BanPubkey{BanPubkey: bob[:31]}}, codes.InvalidArgument},
		{"a short id", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_BanEvent{BanEvent: bob[:31]}}, codes.InvalidArgument},
		{"a kind that is none", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_AllowKind{AllowKind: 65536}}, codes.InvalidArgument},
		{"an address that is none", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_BlockIp{BlockIp: "192.0.2"}}, codes.InvalidArgument},
		{"an address of a link", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_BlockIp{BlockIp: "fe80::1%eth0"}}, codes.InvalidArgument},
		{"more than all of IPv4", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_BlockIp{BlockIp: "::ffff:0.0.0.0/90"}}, codes.InvalidArgument},
		{"everybody", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_BlockIp{BlockIp: "0.0.0.0/0"}}, codes.InvalidArgument},
		{"a long name", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_Name{Name: strings.Repeat("x", 257)}}, codes.InvalidArgument},
		{"a NUL", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_Description{Description: "a\x00"}}, codes.InvalidArgument},
		{"a long description", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_Description{Description: strings.Repeat("x", 4097)}}, codes.InvalidArgument},
		{"an icon that is a script", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_Icon{Icon: "javascript:alert(1)"}}, codes.InvalidArgument},
		{"a long icon", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_Icon{Icon: "https://x/" + strings.Repeat("x", 2048)}}, codes.InvalidArgument},
		{"too much work", &ingestv1.ModerateRequest{Change: &ingestv1.ModerateRequest_MinPow{MinPow: 65}}, codes.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.req.Community = community
			_, err := moderate(t, r, c.req)
			require.Equal(t, c.code, status.Code(err), err)
		})
	}
}

// TestTokensAreUsedOnce shows one token to two replicas.
func TestTokensAreUsedOnce(t *testing.T) {
	h := newHarness(t)
	one, two := h.start("one"), h.start("two")
	community := h.community(one, "one.example", open)
	id := make([]byte, 32)
	token := func(in time.Duration) *ingestv1.ConsumeTokenRequest {
		return &ingestv1.ConsumeTokenRequest{Community: community, EventId: id, ExpiresAt: timestamppb.New(time.Now().Add(in))}
	}
	_, err := one.moderator.ConsumeToken(t.Context(), token(time.Minute))
	require.NoError(t, err)
	_, err = two.moderator.ConsumeToken(t.Context(), token(time.Minute))
	require.Equal(t, codes.PermissionDenied, status.Code(err), err)
	require.ErrorContains(t, err, "token was used")

	for _, req := range []*ingestv1.ConsumeTokenRequest{
		{Community: community, EventId: id}, {Community: community, EventId: id[:5], ExpiresAt: timestamppb.Now()}, token(2 * time.Hour),
	} {
		_, err := one.moderator.ConsumeToken(t.Context(), req)
		require.Equal(t, codes.InvalidArgument, status.Code(err), err)
	}
	elsewhere := token(time.Minute)
	elsewhere.Community = 999
	_, err = one.moderator.ConsumeToken(t.Context(), elsewhere)
	require.Equal(t, codes.NotFound, status.Code(err), err)
}

// TestVanishedInTheBackground has more events than one transaction removes.
func TestVanishedInTheBackground(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	c := h.open(r)
	at := time.Now().Unix()
	list := make([]*ingestv1.Submission, 0, 250)
	var refs []uint64
	for i := range 520 {
		list = append(list, by(community, event(t, "alice", nostrtest.Content(strings.Repeat("x", i+1)), nostrtest.CreatedAt(at)), "alice"))
		if len(list) == cap(list) || i == 519 {
			refs, list = append(refs, c.send(list...)...), list[:0]
		}
	}
	for _, v := range c.verdicts(refs...) {
		requireVerdict(t, commonv1.Reason_REASON_UNSPECIFIED, "", v)
	}
	c.accept(by(community, event(t, "alice", nostrtest.Kind(62), nostrtest.CreatedAt(at), nostrtest.Tag("relay", "ws://one.example")), "alice"))
	require.LessOrEqual(t, h.count(`SELECT count(*) FROM ingest.events`), 21)
	require.Eventually(t, func() bool { return h.count(`SELECT count(*) FROM ingest.events`) == 1 }, patience, 10*time.Millisecond)
	requireVerdict(t, commonv1.Reason_REASON_BLOCKED, "this key asked to vanish",
		c.offer(by(community, event(t, "alice", nostrtest.Content("x"), nostrtest.CreatedAt(at)), "alice")))
}

// TestProtectedEvents shows what only its author may publish.
func TestProtectedEvents(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	c := h.open(r)
	protected := event(t, "alice", nostrtest.Tag("-"))
	requireVerdict(t, commonv1.Reason_REASON_AUTH_REQUIRED, "this event may only be published by its author", c.offer(by(community, protected, "bob")))
	c.accept(by(community, protected, "alice"))
	repost := event(t, "bob", nostrtest.Kind(6), nostrtest.Content(string(nostrtest.Raw(protected))))
	requireVerdict(t, commonv1.Reason_REASON_INVALID, "reposts must not embed a protected event", c.offer(by(community, repost, "bob")))
}
