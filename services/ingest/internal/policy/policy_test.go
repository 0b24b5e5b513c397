package policy_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

const community = 7

var (
	now    = time.Unix(nostrtest.Epoch, 0)
	limits = policy.Limits{Content: 262144, Skew: 15 * time.Minute}
	idA    = strings.Repeat("a", 64)
	idB    = strings.Repeat("b", 64)
)

func submission(names ...string) policy.Submission {
	s := policy.Submission{Community: community}
	for _, n := range names {
		s.Principal = append(s.Principal, nostrtest.PubKey(n))
	}
	return s
}

func TestCheck(t *testing.T) {
	kind, tag, at := nostrtest.Kind, nostrtest.Tag, nostrtest.CreatedAt
	alice := nostrtest.PubKey("alice").String()
	diff := func(opts ...nostrtest.Option) []nostrtest.Option {
		return append([]nostrtest.Option{kind(40008), tag("h", "x")}, opts...)
	}
	reminder := func(at int64, opts ...nostrtest.Option) []nostrtest.Option {
		return append([]nostrtest.Option{kind(30300), tag("d", "x"), tag("not_before", strconv.FormatInt(at, 10))}, opts...)
	}
	expires := func(in int64) string { return strconv.FormatInt(nostrtest.Epoch+in, 10) }
	for _, c := range []struct {
		name   string
		by     policy.Submission
		opts   []nostrtest.Option
		reason fault.Reason
		msg    string
	}{
		{name: "a note"},
		{name: "as early as allowed", opts: []nostrtest.Option{at(nostrtest.Epoch - 900)}},
		{name: "as late as allowed", opts: []nostrtest.Option{at(nostrtest.Epoch + 900)}},
		{name: "too early", opts: []nostrtest.Option{at(nostrtest.Epoch - 901)}, reason: fault.Invalid, msg: "event timestamp too far from server time"},
		{name: "too late", opts: []nostrtest.Option{at(nostrtest.Epoch + 901)}, reason: fault.Invalid, msg: "event timestamp too far from server time"},
		{name: "before time itself", opts: []nostrtest.Option{at(-1 << 63)}, reason: fault.Invalid, msg: "event timestamp too far from server time"},
		{name: "after all time", opts: []nostrtest.Option{at(1<<63 - 1)}, reason: fault.Invalid, msg: "event timestamp too far from server time"},
		{name: "as large as allowed", opts: []nostrtest.Option{nostrtest.Content(strings.Repeat("x", 262144))}},
		{
			name: "too large", opts: []nostrtest.Option{nostrtest.Content(strings.Repeat("x", 262145))},
			reason: fault.Invalid, msg: "content exceeds maximum size of 262144 bytes (got 262145)",
		},
		{name: "one key of several", by: submission("bob", "alice")},
		{name: "another's", by: submission("bob"), reason: fault.Invalid, msg: "event pubkey does not match authenticated identity"},
		{name: "nobody's", by: submission(), opts: []nostrtest.Option{kind(1059)}, reason: fault.AuthRequired, msg: "not authenticated"},
		{name: "a gift wrap by a throw-away key", by: submission("bob"), opts: []nostrtest.Option{kind(1059)}},
		{name: "a gift wrap that is not stored", by: submission("bob"), opts: []nostrtest.Option{kind(21059)}},
		{name: "time before size", opts: []nostrtest.Option{at(0), nostrtest.Content(strings.Repeat("x", 262145))}, reason: fault.Invalid, msg: "event timestamp too far from server time"},
		{name: "size before author", by: submission("bob"), opts: []nostrtest.Option{nostrtest.Content(strings.Repeat("x", 262145))}, reason: fault.Invalid, msg: "content exceeds maximum size of 262144 bytes (got 262145)"},
		{name: "author before kind", by: submission("bob"), opts: []nostrtest.Option{kind(9000)}, reason: fault.Invalid, msg: "event pubkey does not match authenticated identity"},

		{name: "a protected event by its author", by: submission("bob", "alice"), opts: []nostrtest.Option{tag("-")}},
		{name: "a protected event by somebody else", by: submission("bob"), opts: []nostrtest.Option{tag("-")}, reason: fault.AuthRequired, msg: "this event may only be published by its author"},
		{name: "a protected gift wrap by a throw-away key", by: submission("bob"), opts: []nostrtest.Option{kind(1059), tag("-")}, reason: fault.AuthRequired, msg: "this event may only be published by its author"},
		{name: "a repost without the event", opts: []nostrtest.Option{kind(6), tag("e", idA)}},
		{name: "a repost", opts: []nostrtest.Option{kind(6), nostrtest.Content(`{"kind":1,"tags":[["t","-"],[]],"content":"[\"-\"]"}`)}},
		{name: "a repost of what is no event", opts: []nostrtest.Option{kind(6), nostrtest.Content(`[["-"]]`)}},
		{name: "a repost of a protected event", opts: []nostrtest.Option{kind(6), nostrtest.Content(`{"kind":1,"tags":[["t","x"],["-"]],"content":""}`)}, reason: fault.Invalid, msg: "reposts must not embed a protected event"},
		{name: "a generic repost of a protected event", opts: []nostrtest.Option{kind(16), nostrtest.Content(` {"tags":[7,[null,1],["-",{}]],"kind":"x"}`)}, reason: fault.Invalid, msg: "reposts must not embed a protected event"},
		{name: "a note that quotes a protected event", opts: []nostrtest.Option{nostrtest.Content(`{"tags":[["-"]]}`)}},

		{name: "the longest address", opts: []nostrtest.Option{kind(30078), tag("d", strings.Repeat("é", 512))}},
		{name: "an address that is too long", opts: []nostrtest.Option{kind(30078), tag("d", strings.Repeat("é", 512)+"x")}, reason: fault.Invalid, msg: "d tag too long (1025 bytes, max 1024)"},
		{name: "a d tag that is no address", opts: []nostrtest.Option{tag("d", strings.Repeat("x", 5000))}},
		{name: "a reminder", opts: reminder(nostrtest.Epoch + 3600)},
		{name: "a reminder that is done", opts: []nostrtest.Option{kind(30300), tag("d", "x"), tag("expiration", expires(60))}},
		{name: "a reminder without an address", opts: []nostrtest.Option{kind(30300), tag("not_before", "1")}, reason: fault.Invalid, msg: "missing d tag"},
		{name: "a reminder with two addresses", opts: reminder(1, tag("d", "y")), reason: fault.Invalid, msg: "duplicate d tag"},
		{name: "a reminder with an empty address", opts: []nostrtest.Option{kind(30300), tag("d", "")}, reason: fault.Invalid, msg: "empty d tag"},
		{name: "a reminder with an address without a value", opts: []nostrtest.Option{kind(30300), tag("d")}, reason: fault.Invalid, msg: "empty d tag"},
		{name: "a reminder whose time is no number", opts: []nostrtest.Option{kind(30300), tag("d", "x"), tag("not_before", "soon")}, reason: fault.Invalid, msg: "malformed not_before"},
		{name: "a reminder with two times", opts: reminder(1, tag("not_before", "1")), reason: fault.Invalid, msg: "malformed not_before"},
		{name: "a reminder as late as allowed", opts: reminder(nostrtest.Epoch + 31536000)},
		{name: "a reminder that is too late", opts: reminder(nostrtest.Epoch + 31536001), reason: fault.Invalid, msg: "not_before too far in future"},
		{name: "a reminder of the past", opts: reminder(0)},
		{name: "a reminder that expires after its time", opts: reminder(nostrtest.Epoch+60, tag("expiration", expires(61)))},
		{name: "a reminder that expires at its time", opts: reminder(nostrtest.Epoch+60, tag("expiration", expires(60))), reason: fault.Invalid, msg: "expiration before not_before"},

		{name: "a request to vanish", opts: []nostrtest.Option{kind(62), tag("relay", "wss://one.example"), tag("h", "not a channel")}},
		{name: "a request to vanish everywhere", opts: []nostrtest.Option{kind(62), tag("relay", "ALL_RELAYS")}},
		{name: "a request to vanish from nowhere", opts: []nostrtest.Option{kind(62)}, reason: fault.Invalid, msg: "the request to vanish does not name this relay"},
		{name: "a request to vanish from what is no relay", opts: []nostrtest.Option{kind(62), tag("relay", "https://one.example"), tag("relay", "all_relays"), tag("relay")}, reason: fault.Invalid, msg: "the request to vanish does not name this relay"},

		{name: "a moderation command", opts: []nostrtest.Option{kind(9010), tag("h", "x")}, reason: fault.Unsupported, msg: "kind 9010 is not supported"},
		{name: "an administrative command", opts: []nostrtest.Option{kind(9034)}, reason: fault.Unsupported, msg: "kind 9034 is not supported"},
		{name: "just outside of the commands", opts: []nostrtest.Option{kind(9023)}},

		{name: "not expired", opts: []nostrtest.Option{tag("expiration", "1700000001")}},
		{name: "expired just now", opts: []nostrtest.Option{tag("expiration", "1700000000")}, reason: fault.Invalid, msg: "event has expired"},
		{name: "expired before 1970", opts: []nostrtest.Option{tag("expiration", "-5")}, reason: fault.Invalid, msg: "event has expired"},
		{name: "an expiration that is none", opts: []nostrtest.Option{tag("expiration", "soon")}, reason: fault.Invalid, msg: "expiration is not a Unix timestamp"},
		{name: "an expiration that is empty", opts: []nostrtest.Option{tag("expiration", "")}, reason: fault.Invalid, msg: "expiration is not a Unix timestamp"},
		{name: "an expiration without a value", opts: []nostrtest.Option{tag("expiration")}, reason: fault.Invalid, msg: "expiration is not a Unix timestamp"},
		{name: "an expiration with a fraction", opts: []nostrtest.Option{tag("expiration", "1800000000.5")}, reason: fault.Invalid, msg: "expiration is not a Unix timestamp"},
		{name: "an expiration after all time", opts: []nostrtest.Option{tag("expiration", "9223372036854775808")}, reason: fault.Invalid, msg: "expiration is not a Unix timestamp"},
		{name: "an expiration at the end of time", opts: []nostrtest.Option{tag("expiration", "9223372036854775807")}},

		{name: "in a channel", opts: []nostrtest.Option{kind(9), tag("h", "General_1-x")}},
		{name: "a message without a channel", opts: []nostrtest.Option{kind(9)}, reason: fault.Invalid, msg: "channel-scoped events must include an h tag"},
		{name: "a forum post without a channel", opts: []nostrtest.Option{kind(45001)}, reason: fault.Invalid, msg: "channel-scoped events must include an h tag"},
		{name: "an impossible channel", opts: []nostrtest.Option{tag("h", "no spaces")}, reason: fault.Invalid, msg: "h tag is not a channel id"},
		{name: "an empty channel", opts: []nostrtest.Option{tag("h", "")}, reason: fault.Invalid, msg: "h tag is not a channel id"},
		{name: "an h tag without a value", opts: []nostrtest.Option{tag("h")}, reason: fault.Invalid, msg: "h tag is not a channel id"},
		{name: "a channel id of 65 characters", opts: []nostrtest.Option{tag("h", strings.Repeat("x", 65))}, reason: fault.Invalid, msg: "h tag is not a channel id"},

		{name: "a profile", opts: []nostrtest.Option{kind(0), nostrtest.Content(`{"name":"a"}`)}},
		{name: "a profile that is no JSON", opts: []nostrtest.Option{kind(0), nostrtest.Content(`{`)}, reason: fault.Invalid, msg: "kind:0 content must be valid JSON"},

		{name: "a reaction", opts: []nostrtest.Option{kind(7), nostrtest.Content("+"), tag("e", idA)}},
		{name: "a reaction to nothing", opts: []nostrtest.Option{kind(7), nostrtest.Content("+")}},
		{name: "a reaction in a channel", opts: []nostrtest.Option{kind(7), tag("h", "x"), tag("e", idA)}},
		{name: "a reaction to nothing in a channel", opts: []nostrtest.Option{kind(7), tag("h", "x"), tag("e", "nonsense"), tag("e")}, reason: fault.Invalid, msg: "reaction must reference a target event via e tag"},
		{name: "a reaction of 64 characters", opts: []nostrtest.Option{kind(7), nostrtest.Content(strings.Repeat("ü", 64)), tag("e", idA)}},
		{name: "a reaction of 65 characters", opts: []nostrtest.Option{kind(7), nostrtest.Content(strings.Repeat("ü", 65)), tag("e", idA)}, reason: fault.Invalid, msg: "reaction exceeds 64 characters (got 65)"},

		{name: "a reply", opts: []nostrtest.Option{kind(9), tag("h", "x"), tag("e", idA, "", "reply"), tag("e", "nonsense")}},
		{name: "a reply to what cannot exist", opts: []nostrtest.Option{kind(9), tag("h", "x"), tag("e", "nonsense", "", "reply")}, reason: fault.Invalid, msg: "reply parent not found"},
		{name: "a reply below what cannot exist", opts: []nostrtest.Option{kind(45003), tag("h", "x"), tag("e", "nonsense", "", "root"), tag("e", idA, "", "reply")}, reason: fault.Invalid, msg: "root tag does not match thread ancestry"},
		{name: "a note that answers what cannot exist", opts: []nostrtest.Option{tag("e", "nonsense", "", "reply")}},

		{name: "an edit of nothing", opts: []nostrtest.Option{kind(40003), tag("h", "x"), tag("e", "nonsense")}, reason: fault.Invalid, msg: "edit must reference a target event via e tag"},
		{name: "a vote for nothing", opts: []nostrtest.Option{kind(45002), tag("h", "x")}, reason: fault.Invalid, msg: "vote must reference a target event via e tag"},
		{name: "a pin of nothing", opts: []nostrtest.Option{kind(40004), tag("h", "x")}},

		{name: "a diff", opts: diff(tag("repo", "https://git.example/r"), tag("commit", "0123abC"))},
		{name: "a diff with all there is", opts: diff(tag("repo", "http://git.example/r"), tag("commit", idA), tag("parent-commit", "0123abc"), tag("branch", "a", "b"), tag("pr", "7"))},
		{name: "a diff of nothing", opts: diff(tag("commit", "0123abc")), reason: fault.Invalid, msg: "diff must have a repo tag with an http or https URL"},
		{name: "a diff of a path", opts: diff(tag("repo", "file:///etc"), tag("commit", "0123abc")), reason: fault.Invalid, msg: "diff must have a repo tag with an http or https URL"},
		{name: "a diff without a commit", opts: diff(tag("repo", "https://git.example/r")), reason: fault.Invalid, msg: "diff must have a commit tag with at least 7 hexadecimal digits"},
		{name: "a diff of a short commit", opts: diff(tag("repo", "https://git.example/r"), tag("commit", "0123ab")), reason: fault.Invalid, msg: "diff must have a commit tag with at least 7 hexadecimal digits"},
		{name: "a diff of a branch", opts: diff(tag("repo", "https://git.example/r"), tag("commit", "0123abg")), reason: fault.Invalid, msg: "diff must have a commit tag with at least 7 hexadecimal digits"},
		{name: "a diff of a short parent", opts: diff(tag("repo", "https://git.example/r"), tag("commit", "0123abc"), tag("parent-commit", "0")), reason: fault.Invalid, msg: "parent-commit must have at least 7 hexadecimal digits"},
		{name: "a diff of half a branch", opts: diff(tag("repo", "https://git.example/r"), tag("commit", "0123abc"), tag("branch", "a")), reason: fault.Invalid, msg: "branch must have a source and a target"},
		{name: "a diff of pull request 0", opts: diff(tag("repo", "https://git.example/r"), tag("commit", "0123abc"), tag("pr", "0")), reason: fault.Invalid, msg: "pr must be a positive integer"},
		{name: "a diff that is too large", opts: diff(tag("repo", "https://git.example/r"), tag("commit", "0123abc"), nostrtest.Content(strings.Repeat("x", 61441))), reason: fault.Invalid, msg: "diff exceeds maximum size of 61440 bytes (got 61441)"},

		{name: "a deletion", opts: []nostrtest.Option{kind(5), tag("e", idA)}},
		{name: "a deletion of an address", opts: []nostrtest.Option{kind(5), tag("a", "30023:"+alice+":x")}},
		{name: "a deletion of another's address", opts: []nostrtest.Option{kind(5), tag("a", "30023:"+nostrtest.PubKey("bob").String()+":x")}},
		{name: "a deletion of nothing", opts: []nostrtest.Option{kind(5)}, reason: fault.Invalid, msg: "deletion events must reference at least one target via e or a tag"},
		{name: "a deletion of what cannot exist", opts: []nostrtest.Option{kind(5), tag("e", "xyz"), tag("a", "1:"+alice+":"), tag("a", "nonsense"), tag("a", "99999:"+alice+":"), tag("a", "30023:xyz:")}, reason: fault.Invalid, msg: "deletion events must reference at least one target via e or a tag"},

		{name: "a creation", opts: []nostrtest.Option{kind(9007), tag("h", "c"), tag("name", "C")}},
		{name: "a creation without an id", opts: []nostrtest.Option{kind(9007)}},
		{name: "a creation with an impossible id", opts: []nostrtest.Option{kind(9007), tag("h", "c d")}, reason: fault.Invalid, msg: "missing or invalid h tag"},
		{name: "a creation with odd visibility", opts: []nostrtest.Option{kind(9007), tag("h", "c"), tag("visibility", "secret")}, reason: fault.Invalid, msg: "visibility must be open or private"},
		{name: "a creation with a long name", opts: []nostrtest.Option{kind(9007), tag("h", "c"), tag("name", strings.Repeat("x", 257))}, reason: fault.Invalid, msg: "channel name exceeds 256 bytes"},
		{name: "a creation with a NUL", opts: []nostrtest.Option{kind(9007), tag("h", "c"), tag("about", "a\x00b")}, reason: fault.Invalid, msg: "channel about contains a NUL character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.by.Community == 0 {
				c.by = submission("alice")
			}
			got, v := policy.Check(c.by, nostrtest.Event(t, "alice", c.opts...), limits, now)
			require.Equal(t, policy.Verdict{Reason: c.reason, Message: c.msg}, v)
			require.Equal(t, c.reason == fault.Accepted, got != nil)
		})
	}
}

func TestCheckWithoutLimits(t *testing.T) {
	ev := nostrtest.Event(t, "alice", nostrtest.CreatedAt(0), nostrtest.Content(strings.Repeat("x", 300_000)))
	_, v := policy.Check(submission("alice"), ev, policy.Limits{}, now)
	require.True(t, v.Accepted())
}

func TestCheckKind(t *testing.T) {
	for _, c := range []struct {
		kind nostr.Kind
		want policy.Verdict
	}{
		{1, policy.Verdict{}},
		{22242, policy.Verdict{Reason: fault.Invalid, Message: "AUTH events cannot be submitted"}},
		{27235, policy.Verdict{Reason: fault.Invalid, Message: "authorization events cannot be submitted"}},
		{44100, policy.Verdict{Reason: fault.Invalid, Message: "membership notifications are relay-signed only"}},
		{33534, policy.Verdict{Reason: fault.Restricted, Message: "relay-only kind"}},
		{28935, policy.Verdict{Reason: fault.Restricted, Message: "relay-only kind"}},
		{8000, policy.Verdict{Reason: fault.Restricted, Message: "relay-only kind"}},
		{8001, policy.Verdict{Reason: fault.Restricted, Message: "relay-only kind"}},
		{13534, policy.Verdict{Reason: fault.Restricted, Message: "relay-only kind"}},
		{39000, policy.Verdict{Reason: fault.Restricted, Message: "relay-only kind"}},
		{39006, policy.Verdict{Reason: fault.Restricted, Message: "relay-only kind"}},
		{40902, policy.Verdict{Reason: fault.Restricted, Message: "relay-only kind"}},
	} {
		require.Equal(t, c.want, policy.CheckKind(c.kind), "kind %d", c.kind)
	}
}

func check(t *testing.T, by policy.Submission, opts ...nostrtest.Option) *policy.Candidate {
	t.Helper()
	c, v := policy.Check(by, nostrtest.Event(t, "alice", opts...), limits, now)
	require.True(t, v.Accepted(), v.Message)
	return c
}

func TestDeletionTargets(t *testing.T) {
	alice, bob := nostrtest.PubKey("alice").String(), nostrtest.PubKey("bob").String()
	c := check(t, submission("alice"), nostrtest.Kind(5),
		nostrtest.Tag("e", idA), nostrtest.Tag("e", idB), nostrtest.Tag("e", idA, "wss://relay"), nostrtest.Tag("e", strings.ToUpper(idA)),
		nostrtest.Tag("a", "30023:"+alice+":a:b"), nostrtest.Tag("a", "30023:"+alice+":a:b"), nostrtest.Tag("a", "0:"+alice+":ignored"),
		nostrtest.Tag("a", "10002:"+alice), nostrtest.Tag("a", "30023:"+bob+":x"))
	a, b := nostr.ID{}, nostr.ID{}
	for i := range a {
		a[i], b[i] = 0xaa, 0xbb
	}
	require.Equal(t, &policy.Deletion{
		IDs: []nostr.ID{a, b},
		Addresses: []policy.Coordinate{
			{Kind: 30023, D: "a:b"}, {Kind: 0}, {Kind: 10002},
		},
	}, c.Deletion)
}

func TestAdmit(t *testing.T) {
	const (
		open, closed = community, 8
		missing      = 9
	)
	alice := nostrtest.PubKey("alice")
	channel := func(h string) policy.ChannelKey { return policy.ChannelKey{Community: open, H: h} }
	state := func() *policy.State {
		return &policy.State{
			Communities: map[int64]policy.Community{open: {}, closed: {Closed: true}},
			Channels: map[policy.ChannelKey]policy.Channel{
				channel("open"): {ID: 1}, channel("private"): {ID: 2, Private: true},
				channel("archived"): {ID: 3, Archived: true}, channel("gone"): {ID: 4, Private: true, Archived: true},
				channel("mine"): {ID: 5, Private: true},
			},
			ChannelMembers: map[policy.ChannelMemberKey]bool{{ChannelKey: channel("mine"), PubKey: alice}: true},
		}
	}
	in := func(community int64) policy.Submission {
		s := submission("alice", "bob")
		s.Community = community
		return s
	}
	chat := nostrtest.Kind(9)
	for _, c := range []struct {
		name   string
		by     policy.Submission
		opts   []nostrtest.Option
		change func(*policy.Candidate, *policy.State)
		want   policy.Verdict
	}{
		{name: "global in an open community", by: in(open)},
		{name: "no such community", by: in(missing), want: policy.NotMember},
		{name: "outsider of a closed community", by: in(closed), want: policy.NotMember},
		{name: "member of a closed community", by: in(closed), change: func(_ *policy.Candidate, s *policy.State) {
			s.Members = map[policy.MemberKey]bool{{Community: closed, PubKey: alice}: true}
		}},
		{name: "another key of the principal is the member", by: in(closed), want: policy.NotMember, change: func(_ *policy.Candidate, s *policy.State) {
			s.Members = map[policy.MemberKey]bool{{Community: closed, PubKey: nostrtest.PubKey("bob")}: true}
		}},
		{name: "a gift wrap counts for any key of the principal", by: in(closed), opts: []nostrtest.Option{nostrtest.Kind(1059)}, change: func(_ *policy.Candidate, s *policy.State) {
			s.Members = map[policy.MemberKey]bool{{Community: closed, PubKey: nostrtest.PubKey("bob")}: true}
		}},
		{name: "open channel", by: in(open), opts: []nostrtest.Option{chat, nostrtest.Channel("open")}},
		{name: "unknown channel", by: in(open), opts: []nostrtest.Option{chat, nostrtest.Channel("unknown")}, want: policy.NotChannelMember},
		{name: "hidden channel", by: in(open), opts: []nostrtest.Option{chat, nostrtest.Channel("private")}, want: policy.NotChannelMember},
		{name: "own private channel", by: in(open), opts: []nostrtest.Option{chat, nostrtest.Channel("mine")}},
		{name: "archived channel", by: in(open), opts: []nostrtest.Option{chat, nostrtest.Channel("archived")}, want: policy.Verdict{Reason: fault.Invalid, Message: "channel is archived"}},
		{name: "archived and hidden channel", by: in(open), opts: []nostrtest.Option{chat, nostrtest.Channel("gone")}, want: policy.NotChannelMember},
		{name: "deleted", by: in(open), want: policy.Deleted, change: func(c *policy.Candidate, s *policy.State) {
			s.Deleted = map[policy.EventKey]bool{c.Key(): true}
		}},
		{name: "banned", by: in(open), want: policy.Banned, change: func(_ *policy.Candidate, s *policy.State) {
			s.Banned = map[policy.MemberKey]bool{{Community: open, PubKey: alice}: true}
		}},
		{name: "another key of the principal is banned", by: in(open), change: func(_ *policy.Candidate, s *policy.State) {
			s.Banned = map[policy.MemberKey]bool{{Community: open, PubKey: nostrtest.PubKey("bob")}: true}
		}},
		{name: "banned elsewhere", by: in(open), change: func(_ *policy.Candidate, s *policy.State) {
			s.Banned = map[policy.MemberKey]bool{{Community: closed, PubKey: alice}: true}
		}},
		{name: "a kind that is not taken", by: in(open), want: policy.Verdict{Reason: fault.Restricted, Message: "kind 1 is not accepted here"}, change: func(_ *policy.Candidate, s *policy.State) {
			s.RefusedKinds = map[policy.KindKey]bool{{Community: open, Kind: 1}: true}
		}},
		{name: "outsiders learn nothing of kinds", by: in(closed), want: policy.NotMember, change: func(_ *policy.Candidate, s *policy.State) {
			s.RefusedKinds = map[policy.KindKey]bool{{Community: closed, Kind: 1}: true}
		}},
		{name: "a kind that the registry does not know", by: in(open), opts: []nostrtest.Option{nostrtest.Kind(1234)}, want: policy.UnknownKind, change: func(_ *policy.Candidate, s *policy.State) {
			s.Communities[open] = policy.Community{RegistryOnly: true}
		}},
		{name: "a kind that the registry knows", by: in(open), change: func(_ *policy.Candidate, s *policy.State) {
			s.Communities[open] = policy.Community{RegistryOnly: true}
		}},
		{name: "any kind", by: in(open), opts: []nostrtest.Option{nostrtest.Kind(1234)}},
		{name: "too little work", by: in(open), want: policy.Verdict{Reason: fault.Pow, Message: "difficulty 3 is less than 5"}, change: func(c *policy.Candidate, s *policy.State) {
			c.Event.ID = nostr.ID{0x10}
			s.Communities[open] = policy.Community{MinPow: 5}
		}},
		{name: "enough work", by: in(open), change: func(c *policy.Candidate, s *policy.State) {
			c.Event.ID = nostr.ID{0x07}
			s.Communities[open] = policy.Community{MinPow: 5}
		}},
		{name: "enough work by luck", by: in(open), opts: []nostrtest.Option{nostrtest.Tag("nonce", "1", "4")}, want: policy.Verdict{Reason: fault.Pow, Message: "committed difficulty 4 is less than 5"}, change: func(c *policy.Candidate, s *policy.State) {
			c.Event.ID = nostr.ID{0x07}
			s.Communities[open] = policy.Community{MinPow: 5}
		}},
		{name: "removed by a moderator", by: in(open), want: policy.BannedEvent, change: func(c *policy.Candidate, s *policy.State) {
			s.BannedEvents = map[policy.EventKey]bool{c.Key(): true}
		}},
		{name: "vanished", by: in(open), want: policy.Vanished, change: func(c *policy.Candidate, s *policy.State) {
			s.Vanished = map[policy.EventKey]bool{c.Key(): true}
		}},
		{name: "new channel", by: in(open), opts: []nostrtest.Option{nostrtest.Kind(9007), nostrtest.Channel("new")}},
		{name: "the same creation again", by: in(open), opts: []nostrtest.Option{nostrtest.Kind(9007), nostrtest.Channel("open")}, want: policy.Processed, change: func(c *policy.Candidate, s *policy.State) {
			s.Stored = map[policy.EventKey]bool{c.Key(): true}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			candidate, st := check(t, c.by, c.opts...), state()
			if c.change != nil {
				c.change(candidate, st)
			}
			require.Equal(t, c.want, policy.Admit(candidate, st))
		})
	}
}
