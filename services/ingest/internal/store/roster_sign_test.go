package store

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// crowd makes n keys members of every channel of the fixture's community, and of that.
func (f *fixture) crowd(n int, role string) {
	f.t.Helper()
	for _, statement := range []string{
		`
INSERT INTO ingest.channel_members (community_id, channel_id, pubkey, role)
SELECT c.community_id, c.id, sha256(n::text::bytea), $3 FROM ingest.channels c, generate_series(1, $2) AS n WHERE c.community_id = $1`, `
INSERT INTO ingest.community_members (community_id, pubkey, role)
SELECT $1, sha256(n::text::bytea), $3 FROM generate_series(1, $2) AS n`,
	} {
		_, err := f.admin.Exec(f.t.Context(), statement, f.community, n, role)
		require.NoError(f.t, err)
	}
}

// setDelay has what was put off be due so many seconds from now.
func (f *fixture) setDelay(seconds int) {
	f.t.Helper()
	for _, table := range []string{"channels", "communities"} {
		_, err := f.admin.Exec(f.t.Context(), `
UPDATE ingest.`+table+` SET members_due_at = now() + make_interval(secs => $1) WHERE members_due_at IS NOT NULL`, seconds)
		require.NoError(f.t, err)
	}
}

// passDelay makes it the time to sign what was put off.
func (f *fixture) passDelay() {
	f.t.Helper()
	f.setDelay(0)
}

func (f *fixture) putOff() int {
	f.t.Helper()
	return f.count(`
SELECT (SELECT count(*) FROM ingest.channels WHERE members_due_at IS NOT NULL) + (SELECT count(*) FROM ingest.communities WHERE members_due_at IS NOT NULL)`)
}

// passedOn counts what an outbox row holds of a kind, once for each partition.
func (f *fixture) passedOn(row *Row, kinds ...nostr.Kind) (n int) {
	f.t.Helper()
	for _, list := range envelopes(f.t, row) {
		for _, e := range list {
			if slices.Contains(kinds, nostr.Kind(e.GetHeader().GetKind())) {
				n++
			}
		}
	}
	return n
}

// signLists has several replicas sign what is due at the same time, and returns in how many transactions one did.
func (f *fixture) signLists() (signed int) {
	f.t.Helper()
	before := f.rows()
	var replicas sync.WaitGroup
	for range 3 {
		other := f.replica()
		other.key = f.key
		replicas.Go(func() {
			_, err := other.SignMembers(f.t.Context(), 10)
			if err == nil {
				_, err = other.SignRosters(f.t.Context(), 10)
			}
			if err != nil {
				f.t.Error(err)
			}
		})
	}
	replicas.Wait()
	return f.rows() - before
}

// Of a large channel the list is signed once for all that changes in a while, by one replica, and says what is true then.
// What changed is said at once.
func TestLongListsAreSignedOnceForManyChanges(t *testing.T) {
	h := newHall(t)
	h.crowd(policy.ShortRoster, "member")
	first := h.state("hall", nostr.KindGroupMembers)

	var due int64
	for _, name := range []string{"bob", "carol", "dave"} {
		c := h.command(h.community, name, nostr.KindJoinRequest, nostrtest.Channel("hall"))
		require.LessOrEqual(t, c.Size(), len(c.Raw)+policy.EnvelopeOverhead+policy.RosterBytes)
		v, row := h.order(c)
		require.Equal(t, policy.Verdict{}, v)
		require.Zero(t, h.passedOn(row, nostr.KindGroupMembers, nostr.KindGroupAdmins))
		require.Equal(t, 3, h.passedOn(row, nostr.KindSystemMessage, nostr.KindMemberAdded, nostr.KindPutUser))
		var at int64
		require.NoError(t, h.admin.QueryRow(t.Context(), `
SELECT (extract(epoch FROM members_due_at) * 1000000)::bigint FROM ingest.channels WHERE members_due_at <= now() + interval '3 s'`).Scan(&at))
		require.True(t, due == 0 || due == at, "the first change sets the time")
		due = at
	}
	h.must("carol", nostr.KindLeaveRequest)
	require.Equal(t, first.ID, h.state("hall", nostr.KindGroupMembers).ID)
	h.setDelay(3600)
	require.Zero(t, h.signLists(), "it is not the time")

	h.passDelay()
	require.Equal(t, 1, h.signLists())
	h.requireSnapshots("hall")
	second := h.state("hall", nostr.KindGroupMembers)
	require.Greater(t, second.CreatedAt, first.CreatedAt)
	require.Zero(t, h.signLists(), "it is as it should be")

	h.must("erin", nostr.KindJoinRequest)
	h.passDelay()
	require.Equal(t, 1, h.signLists())
	h.requireSnapshots("hall")
	require.Greater(t, h.state("hall", nostr.KindGroupMembers).CreatedAt, second.CreatedAt)
}

// A channel that is small again is signed at once, and nothing is left to be done for it.
func TestAListThatIsShortAgain(t *testing.T) {
	h := newHall(t)
	h.crowd(policy.ShortRoster, "member")
	h.must("bob", nostr.KindJoinRequest)
	require.Equal(t, 1, h.putOff())
	_, err := h.admin.Exec(t.Context(), `DELETE FROM ingest.channel_members WHERE role = 'member' AND pubkey <> $1`, bytesOf(nostrtest.PubKey("bob")))
	require.NoError(t, err)
	h.must("carol", nostr.KindJoinRequest)
	require.Zero(t, h.putOff())
	h.requireSnapshots("hall")
}

// A replica that dies while it signs leaves the list to be signed.
func TestAListIsSignedInTheEnd(t *testing.T) {
	h := newHall(t)
	h.crowd(policy.ShortRoster, "member")
	h.must("bob", nostr.KindJoinRequest)
	h.put(h.community, "bob", policy.RoleMember)
	h.passDelay()
	dies := New(h.pool, partitions, WithKey(h.key), WithMessageBytes(func() int { return 1 }))
	_, err := dies.SignMembers(t.Context(), 10)
	require.Error(t, err)
	_, err = dies.SignRosters(t.Context(), 10)
	require.Error(t, err)
	require.Equal(t, 2, h.signLists())
	h.requireSnapshots("hall")
	require.Len(t, h.roster(h.community), policy.ShortRoster+2)
}

// Where the bus takes only small messages the lists are cut, and do not stay due for ever.
func TestAListFitsIntoAMessage(t *testing.T) {
	h := newHall(t)
	h.crowd(1000, "member")
	h.must("bob", nostr.KindJoinRequest)
	h.put(h.community, "bob", policy.RoleMember)
	h.passDelay()
	WithMessageBytes(func() int { return 64 << 10 })(h.Store)
	_, err := h.SignMembers(t.Context(), 10)
	require.NoError(t, err)
	_, err = h.SignRosters(t.Context(), 10)
	require.NoError(t, err)
	require.Greater(t, h.state("hall", nostr.KindGroupMembers).Tags.Count("p"), 100)
	require.Greater(t, len(h.roster(h.community)), 100)
}

// What is due in a community that is being deleted is found no more, so that it holds up no other.
func TestListsOfWhatIsBeingDeleted(t *testing.T) {
	h := newHall(t)
	h.crowd(policy.ShortRoster, "member")
	h.must("bob", nostr.KindJoinRequest)
	h.passDelay()
	_, err := h.admin.Exec(t.Context(), `UPDATE ingest.communities SET archived_at = now(), deleting_at = now()`)
	require.NoError(t, err)
	n, err := h.SignMembers(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, n)
}

// The list of members of a large community likewise.
func TestLongRostersAreSignedOnceForManyChanges(t *testing.T) {
	f := newFixture(t).withKey()
	f.put(f.community, "alice", policy.RoleMember)
	f.crowd(policy.ShortRoster, "member")
	require.Len(t, f.roster(f.community), 2)
	for _, name := range []string{"bob", "carol"} {
		v, row := f.order(f.command(f.community, "owner", nostr.KindRelayAddMember, p(name)))
		require.Equal(t, policy.Verdict{}, v)
		require.Zero(t, f.passedOn(row, nostr.KindRelayMembers))
		require.Equal(t, 1, f.passedOn(row, nostr.KindRelayMemberAdded))
	}
	f.setDelay(3600)
	require.Zero(t, f.signLists(), "it is not the time")
	f.passDelay()
	require.Equal(t, 1, f.signLists())
	require.Len(t, f.roster(f.community), policy.ShortRoster+4)
	require.Zero(t, f.signLists())

	_, err := f.admin.Exec(t.Context(), `DELETE FROM ingest.community_members WHERE role = 'member'`)
	require.NoError(t, err)
	f.put(f.community, "dave", policy.RoleMember)
	require.Len(t, f.roster(f.community), 2, "a short one is signed at once")
}

// What was signed of a channel is only part of what is due.
func TestPartOfAStateLeavesTheRestDue(t *testing.T) {
	h := &hall{fixture: newFixture(t)}
	h.must("alice", nostr.KindCreateGroup)
	h.withKey()
	h.must("alice", nostr.KindEditMetadata, nostrtest.Tag("name", "Hall"))
	n, err := h.SignChannels(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	h.requireSnapshots("hall")
}

// The change of one member that has the most signed fits into what a batch reserves for it.
func TestAChangeOfAMemberFitsIntoWhatIsReserved(t *testing.T) {
	f := newFixture(t).withKey()
	long := strings.Repeat("x", nostr.MaxChannelID)
	v, _ := f.order(f.command(f.community, "alice", nostr.KindCreateGroup, nostrtest.Channel(long)))
	require.Equal(t, policy.Verdict{}, v)
	f.crowd(policy.ShortRoster-2, "owner")
	for _, table := range []string{"events", "event_tags", "addresses"} { // so that what the roles mean is signed again, too
		_, err := f.admin.Exec(t.Context(), `DELETE FROM ingest.`+table+` WHERE kind IN (33534, 39003)`)
		require.NoError(t, err)
	}
	for _, c := range []*policy.Candidate{
		f.command(f.community, "bob", nostr.KindJoinRequest, nostrtest.Channel(long)),
		f.command(f.community, "owner", nostr.KindRelayAddMember, p("bob")),
		f.command(f.community, "bob", nostr.KindLeaveRequest, nostrtest.Channel(long)),
		f.command(f.community, "alice", nostr.KindPutUser, nostrtest.Channel(long), p("bob")),
		f.command(f.community, "alice", nostr.KindRemoveUser, nostrtest.Channel(long), p("bob")),
	} {
		require.Equal(t, policy.RosterBytes, c.Command.FollowUps)
		v, row := f.order(c)
		require.Equal(t, policy.Verdict{}, v)
		require.NotZero(t, f.passedOn(row, nostr.KindGroupMembers, nostr.KindRelayMembers), "at once")
		for _, p := range row.Partitions {
			require.LessOrEqual(t, len(p.GetBatch()), c.Size())
		}
	}
	_, err := f.admin.Exec(t.Context(), `INSERT INTO ingest.channel_members (community_id, channel_id, pubkey, role)
SELECT community_id, id, $1, 'owner' FROM ingest.channels`, bytesOf(nostrtest.PubKey("carol")))
	require.NoError(t, err)
	c := f.command(f.community, "dave", nostr.KindJoinRequest, nostrtest.Channel(long))
	_, row := f.order(c)
	require.Equal(t, policy.ShortRoster+1, f.state(long, nostr.KindGroupMembers).Tags.Count("p"), "the longest that is signed at once")
	for _, p := range row.Partitions {
		require.LessOrEqual(t, len(p.GetBatch()), c.Size())
	}
}
