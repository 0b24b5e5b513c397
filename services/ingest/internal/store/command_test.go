package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// withKey gives the relay a key.
func (f *fixture) withKey() *fixture {
	f.t.Helper()
	f.key = nostrtest.Key("relay")
	return f
}

func (f *fixture) put(community int64, name string, role policy.Role) {
	f.t.Helper()
	_, err := f.PutMember(f.t.Context(), community, nostrtest.PubKey(name), role)
	require.NoError(f.t, err)
}

// command signs a command that is made now.
func (f *fixture) command(community int64, author string, kind nostr.Kind, opts ...nostrtest.Option) *policy.Candidate {
	f.t.Helper()
	now := time.Now()
	ev := nostrtest.Event(f.t, author, append([]nostrtest.Option{nostrtest.Kind(kind), nostrtest.CreatedAt(now.Unix())}, opts...)...)
	c, v := policy.Check(policy.Submission{
		Community: community, Raw: nostrtest.Raw(ev), Principal: []nostr.PubKey{ev.PubKey},
	}, ev, policy.Limits{}, now)
	require.True(f.t, v.Accepted(), v.Message)
	return c
}

// order carries out a command that is alone in its batch.
func (f *fixture) order(c *policy.Candidate) (policy.Verdict, *Row) {
	f.t.Helper()
	verdicts, row := f.commit(c)
	return verdicts[0], row
}

// signed returns the events of an outbox row, which all must be signed by the relay.
func signed(t *testing.T, row *Row) (events []*nostr.Event, headers []*commonv1.Header) {
	t.Helper()
	require.NotNil(t, row)
	for _, p := range row.Partitions {
		var batch busv1.EnvelopeBatch
		require.NoError(t, proto.Unmarshal(p.GetBatch(), &batch))
		for _, e := range batch.GetEnvelopes() {
			ev, err := wire.DecodeEvent(e.GetRaw(), wire.DefaultLimits())
			require.NoError(t, err)
			require.NoError(t, ev.Verify())
			require.Equal(t, nostrtest.PubKey("relay"), ev.PubKey)
			require.Equal(t, 1, ev.Tags.Count("-"))
			events, headers = append(events, ev), append(headers, e.GetHeader())
		}
	}
	return events, headers
}

// roster returns the stored list of members that the relay has signed, by name of the role.
func (f *fixture) roster(community int64) map[string]string {
	f.t.Helper()
	var raw []byte
	require.NoError(f.t, f.admin.QueryRow(f.t.Context(),
		`SELECT raw FROM ingest.events WHERE community_id = $1 AND kind = 13534`, community).Scan(&raw))
	ev, err := wire.DecodeEvent(raw, wire.DefaultLimits())
	require.NoError(f.t, err)
	require.NoError(f.t, ev.Verify())
	list := map[string]string{}
	for tag := range ev.Tags.All("member") {
		list[tag[1]] = tag[2]
	}
	return list
}

func (f *fixture) version(community int64) uint64 {
	f.t.Helper()
	var v uint64
	require.NoError(f.t, f.admin.QueryRow(f.t.Context(), `SELECT acl_version FROM ingest.communities WHERE id = $1`, community).Scan(&v))
	return v
}

func TestACommandIsWholeOrNothing(t *testing.T) {
	f := newFixture(t).withKey()
	before := f.version(f.community)
	c := f.command(f.community, "owner", nostr.KindRelayAddMember, p("alice"))
	v, row := f.order(c)
	require.Equal(t, policy.Verdict{}, v)

	events, headers := signed(t, row)
	var kinds []nostr.Kind
	for i, ev := range events {
		kinds = append(kinds, ev.Kind)
		require.Equal(t, before+1, headers[i].GetCommunityAclVersion())
		require.Empty(t, headers[i].GetChannel())
		require.NotZero(t, headers[i].GetCommitXid())
	}
	require.Equal(t, []nostr.Kind{nostr.KindRelayMemberAdded, nostr.KindRelayMembers, 33534, 33534, 33534}, kinds)
	require.Equal(t, before+1, f.version(f.community))
	require.Equal(t, map[string]string{
		nostrtest.PubKey("owner").String(): "owner", nostrtest.PubKey("alice").String(): "member",
	}, f.roster(f.community))
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.events WHERE kind = 9030`), "the command itself is not kept")

	// The same event again changes nothing, and says so; whatever happened since.
	v, row = f.order(c)
	require.Equal(t, policy.Processed, v)
	require.Nil(t, row)
	v, _ = f.order(f.command(f.community, "owner", nostr.KindRelayRemoveMember, p("alice")))
	require.Equal(t, policy.Verdict{}, v)
	v, _ = f.order(c)
	require.Equal(t, policy.Processed, v)
	require.Equal(t, map[string]string{nostrtest.PubKey("owner").String(): "owner"}, f.roster(f.community))
}

// Within a second a member may come and go many times: each list replaces the one before, and each delta is an event
// of its own.
func TestSignedEventsAreMonotone(t *testing.T) {
	f := newFixture(t).withKey()
	alice := nostrtest.PubKey("alice")
	for range 3 {
		f.put(f.community, "alice", policy.RoleMember)
		_, err := f.RemoveMember(t.Context(), f.community, alice)
		require.NoError(t, err)
	}
	require.Equal(t, map[string]string{nostrtest.PubKey("owner").String(): "owner"}, f.roster(f.community))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.events WHERE kind = 13534`))
	require.Equal(t, 3, f.count(`SELECT count(*) FROM ingest.events WHERE kind = 8000`))
	require.Equal(t, 3, f.count(`SELECT count(*) FROM ingest.events WHERE kind = 8001`))
	require.Equal(t, 3, f.count(`SELECT count(*) FROM ingest.events WHERE kind = 33534`))
}

func TestRosterCommands(t *testing.T) {
	f := newFixture(t).withKey()
	closed := f.newCommunity("closed.example", AccessClosed)
	for name, role := range map[string]policy.Role{"other": policy.RoleOwner, "admin": policy.RoleAdmin, "admin2": policy.RoleAdmin, "member": policy.RoleMember} {
		f.put(closed, name, role)
	}
	invalid := func(msg string) policy.Verdict { return policy.Verdict{Reason: fault.Invalid, Message: msg} }
	ok := policy.Verdict{}
	role := func(r string) nostrtest.Option { return nostrtest.Tag("role", r) }
	replies := func(value string) nostrtest.Option { return nostrtest.Tag("thread_replies_in_channel", value) }
	must := invalid("actor not authorized: must be admin or owner")
	for _, c := range []struct {
		name, by string
		kind     nostr.Kind
		opts     []nostrtest.Option
		want     policy.Verdict
	}{
		{"a member adds", "member", 9030, []nostrtest.Option{p("x")}, must},
		{"an outsider adds", "stranger", 9030, []nostrtest.Option{p("x")}, policy.NotMember},
		{"an admin adds an admin", "admin", 9030, []nostrtest.Option{p("x"), role("admin")}, invalid("actor not authorized: only an owner can grant the admin role")},
		{"an admin adds a member", "admin", 9030, []nostrtest.Option{p("one")}, ok},
		{"an owner adds an admin", "owner", 9030, []nostrtest.Option{p("two"), role("admin")}, ok},
		{"adding again keeps the role", "owner", 9030, []nostrtest.Option{p("two"), role("member")}, ok},
		{"a member removes", "member", 9031, []nostrtest.Option{p("one")}, must},
		{"an admin removes an admin", "admin", 9031, []nostrtest.Option{p("admin2")}, invalid("actor not authorized: only an owner can remove an admin")},
		{"an admin removes an owner", "admin", 9031, []nostrtest.Option{p("owner")}, invalid("actor not authorized: cannot remove an owner")},
		{"an owner removes an owner", "owner", 9031, []nostrtest.Option{p("other")}, invalid("actor not authorized: cannot remove an owner")},
		{"an admin removes itself", "admin", 9031, []nostrtest.Option{p("admin")}, invalid("actor not authorized: cannot remove yourself")},
		{"an admin removes nobody", "admin", 9031, []nostrtest.Option{p("nobody")}, invalid("target is not a relay member")},
		{"an owner removes an admin", "owner", 9031, []nostrtest.Option{p("admin2")}, ok},
		{"an admin changes a role", "admin", 9032, []nostrtest.Option{p("member"), role("admin")}, invalid("actor not authorized: must be owner")},
		{"an owner changes a role", "owner", 9032, []nostrtest.Option{p("member"), role("admin")}, ok},
		{"an owner changes its own", "owner", 9032, []nostrtest.Option{p("owner"), role("member")}, invalid("actor not authorized: cannot change your own role")},
		{"an owner changes an owner's", "owner", 9032, []nostrtest.Option{p("other"), role("member")}, invalid("actor not authorized: cannot change the role of an owner")},
		{"an owner changes nobody's", "owner", 9032, []nostrtest.Option{p("nobody"), role("member")}, invalid("target is not a relay member")},
		{"an admin sets the icon", "admin", 9033, []nostrtest.Option{nostrtest.Tag("icon", "https://example.com/i.png")}, ok},
		{"an admin wants threads apart", "admin", 9033, []nostrtest.Option{replies("off")}, ok},
		{"a member wants threads apart", "one", 9033, []nostrtest.Option{replies("false")}, must},
		{"an outsider leaves", "stranger", 28936, []nostrtest.Option{nostrtest.Tag("-")}, policy.NotMember},
		{"an owner leaves", "owner", 28936, []nostrtest.Option{nostrtest.Tag("-")}, invalid("relay owner cannot leave")},
		{"a member leaves", "one", 28936, []nostrtest.Option{nostrtest.Tag("-")}, policy.Left},
		{"a member joins", "member", 28934, nil, policy.AlreadyMember},
		{"an outsider joins with a code that is none", "stranger", 28934, []nostrtest.Option{nostrtest.Tag("claim", "garbage.code")}, policy.InviteInvalid},
	} {
		v, _ := f.order(f.command(closed, c.by, c.kind, c.opts...))
		require.Equal(t, c.want, v, c.name)
	}
	key := func(name string) string { return nostrtest.PubKey(name).String() }
	require.Equal(t, map[string]string{
		key("owner"): "owner", key("other"): "owner", key("admin"): "admin", key("two"): "admin", key("member"): "admin",
	}, f.roster(closed))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.communities WHERE id = $1 AND icon = 'https://example.com/i.png'`, closed))
	v, _ := f.order(f.command(closed, "admin", 9033))
	require.Equal(t, ok, v)
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.communities WHERE id = $1 AND icon <> ''`, closed), "one without a tag clears the icon")
}

// The icon of a community that nobody looks after is anybody's to set; how threads are shown is not.
func TestProfileWithoutModerators(t *testing.T) {
	f := newFixture(t)
	_, err := f.admin.Exec(t.Context(), `DELETE FROM ingest.community_members WHERE community_id = $1`, f.community)
	require.NoError(t, err)
	threads := nostrtest.Tag("thread_replies_in_channel", "false")
	require.True(t, f.verdict(f.command(f.community, "bob", nostr.KindRelaySetProfile, nostrtest.Tag("icon", ""))).Accepted())
	require.False(t, f.verdict(f.command(f.community, "bob", nostr.KindRelaySetProfile, nostrtest.Tag("icon", ""), threads)).Accepted())
}

func TestCommandsOfBannedAndWithoutKey(t *testing.T) {
	f := newFixture(t)
	f.put(f.community, "admin", policy.RoleAdmin)
	v, _ := f.order(f.command(f.community, "owner", nostr.KindRelayAddMember, p("alice")))
	require.Equal(t, policy.NoKey, v)
	require.Zero(t, f.count(`SELECT count(*) FROM ingest.events`), "who is a member is not told without a key")
	v, _ = f.order(f.command(f.community, "owner", nostr.KindRelaySetProfile, nostrtest.Tag("icon", "")))
	require.Equal(t, policy.Verdict{}, v)

	f.withKey().moderate(BanPubKey(nostrtest.PubKey("admin")))
	v, _ = f.order(f.command(f.community, "admin", nostr.KindRelayAddMember, p("alice")))
	require.Equal(t, policy.Banned, v)
}

func TestInvites(t *testing.T) {
	f := newFixture(t).withKey()
	closed := f.newCommunity("closed.example", AccessClosed)
	f.put(closed, "member", policy.RoleMember)
	owner := nostrtest.PubKey("owner")
	mint := func(life time.Duration, uses int) Invite {
		invite, err := f.MintInvite(t.Context(), closed, owner, life, uses)
		require.NoError(t, err)
		return invite
	}
	for _, name := range []string{"member", "stranger"} {
		_, err := f.MintInvite(t.Context(), closed, nostrtest.PubKey(name), time.Hour, 0)
		require.ErrorIs(t, err, ErrNotModerator)
	}
	claim := func(community int64, name, code string) (policy.Role, error) {
		return f.ClaimInvite(t.Context(), Claim{Community: community, PubKey: nostrtest.PubKey(name), Code: code})
	}
	invite := mint(time.Hour, 1)
	require.NoError(t, invite.Event.Verify())
	_, err := claim(f.community, "alice", invite.Code)
	require.ErrorIs(t, err, ErrInviteInvalid, "a code of another community")
	role, err := claim(closed, "alice", invite.Code)
	require.NoError(t, err)
	require.Equal(t, policy.RoleMember, role)
	role, err = claim(closed, "alice", invite.Code)
	require.ErrorIs(t, err, ErrAlreadyMember)
	require.Equal(t, policy.RoleMember, role)
	_, err = claim(closed, "bob", invite.Code)
	require.ErrorIs(t, err, ErrInviteUsedUp)
	_, err = claim(closed, "bob", mint(-time.Second, 0).Code)
	require.ErrorIs(t, err, ErrInviteExpired)
	v, _ := f.order(f.command(closed, "bob", nostr.KindRelayJoinRequest, nostrtest.Tag("claim", mint(time.Hour, 0).Code)))
	require.Equal(t, policy.Welcome, v)
	require.Len(t, f.roster(closed), 4)

	f.moderateIn(closed, BanPubKey(nostrtest.PubKey("carol")))
	_, err = claim(closed, "carol", mint(time.Hour, 0).Code)
	require.ErrorIs(t, err, ErrBanned)

	n, err := f.ForgetInvites(t.Context(), time.Now(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = f.admin.Exec(t.Context(), `INSERT INTO ingest.invites (community_id, code_hash, role, created_by, expires_at)
		SELECT $1, sha256(n::text::bytea), 'member', $2, now() + interval '1 hour' FROM generate_series(1, $3) AS n`, closed, owner[:], MaxInvites)
	require.NoError(t, err)
	_, err = f.MintInvite(t.Context(), closed, owner, time.Hour, 0)
	require.ErrorIs(t, err, ErrTooManyInvites)
}

// Of 64 who claim a code that is good for ten at the same time, exactly ten join.
func TestInvitesAreExactUnderConcurrency(t *testing.T) {
	f := newFixture(t).withKey()
	invite, err := f.MintInvite(t.Context(), f.community, nostrtest.PubKey("owner"), time.Hour, 10)
	require.NoError(t, err)
	var joined, usedUp atomic.Int32
	var all sync.WaitGroup
	for i := range 64 {
		name := "claimer " + string(rune('A'+i))
		c := f.command(f.community, name, nostr.KindRelayJoinRequest, nostrtest.Tag("claim", invite.Code))
		all.Go(func() {
			var v policy.Verdict
			if i%2 == 0 {
				result, err := f.Commit(t.Context(), []*policy.Candidate{c})
				if err != nil {
					return
				}
				v = result.Verdicts[0]
			} else if _, err := f.ClaimInvite(t.Context(), Claim{Community: f.community, PubKey: c.Event.PubKey, Code: invite.Code}); err == nil {
				v = policy.Welcome
			} else {
				v = policy.InviteUsedUp
			}
			switch v {
			case policy.Welcome:
				joined.Add(1)
			case policy.InviteUsedUp:
				usedUp.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 10, joined.Load())
	require.EqualValues(t, 54, usedUp.Load())
	require.Equal(t, 11, f.count(`SELECT count(*) FROM ingest.community_members WHERE community_id = $1`, f.community))
	require.Equal(t, 10, f.count(`SELECT uses FROM ingest.invites`))
	require.Len(t, f.roster(f.community), 11)
}

func TestForgetCommands(t *testing.T) {
	f := newFixture(t).withKey()
	v, _ := f.order(f.command(f.community, "owner", nostr.KindRelayAddMember, p("alice")))
	require.True(t, v.Accepted())
	n, err := f.ForgetCommands(t.Context(), time.Now(), 10)
	require.NoError(t, err)
	require.Zero(t, n, "it could be sent again")
	n, err = f.ForgetCommands(t.Context(), time.Now().Add(policy.CommandMemory+time.Second), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
