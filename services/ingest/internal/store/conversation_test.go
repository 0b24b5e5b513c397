package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// talk is a fixture in which conversations are opened.
type talk struct {
	*fixture
	serial int
}

func newTalk(t *testing.T) *talk {
	t.Helper()
	return &talk{fixture: newFixture(t).withKey()}
}

// ask makes a command that is like no other.
func (f *talk) ask(by string, kind nostr.Kind, opts ...nostrtest.Option) *policy.Candidate {
	f.t.Helper()
	f.serial++
	return f.command(f.community, by, kind, append(opts, nostrtest.Tag("serial", strconv.Itoa(f.serial)))...)
}

// ps makes p tags.
func ps(names ...string) (opts []nostrtest.Option) {
	for _, name := range names {
		opts = append(opts, p(name))
	}
	return opts
}

// opened is what an author is told.
type opened struct {
	Channel string `json:"channel_id"`
	Created bool   `json:"created"`
}

func readOpened(tb testing.TB, v policy.Verdict) (o opened) {
	tb.Helper()
	require.True(tb, v.Accepted(), v.Message)
	require.NoError(tb, json.Unmarshal([]byte(strings.TrimPrefix(v.Message, "response:")), &o))
	return o
}

// open opens a conversation and returns its id.
func (f *talk) open(by string, with ...string) string {
	f.t.Helper()
	v, _ := f.order(f.ask(by, nostr.KindOpenConversation, ps(with...)...))
	return readOpened(f.t, v).Channel
}

func (f *talk) hide(by, h string) (policy.Verdict, *Row) {
	f.t.Helper()
	return f.order(f.ask(by, nostr.KindHideConversation, nostrtest.Channel(h)))
}

// hiddenBy returns what the relay has signed of the conversations that somebody hides; nil if it has signed nothing.
func (f *talk) hiddenBy(viewer string) (list []string) {
	f.t.Helper()
	key := nostrtest.PubKey(viewer)
	rows, err := f.admin.Query(f.t.Context(), `
SELECT e.raw FROM ingest.events e JOIN ingest.addresses a USING (community_id, id)
WHERE a.community_id = $1 AND a.kind = 30622 AND a.d = convert_to(encode($2, 'hex'), 'UTF8')`, f.community, key[:])
	require.NoError(f.t, err)
	for rows.Next() {
		require.Nil(f.t, list, "one version")
		var raw []byte
		require.NoError(f.t, rows.Scan(&raw))
		ev, err := wire.DecodeEvent(raw, wire.DefaultLimits())
		require.NoError(f.t, err)
		require.NoError(f.t, ev.Verify())
		require.Equal(f.t, nostrtest.PubKey("relay"), ev.PubKey)
		require.Equal(f.t, nostr.Tags{{"d", key.String()}, {"p", key.String()}}, ev.Tags[:2])
		list = []string{}
		for _, tag := range ev.Tags[2:] {
			require.Equal(f.t, "h", tag[0])
			list = append(list, tag[1])
		}
	}
	require.NoError(f.t, rows.Err())
	return list
}

func TestAConversationIsSigned(t *testing.T) {
	f := newTalk(t)
	c := f.ask("alice", nostr.KindOpenConversation, ps("bob", "carol", "bob", "alice")...)
	v, row := f.order(c)
	o := readOpened(t, v)
	require.True(t, o.Created)
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, o.Channel)
	require.Equal(t, holding("alice", "member", "bob", "member", "carol", "member"), f.membersOf(o.Channel))
	f.requireSnapshots(o.Channel)
	meta := f.state(o.Channel, nostr.KindGroupMetadata).Tags
	for _, flag := range []string{"private", "hidden", "closed"} {
		require.Equal(t, 1, meta.Count(flag), flag)
	}
	require.Equal(t, 3, meta.Count("p"))
	typ, _ := meta.First("t")
	require.Equal(t, "dm", typ)
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.channels WHERE snapshot_due`))

	var said, added []*nostr.Event
	for _, list := range envelopes(t, row) {
		for _, e := range list {
			ev, err := wire.DecodeEvent(e.GetRaw(), wire.DefaultLimits())
			require.NoError(t, err)
			switch ev.Kind {
			case nostr.KindSystemMessage:
				require.Equal(t, o.Channel, e.GetHeader().GetChannel())
				said = append(said, ev)
			case nostr.KindMemberAdded:
				require.Empty(t, e.GetHeader().GetChannel())
				h, _ := ev.Tags.First("h")
				require.Equal(t, o.Channel, h)
				added = append(added, ev)
			case nostr.KindOpenConversation:
				require.Empty(t, e.GetHeader().GetChannel(), "who opened it is nobody else's business")
			default:
			}
		}
	}
	require.Len(t, added, 3)
	require.Len(t, said, 1)
	var notice struct {
		Type, Actor  string
		Participants []string
	}
	require.NoError(t, json.Unmarshal([]byte(said[0].Content), &notice))
	require.Equal(t, "dm_created", notice.Type)
	require.Equal(t, nostrtest.PubKey("alice").String(), notice.Actor)
	require.ElementsMatch(t, []string{
		nostrtest.PubKey("alice").String(), nostrtest.PubKey("bob").String(), nostrtest.PubKey("carol").String(),
	}, notice.Participants)

	// Whoever repeats it is told which one it was.
	v, row = f.order(c)
	require.Equal(t, policy.Opened(o.Channel, false), v)
	require.Nil(t, row)
}

func TestThereIsOneConversationOfASet(t *testing.T) {
	f := newTalk(t)
	both := f.open("alice", "bob")
	v, row := f.order(f.ask("bob", nostr.KindOpenConversation, p("alice")))
	require.Equal(t, policy.Opened(both, false), v)
	require.Len(t, row.Partitions, 1, "nothing is signed")
	all := f.open("alice", "bob", "carol")
	require.NotEqual(t, both, all)
	require.Equal(t, all, f.open("carol", "alice", "bob"))

	// It is another one in another community.
	here := f.community
	f.community = f.newCommunity("two.example", AccessOpen)
	require.NotEqual(t, both, f.open("alice", "bob"))
	f.community = here
	require.Equal(t, 3, f.count(`SELECT count(*) FROM ingest.channels WHERE type = 'dm'`))
}

func TestAddToConversation(t *testing.T) {
	f := newTalk(t)
	both := f.open("alice", "bob")
	add := func(by, h string, more ...string) policy.Verdict {
		v, _ := f.order(f.ask(by, nostr.KindAddToConversation, append(ps(more...), nostrtest.Channel(h))...))
		return v
	}
	v := add("bob", both, "carol")
	o := readOpened(t, v)
	require.True(t, o.Created)
	require.NotEqual(t, both, o.Channel)
	require.Equal(t, holding("alice", "member", "bob", "member"), f.membersOf(both), "the other one is as it was")
	require.Equal(t, holding("alice", "member", "bob", "member", "carol", "member"), f.membersOf(o.Channel))
	require.Equal(t, policy.Opened(o.Channel, false), add("alice", both, "carol"))
	require.Equal(t, policy.Opened(both, false), add("alice", both, "bob"), "nobody is added")

	require.Equal(t, policy.NotInConversation, add("carol", both, "dave"))
	require.Equal(t, policy.NotInConversation, add("carol", "no-such-channel", "dave"))
	require.Equal(t, policy.TooManyParticipants, add("alice", o.Channel, "1", "2", "3", "4", "5", "6", "7"))
	require.True(t, add("alice", o.Channel, "1", "2", "3", "4", "5", "6").Accepted())

	v, _ = f.order(f.command(f.community, "alice", nostr.KindCreateGroup, nostrtest.Channel("hall")))
	require.True(t, v.Accepted())
	v, _ = f.order(f.command(f.community, "alice", nostr.KindCreateGroup, nostrtest.Channel("cellar"), nostrtest.Tag("private")))
	require.True(t, v.Accepted())
	require.Equal(t, "channel is not a DM", add("bob", "hall", "dave").Message)
	require.Equal(t, policy.NotInConversation, add("bob", "cellar", "dave"))
}

// Nobody comes or goes: neither by the commands of channels, nor with the community.
func TestConversationsHaveFixedMembers(t *testing.T) {
	f := newTalk(t)
	f.put(f.community, "bob", policy.RoleMember)
	h := f.open("alice", "bob")
	version := f.count(`SELECT acl_version FROM ingest.channels WHERE h = $1`, h)
	role, code := nostrtest.Tag("role", "admin"), nostrtest.Tag("code", "open sesame")
	for _, c := range []struct {
		by   string
		kind nostr.Kind
		opts []nostrtest.Option
		want string
	}{
		{"alice", nostr.KindPutUser, []nostrtest.Option{p("carol")}, "the members of a dm do not change"},
		{"alice", nostr.KindPutUser, []nostrtest.Option{p("alice"), role}, "only owners/admins may change an active member's role"},
		{"alice", nostr.KindRemoveUser, []nostrtest.Option{p("bob")}, "actor not authorized"},
		{"alice", nostr.KindRemoveUser, []nostrtest.Option{p("alice")}, "the members of a dm do not change"},
		{"alice", nostr.KindLeaveRequest, nil, "the members of a dm do not change"},
		{"alice", nostr.KindCreateInvite, []nostrtest.Option{code}, "actor not authorized"},
		{"alice", nostr.KindDeleteGroup, nil, "only owner can delete group"},
		{"alice", nostr.KindEditMetadata, []nostrtest.Option{nostrtest.Tag("visibility", "open")}, "actor not authorized"},
		{"alice", nostr.KindEditMetadata, []nostrtest.Option{nostrtest.Tag("archived", "true")}, "actor not authorized"},
		{"carol", nostr.KindPutUser, []nostrtest.Option{p("carol")}, policy.NotChannelMember.Message},
		{"carol", nostr.KindJoinRequest, nil, policy.JoinRefused.Message},
		{"carol", nostr.KindHideConversation, nil, policy.NotInConversation.Message},
		{"owner", nostr.KindDeleteGroup, nil, policy.NotChannelMember.Message},
	} {
		v, row := f.order(f.ask(c.by, c.kind, append(c.opts, nostrtest.Channel(h))...))
		require.Equal(t, c.want, v.Message, "%s %d", c.by, c.kind)
		require.Nil(t, row)
	}
	_, err := f.RemoveMember(t.Context(), f.community, nostrtest.PubKey("bob"))
	require.NoError(t, err)
	f.moderate(BanPubKey(nostrtest.PubKey("bob")))
	require.Equal(t, holding("alice", "member", "bob", "member"), f.membersOf(h))
	f.requireSnapshots(h)
	require.Equal(t, version, f.count(`SELECT acl_version FROM ingest.channels WHERE h = $1`, h))

	require.Equal(t, h, f.open("alice", "bob"), "what was said can be read on")
	v, _ := f.order(f.ask("alice", nostr.KindOpenConversation, ps("bob", "carol")...))
	require.Equal(t, "target is not a relay member", v.Message, "no other one is made with somebody who is banned")
	v, _ = f.order(f.ask("bob", nostr.KindOpenConversation, p("alice")))
	require.Equal(t, policy.Banned, v)
}

func TestConversationsAreOfWhoMayUseTheCommunity(t *testing.T) {
	f := newTalk(t)
	f.community = f.newCommunity("closed.example", AccessClosed)
	f.put(f.community, "alice", policy.RoleMember)
	f.put(f.community, "bob", policy.RoleMember)
	try := func(by string, with ...string) policy.Verdict {
		v, _ := f.order(f.ask(by, nostr.KindOpenConversation, ps(with...)...))
		return v
	}
	require.Equal(t, policy.NotMember, try("stranger", "alice"))
	require.Equal(t, policy.Verdict{Reason: fault.Invalid, Message: "target is not a relay member"}, try("alice", "bob", "stranger"))
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.channels`))
	require.True(t, readOpened(t, try("alice", "bob")).Created)

	f.accept(f.candidateIn(f.community, "bob", nostrtest.Kind(nostr.KindAgentProfile), nostrtest.Content(`{"channel_add_policy":"nobody"}`)))
	f.put(f.community, "carol", policy.RoleMember)
	require.Contains(t, try("carol", "bob").Message, "policy:nobody", "what an agent says of channels holds for conversations")
	require.True(t, readOpened(t, try("bob", "carol")).Created)

	require.NoError(t, f.attest(f.community, "bot", "alice", time.Time{}))
	f.accept(f.candidateIn(f.community, "bot", nostrtest.Kind(nostr.KindAgentProfile), nostrtest.Content(`{"channel_add_policy":"owner_only"}`)))
	require.Contains(t, try("carol", "bot").Message, "policy:owner_only")
	require.Contains(t, try("carol", "alice", "bot").Message, "policy:owner_only")
	require.True(t, readOpened(t, try("alice", "carol", "bot")).Created)
	require.False(t, readOpened(t, try("carol", "bot", "alice")).Created, "who is in one opens it, whoever made it")
}

func TestHiddenConversations(t *testing.T) {
	f := newTalk(t)
	bob, carol := f.open("alice", "bob"), f.open("alice", "carol")
	require.Nil(t, f.hiddenBy("alice"))
	v, row := f.hide("alice", bob)
	require.Equal(t, policy.Hidden, v)
	require.Equal(t, "response:{}", v.Message)
	for _, list := range envelopes(t, row) {
		for _, e := range list {
			require.Empty(t, e.GetHeader().GetChannel(), "who is in it is told nothing")
		}
	}
	require.Equal(t, []string{bob}, f.hiddenBy("alice"))
	v, row = f.hide("alice", bob)
	require.Equal(t, policy.Hidden, v)
	require.Len(t, row.Partitions, 1, "nothing is signed again")
	f.hide("alice", carol)
	require.Equal(t, []string{bob, carol}, f.hiddenBy("alice"))
	require.Nil(t, f.hiddenBy("bob"))
	f.hide("bob", bob)
	require.Equal(t, []string{bob}, f.hiddenBy("bob"))

	// Only its viewer brings it back.
	f.accept(f.chat("bob", bob, "are you there?"))
	require.Equal(t, bob, f.open("bob", "alice"))
	require.Equal(t, []string{}, f.hiddenBy("bob"))
	require.Equal(t, []string{bob, carol}, f.hiddenBy("alice"))
	require.Equal(t, bob, f.open("alice", "bob"))
	require.Equal(t, []string{carol}, f.hiddenBy("alice"))

	for _, h := range []string{bob, "no-such-channel"} {
		v, row = f.hide("carol", h)
		require.Equal(t, policy.NotInConversation, v)
		require.Nil(t, row)
	}
	v, _ = f.order(f.command(f.community, "alice", nostr.KindCreateGroup, nostrtest.Channel("hall")))
	require.True(t, v.Accepted())
	v, _ = f.hide("alice", "hall")
	require.Equal(t, "channel is not a DM", v.Message)

	f.key = nil
	v, _ = f.hide("bob", bob)
	require.Equal(t, policy.NoKey, v)
	require.True(t, readOpened(t, f.verdict(f.ask("bob", nostr.KindOpenConversation, p("carol")))).Created)
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.channels WHERE snapshot_due AND type = 'dm'`))
}

func TestHiddenConversationsAreBounded(t *testing.T) {
	f := newTalk(t)
	bob := f.open("alice", "bob")
	alice := nostrtest.PubKey("alice")
	_, err := f.admin.Exec(t.Context(), `
WITH made AS (
    INSERT INTO ingest.channels (community_id, h, type, visibility, participants, snapshot_due, created_by)
    SELECT $1, lpad(n::text, 36, 'x'), 'dm', 'private', sha256(n::text::bytea), false, $2 FROM generate_series(1, $3) AS n RETURNING id)
INSERT INTO ingest.channel_members (community_id, channel_id, pubkey, role, hidden_at) SELECT $1, id, $2, 'member', now() FROM made`,
		f.community, alice[:], policy.MaxHidden-1)
	require.NoError(t, err)
	carol := f.open("alice", "carol")
	v, row := f.hide("alice", bob)
	require.Equal(t, policy.Hidden, v)
	size := 0
	for _, part := range row.Partitions {
		size += len(part.GetBatch())
	}
	require.Less(t, size, policy.HiddenBytes)
	require.Len(t, f.hiddenBy("alice"), policy.MaxHidden)
	v, _ = f.hide("alice", carol)
	require.Equal(t, policy.TooManyHidden, v)
	v, _ = f.hide("alice", bob)
	require.Equal(t, policy.Hidden, v)
	f.open("alice", "bob")
	v, _ = f.hide("alice", carol)
	require.Equal(t, policy.Hidden, v)
}

// Whoever vanishes leaves nothing of what it hid, and stays in what others read on.
func TestVanishedViewersHideNothing(t *testing.T) {
	f := newTalk(t)
	h := f.open("alice", "bob")
	f.hide("alice", h)
	f.hide("bob", h)
	v, _ := f.order(f.command(f.community, "alice", nostr.KindVanish, nostrtest.Tag("relay", "ALL_RELAYS")))
	require.Equal(t, policy.Verdict{}, v)
	require.Equal(t, []string{}, f.hiddenBy("alice"))
	require.Equal(t, []string{h}, f.hiddenBy("bob"))
	alice := nostrtest.PubKey("alice")
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.events WHERE pubkey = $1`, alice[:]), "the request itself")
	require.Equal(t, holding("alice", "member", "bob", "member"), f.membersOf(h))
}

// Everybody opens the same conversation at the same time through two replicas, and one hides many at once: there is one
// conversation, and what is signed is what the database has.
func TestConversationsAreExactUnderConcurrency(t *testing.T) {
	f := newTalk(t)
	stores := []*Store{f.replica(), f.replica()}
	for _, s := range stores {
		s.key = f.key
	}
	names := []string{"alice", "bob", "carol"}
	others := map[string][]string{"alice": {"carol", "bob"}, "bob": {"alice", "carol"}, "carol": {"alice", "bob"}}
	verdicts := make([]policy.Verdict, 24)
	var group errgroup.Group
	for i := range verdicts {
		by := names[i%3]
		c := f.ask(by, nostr.KindOpenConversation, ps(others[by]...)...)
		group.Go(func() error {
			result, err := stores[i%2].Commit(t.Context(), []*policy.Candidate{c})
			if err == nil {
				verdicts[i] = result.Verdicts[0]
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	ids, created := map[string]bool{}, 0
	for _, v := range verdicts {
		o := readOpened(t, v)
		ids[o.Channel] = true
		if o.Created {
			created++
		}
	}
	require.Len(t, ids, 1)
	require.Equal(t, 1, created)
	require.Equal(t, 3, f.count(`SELECT count(*) FROM ingest.events WHERE kind = 44100`))

	var hide []*policy.Candidate
	want := map[string]bool{}
	for i := range 12 {
		h := f.open("alice", fmt.Sprint("friend ", i))
		want[h] = true
		hide = append(hide, f.ask("alice", nostr.KindHideConversation, nostrtest.Channel(h)))
	}
	for i, c := range hide {
		group.Go(func() error {
			_, err := stores[i%2].Commit(t.Context(), []*policy.Candidate{c})
			return err
		})
	}
	require.NoError(t, group.Wait())
	got := map[string]bool{}
	for _, h := range f.hiddenBy("alice") {
		got[h] = true
	}
	require.Equal(t, want, got)
}
