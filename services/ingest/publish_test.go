package ingest_test

import (
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

const (
	accepted    = commonv1.Reason_REASON_UNSPECIFIED
	duplicate   = commonv1.Reason_REASON_DUPLICATE
	invalid     = commonv1.Reason_REASON_INVALID
	restricted  = commonv1.Reason_REASON_RESTRICTED
	blocked     = commonv1.Reason_REASON_BLOCKED
	exists      = commonv1.Reason_REASON_EXISTS
	unsupported = commonv1.Reason_REASON_UNSUPPORTED
	authNeeded  = commonv1.Reason_REASON_AUTH_REQUIRED
	overloaded  = commonv1.Reason_REASON_OVERLOADED
	open        = ingestv1.Access_ACCESS_OPEN
	closed      = ingestv1.Access_ACCESS_CLOSED
)

func TestVerdicts(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	h.awaitStreams()
	one, members := h.community(r, "one.example", open), h.community(r, "closed.example", closed)
	c := h.open(r)
	alice := func(opts ...nostrtest.Option) *ingestv1.Submission {
		return by(one, event(t, "alice", opts...), "alice")
	}
	raw := func(edit func(string) string) *ingestv1.Submission {
		s := alice(nostrtest.Content("original"))
		s.Raw = []byte(edit(string(s.GetRaw())))
		return s
	}
	kind, h9 := nostrtest.Kind, nostrtest.Channel

	note := alice(nostrtest.Content("hello"))
	c.accept(
		note,
		by(one, event(t, "owner", kind(9007), h9("open")), "owner"),
		by(one, event(t, "owner", kind(9007), h9("private"), nostrtest.Tag("private")), "owner"),
		alice(kind(9), h9("open")),
		by(one, event(t, "owner", kind(9), h9("private")), "owner"),
		by(members, event(t, "owner"), "owner"),
		by(one, event(t, "throw-away", kind(1059)), "alice"),
		by(one, event(t, "bob"), "alice", "bob"),
		alice(kind(20001)),
	)
	for _, tc := range []struct {
		name    string
		offer   *ingestv1.Submission
		reason  commonv1.Reason
		message string
	}{
		{"again", note, duplicate, "already have this event"},
		{"no JSON", raw(func(string) string { return "nonsense" }), invalid, ""},
		{"no community", by(0, event(t, "alice"), "alice"), invalid, "no community"},
		{"nobody", by(one, event(t, "alice")), authNeeded, "not authenticated"},
		{"another's", by(one, event(t, "bob"), "alice"), invalid, "event pubkey does not match authenticated identity"},
		{"changed", raw(func(s string) string { return strings.Replace(s, "original", "changed", 1) }), invalid, nostr.ErrBadID.Error()},
		{"forged", raw(func(s string) string {
			i := strings.Index(s, `"sig":"`) + 7
			return s[:i] + strings.Repeat("0", 128) + s[i+128:]
		}), invalid, nostr.ErrBadSignature.Error()},
		{"too old", alice(nostrtest.CreatedAt(time.Now().Unix() - 1000)), invalid, "event timestamp too far from server time"},
		{"too large", alice(nostrtest.Content(strings.Repeat("x", 262145))), invalid, "content exceeds maximum size of 262144 bytes (got 262145)"},
		{"much too large", alice(nostrtest.Content(strings.Repeat("x", 600000))), invalid, ""},
		{"expired", alice(nostrtest.Tag("expiration", "5")), invalid, "event has expired"},
		{"AUTH", alice(kind(22242)), invalid, "AUTH events cannot be submitted"},
		{"relay-only", alice(kind(39000)), restricted, "relay-only kind"},
		{"a command", alice(kind(9010), h9("open")), unsupported, "kind 9010 is not supported"},
		{"unknown channel", alice(kind(9), h9("unknown")), restricted, "not a channel member"},
		{"hidden channel", alice(kind(9), h9("private")), restricted, "not a channel member"},
		{"no channel", alice(kind(9)), invalid, "channel-scoped events must include an h tag"},
		{"existing channel", alice(kind(9007), h9("open")), exists, "channel already exists"},
		{"closed community", by(members, event(t, "alice"), "alice"), restricted, "not a relay member"},
		{"ephemeral, hidden channel", alice(kind(20002), h9("private")), restricted, "not a channel member"},
		{"ephemeral, closed community", by(members, event(t, "alice", kind(20001)), "alice"), restricted, "not a relay member"},
		{"too many keys", by(one, event(t, "alice"), strings.Split(strings.Repeat("alice,", 17), ",")[:17]...), invalid, "too many authenticated keys"},
		{"malformed key", func() *ingestv1.Submission { s := alice(); s.Principal.Pubkeys[0] = []byte{1}; return s }(), invalid, "malformed principal"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := c.offer(tc.offer)
			require.Equal(t, tc.reason.String(), got.GetReason().String(), got.GetMessage())
			if tc.message == "" {
				require.NotEmpty(t, got.GetMessage())
			} else {
				require.Equal(t, tc.message, got.GetMessage())
			}
		})
	}
	require.NoError(t, c.stream.CloseSend())
	_, err := c.stream.Recv()
	require.ErrorIs(t, err, io.EOF)
}

func TestAcceptedEventsArePublished(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	c := h.open(r)
	var list []*ingestv1.Submission
	for i := range 200 {
		list = append(list, by(community, event(t, "alice", nostrtest.Content(strconv.Itoa(i))), "alice"))
	}
	for _, v := range c.verdicts(c.send(list...)...) {
		requireVerdict(t, accepted, "", v)
	}
	got := h.events().await(t, len(list))
	require.Len(t, got, len(list))
	for i, e := range got {
		require.Equal(t, string(list[i].GetRaw()), string(e.GetRaw()), "in the order of the client")
		require.NotZero(t, e.GetHeader().GetCommitXid())
		require.NotZero(t, e.GetHeader().GetDatabaseId())
	}
	h.awaitEmptyOutbox()
}

// A server that takes only small messages gets small ones, and an event that it would not take at all is not
// accepted: what is committed is passed on.
func TestBatchesFitTheServersMessages(t *testing.T) {
	const most = 64 << 10
	h := newHarness(t, bustest.MaxPayload(most))
	r := h.start("one")
	h.awaitStreams()
	community := h.community(r, "one.example", open)
	c := h.open(r)
	var list []*ingestv1.Submission
	for i := range 40 {
		list = append(list, by(community, event(t, "alice", nostrtest.Content(strconv.Itoa(i)+strings.Repeat("x", 10_000))), "alice"))
	}
	for _, v := range c.verdicts(c.send(list...)...) {
		requireVerdict(t, accepted, "", v)
	}
	require.Len(t, h.events().await(t, len(list)), len(list))
	h.awaitEmptyOutbox()

	const largest = most - 1024 - 384 - (1536 + 384) // with the summary of a thread
	of := func(size int, opts ...nostrtest.Option) *ingestv1.Submission {
		small := len(nostrtest.Raw(event(t, "alice", append(opts, nostrtest.Content(""))...)))
		return by(community, event(t, "alice", append(opts, nostrtest.Content(strings.Repeat("x", size-small)))...), "alice")
	}
	for _, v := range c.verdicts(c.send(of(largest+1), of(largest+1, nostrtest.Kind(20001)))...) {
		require.Equal(t, invalid, v.GetReason())
		require.Equal(t, "event exceeds maximum size of 62208 bytes (got 62209)", v.GetMessage())
	}
	c.accept(of(largest))
	h.events().await(t, len(list)+1)
	h.awaitEmptyOutbox()
}

// What could not be passed on together with what the relay may sign because of it is refused with the reason, not
// committed; what has less signed is taken, as is everything without a key.
func TestCommandsFitTheServersMessages(t *testing.T) {
	h := newHarness(t, bustest.MaxPayload(64<<10))
	keyless, signing := h.start("one"), h.start("two", withKey)
	h.awaitStreams()
	community := h.community(keyless, "one.example", open)
	one, two := h.open(keyless), h.open(signing)
	alice := func(opts ...nostrtest.Option) *ingestv1.Submission {
		return by(community, event(t, "alice", append(opts, nostrtest.Channel("c"))...), "alice")
	}
	const tooSmall = "the max_payload of this relay's NATS is too small for what the relay may have to sign because of this"
	requireVerdict(t, invalid, tooSmall, two.offer(alice(nostrtest.Kind(nostr.KindCreateGroup))))
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.channels`))
	one.accept(alice(nostrtest.Kind(nostr.KindCreateGroup)))
	message := event(t, "alice", nostrtest.Kind(nostr.KindChat), nostrtest.Channel("c"))
	two.accept(by(community, message, "alice"), alice(nostrtest.Kind(nostr.KindDeleteEvent), nostrtest.Tag("e", message.ID.String())))

	targets := []nostrtest.Option{nostrtest.Kind(nostr.KindDeletion), nostrtest.Content(strings.Repeat("x", 10_000))}
	for i := range 32 {
		targets = append(targets, nostrtest.Tag("e", nostr.ID{byte(i), 1}.String()))
	}
	requireVerdict(t, invalid, tooSmall, two.offer(by(community, event(t, "alice", targets...), "alice")))
	one.accept(by(community, event(t, "alice", targets...), "alice"))
	h.awaitEmptyOutbox()
}

// TestPipelinedOrder sends what depends on each other without waiting for verdicts.
func TestPipelinedOrder(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	community := h.community(r, "one.example", open)
	c := h.open(r)
	alice := func(opts ...nostrtest.Option) *ingestv1.Submission {
		return by(community, event(t, "alice", opts...), "alice")
	}
	now := time.Now().Unix()
	target := event(t, "alice", nostrtest.Content("target"))
	profile := func(i int64) *ingestv1.Submission {
		return alice(nostrtest.Kind(0), nostrtest.Content("{}"), nostrtest.CreatedAt(now+i))
	}
	refs := c.send(
		alice(nostrtest.Kind(9), nostrtest.Channel("c"), nostrtest.Content("too early")),
		alice(nostrtest.Kind(9007), nostrtest.Channel("c")),
		alice(nostrtest.Kind(9), nostrtest.Channel("c"), nostrtest.Content("in time")),
		by(community, target, "alice"),
		alice(nostrtest.Kind(5), nostrtest.Tag("e", target.ID.String())),
		by(community, target, "alice"),
		profile(1), profile(2), profile(3), profile(0),
	)
	var got []string
	for _, v := range c.verdicts(refs...) {
		got = append(got, v.GetReason().String()[len("REASON_"):])
	}
	require.Equal(t, []string{
		"RESTRICTED", "UNSPECIFIED", "UNSPECIFIED",
		"UNSPECIFIED", "UNSPECIFIED", "BLOCKED",
		"UNSPECIFIED", "UNSPECIFIED", "UNSPECIFIED", "DUPLICATE",
	}, got)
	require.Equal(t, 4, h.count(`SELECT count(*) FROM ingest.events`), "channel, message, deletion, profile")
}

func TestEphemeral(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	h.awaitStreams()
	community := h.community(r, "one.example", open)
	c := h.open(r)
	c.accept(by(community, event(t, "alice", nostrtest.Kind(9007), nostrtest.Channel("c")), "alice"))
	typing := by(community, event(t, "alice", nostrtest.Kind(20002), nostrtest.Channel("c")), "alice")
	presence := by(community, event(t, "alice", nostrtest.Kind(20001)), "alice")
	for _, v := range c.verdicts(c.send(typing, presence)...) {
		requireVerdict(t, accepted, "", v)
	}
	l := h.ephemeral()
	byRaw := map[string]*commonv1.Header{}
	for _, e := range l.await(t, 2) {
		byRaw[string(e.GetRaw())] = e.GetHeader()
	}
	require.Zero(t, byRaw[string(typing.GetRaw())].GetCommitXid())
	require.Equal(t, "c", byRaw[string(typing.GetRaw())].GetChannel())
	require.EqualValues(t, h.count(`SELECT acl_version FROM ingest.channels`), byRaw[string(typing.GetRaw())].GetChannelAclVersion())
	require.EqualValues(t, 1, byRaw[string(presence.GetRaw())].GetCommunityAclVersion())
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.events`), "only the channel")

	h.nats.Stop(t)
	got := c.offer(by(community, event(t, "alice", nostrtest.Kind(20001), nostrtest.Content("away")), "alice"))
	requireVerdict(t, overloaded, "cannot deliver events at the moment, try again", got)
}

func TestStreamErrors(t *testing.T) {
	h := newHarness(t)
	r := h.start("one")
	c := h.open(r)
	list := make([]*ingestv1.Submission, 257)
	for i := range list {
		list[i] = &ingestv1.Submission{}
	}
	c.send(list...)
	_, err := c.stream.Recv()
	require.Equal(t, codes.InvalidArgument, status.Code(err), err)
}

// TestWindow offers more than a stream may have under way, without reading a verdict.
func TestWindow(t *testing.T) {
	h := newHarness(t)
	r := h.start("one", func(o *options) { o.cfg.StreamWindow = 4 })
	community := h.community(r, "one.example", open)
	c := h.open(r)
	var refs []uint64
	for i := range 40 {
		refs = append(refs, c.send(by(community, event(t, "alice", nostrtest.Content(strconv.Itoa(i))), "alice"))...)
	}
	for _, v := range c.verdicts(refs...) {
		requireVerdict(t, accepted, "", v)
	}
}
