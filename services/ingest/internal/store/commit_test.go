package store

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/placement"
	"github.com/apiary-relay/apiary/pkg/postgres"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

func create(opts ...nostrtest.Option) []nostrtest.Option {
	return append([]nostrtest.Option{nostrtest.Kind(9007)}, opts...)
}

func TestCommitStoresEverything(t *testing.T) {
	f := newFixture(t)
	f.accept(f.candidate("owner", create(nostrtest.Channel("general"))...))
	note := f.candidate("alice", nostrtest.Content("hello"), nostrtest.Tag("t", "a"), nostrtest.Tag("t", "a", "again"),
		nostrtest.Tag("t", "b"), nostrtest.Tag("T", "a"), nostrtest.Tag("e"), nostrtest.Tag("title", "no letter"), nostrtest.Tag("r", long("http://")),
		nostrtest.Tag("x", ""), nostrtest.Tag("n", "a\x00b"))
	note.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	chat := f.candidate("bob", nostrtest.Kind(9), nostrtest.Channel("general"), nostrtest.Tag("expiration", "1800000000"))
	verdicts, row := f.commit(note, chat)
	require.Equal(t, []policy.Verdict{{}, {}}, verdicts)

	var raw []byte
	var kind, created, expires int64
	var channel *int64
	require.NoError(t, f.admin.QueryRow(t.Context(), `SELECT raw, kind, created_at, channel_id, expires_at FROM ingest.events WHERE id = $1`, chat.Event.ID[:]).
		Scan(&raw, &kind, &created, &channel, &expires))
	require.Equal(t, string(chat.Raw), string(raw))
	require.Equal(t, []int64{9, nostrtest.Epoch, 1800000000}, []int64{kind, created, expires})
	require.NotNil(t, channel)

	rows, err := f.admin.Query(t.Context(), `SELECT name, value FROM ingest.event_tags WHERE id = $1`, note.Event.ID[:])
	require.NoError(t, err)
	got := []string{}
	for rows.Next() {
		var name string
		var value []byte
		require.NoError(t, rows.Scan(&name, &value))
		got = append(got, name+"="+string(value))
	}
	require.ElementsMatch(t, []string{"t=a", "t=b", "T=a", "r=" + string(postgres.TagKey(long("http://"))), "x=", "n=a\x00b"}, got)

	// The headers.
	global, local := placement.Partition(f.community, "", partitions), placement.Partition(f.community, "general", partitions)
	require.NotEqual(t, global, local, "the test needs two partitions")
	sent := envelopes(t, row)
	require.Len(t, sent, 2)
	require.Len(t, sent[global], 1)
	require.Len(t, sent[local], 1)
	var xid uint64
	require.NoError(t, f.admin.QueryRow(t.Context(), `SELECT commit_xid FROM ingest.events WHERE id = $1`, note.Event.ID[:]).Scan(&xid))
	system, err := postgres.SystemIdentifier(t.Context(), f.admin)
	require.NoError(t, err)
	h := sent[global][0].GetHeader()
	require.Equal(t, string(note.Raw), string(sent[global][0].GetRaw()))
	require.Equal(t, note.Event.ID[:], h.GetId())
	require.Equal(t, note.Event.PubKey[:], h.GetPubkey())
	require.Equal(t, nostrtest.Epoch, h.GetCreatedAt())
	require.Equal(t, uint32(1), h.GetKind())
	require.Equal(t, f.community, h.GetCommunity())
	require.Empty(t, h.GetChannel())
	require.Equal(t, global, h.GetPartition())
	require.Equal(t, uint64(1), h.GetCommunityAclVersion())
	require.Zero(t, h.GetChannelAclVersion())
	require.Equal(t, xid, h.GetCommitXid())
	require.Equal(t, system, h.GetDatabaseId())
	require.Equal(t, row.CreatedAt.UnixMicro(), h.GetBegunAt())
	require.Greater(t, h.GetJudgedAt(), h.GetBegunAt(), "after the locks and what was claimed")
	require.Equal(t, h.GetJudgedAt(), sent[local][0].GetHeader().GetJudgedAt())
	require.Equal(t, note.Traceparent, h.GetTraceparent())
	h = sent[local][0].GetHeader()
	require.Equal(t, "general", h.GetChannel())
	require.EqualValues(t, f.count(`SELECT acl_version FROM ingest.channels WHERE h = 'general'`), h.GetChannelAclVersion())
	require.Equal(t, xid, h.GetCommitXid())
}

func TestCommitKeepsOrderInAPartition(t *testing.T) {
	f := newFixture(t)
	var batch []*policy.Candidate
	for i := range 20 {
		batch = append(batch, f.candidate("alice", nostrtest.Content(strconv.Itoa(i))))
	}
	_, row := f.commit(batch...)
	for _, list := range envelopes(t, row) {
		require.Len(t, list, len(batch))
		for i, e := range list {
			require.Equal(t, batch[i].Event.ID[:], e.GetHeader().GetId())
		}
	}
}

func TestDuplicates(t *testing.T) {
	f := newFixture(t)
	first, second := f.candidate("alice", nostrtest.Content("1")), f.candidate("alice", nostrtest.Content("2"))
	f.accept(first)
	verdicts, row := f.commit(first, second)
	require.Equal(t, []policy.Verdict{policy.Duplicate, {}}, verdicts)
	require.Len(t, envelopes(t, row), 1)
	verdicts, row = f.commit(first, second)
	require.Equal(t, []policy.Verdict{policy.Duplicate, policy.Duplicate}, verdicts)
	require.Nil(t, row, "nothing stored, nothing to publish")
	f.requireStored(first, second)

	// The same event in another community is another event.
	other := f.newCommunity("two.example", AccessOpen)
	f.accept(f.candidateIn(other, "alice", nostrtest.Content("1")))
}

func TestReplaceable(t *testing.T) {
	f := newFixture(t)
	at := func(created int64, content string) *policy.Candidate {
		return f.candidate("alice", nostrtest.Kind(10002), nostrtest.CreatedAt(created), nostrtest.Content(content), nostrtest.Tag("r", content))
	}
	old, middle, recent := at(1, "old"), at(2, "middle"), at(3, "recent")
	f.accept(middle)
	require.Equal(t, policy.Superseded, f.verdict(old))
	require.Equal(t, policy.Duplicate, f.verdict(middle))
	f.accept(recent)
	f.requireStored(recent)
	require.Equal(t, policy.Superseded, f.verdict(middle), "a version that was replaced does not come back")
	f.requireStored(recent)

	// On a tie the lowest id wins, whatever comes first.
	a, b := at(4, "a"), at(4, "b")
	low, high := a, b
	if strings.Compare(hexID(a), hexID(b)) > 0 {
		low, high = b, a
	}
	f.accept(high, low)
	require.Equal(t, policy.Superseded, f.verdict(high))
	f.requireStored(low)

	// Another kind, another author and another community are other addresses.
	others := []*policy.Candidate{
		f.candidate("alice", nostrtest.Kind(10003)), f.candidate("bob", nostrtest.Kind(10002)),
		f.candidateIn(f.newCommunity("two.example", AccessOpen), "alice", nostrtest.Kind(10002)),
	}
	verdicts, _ := f.commit(others...)
	require.Equal(t, []policy.Verdict{{}, {}, {}}, verdicts)
	f.requireStored(append(others, low)...)
}

func TestAddressable(t *testing.T) {
	f := newFixture(t)
	at := func(created int64, d string) *policy.Candidate {
		return f.candidate("alice", nostrtest.Kind(30023), nostrtest.CreatedAt(created), nostrtest.Tag("d", d))
	}
	x1, x2, y, none := at(1, "x"), at(2, "x"), at(1, "y"), f.candidate("alice", nostrtest.Kind(30023))
	long1, long2 := at(1, long("d")[:1000]), at(2, long("d")[:1000])
	verdicts, _ := f.commit(x1, y, none, long1)
	require.Equal(t, []policy.Verdict{{}, {}, {}, {}}, verdicts)
	verdicts, _ = f.commit(x2, long2)
	require.Equal(t, []policy.Verdict{{}, {}}, verdicts)
	f.requireStored(x2, y, none, long2)
}

func TestVerdictsOfAMixedBatch(t *testing.T) {
	f := newFixture(t)
	closed := f.newCommunity("closed.example", AccessClosed)
	f.accept(
		f.candidate("owner", create(nostrtest.Channel("private"), nostrtest.Tag("private"))...),
		f.candidate("owner", create(nostrtest.Channel("open"))...),
	)
	chat := func(author, h string) *policy.Candidate {
		return f.candidate(author, nostrtest.Kind(9), nostrtest.Channel(h))
	}
	batch := []*policy.Candidate{
		chat("alice", "open"), chat("alice", "private"), chat("alice", "none"), chat("owner", "private"),
		f.candidateIn(closed, "alice"), f.candidateIn(closed, "owner"), f.candidateIn(424242, "alice"),
		f.candidate("alice", create(nostrtest.Channel("open"))...),
	}
	verdicts, row := f.commit(batch...)
	require.Equal(t, []policy.Verdict{
		{},
		policy.NotChannelMember, policy.NotChannelMember,
		{},
		policy.NotMember,
		{},
		policy.NotMember,
		policy.ChannelExists,
	}, verdicts)
	n := 0
	for _, list := range envelopes(t, row) {
		n += len(list)
	}
	require.Equal(t, 3, n)

	_, err := f.admin.Exec(t.Context(), `UPDATE ingest.channels SET archived_at = now() WHERE h = 'open'`)
	require.NoError(t, err)
	require.Equal(t, policy.Verdict{Reason: fault.Invalid, Message: "channel is archived"}, f.verdict(f.candidate("alice", nostrtest.Kind(9), nostrtest.Channel("open"), nostrtest.Content("2"))))
}

func TestCreateChannel(t *testing.T) {
	f := newFixture(t)
	c := f.candidate("alice", create(nostrtest.Channel("c"), nostrtest.Tag("name", "C"), nostrtest.Tag("about", "a"), nostrtest.Tag("picture", "p"), nostrtest.Tag("private"))...)
	verdicts, row := f.commit(c)
	require.Equal(t, []policy.Verdict{{}}, verdicts)
	for _, list := range envelopes(t, row) {
		require.Equal(t, "c", list[0].GetHeader().GetChannel())
		require.EqualValues(t, f.count(`SELECT acl_version FROM ingest.channels WHERE h = 'c'`), list[0].GetHeader().GetChannelAclVersion())
	}
	require.Equal(t, 1, f.count(`
SELECT count(*) FROM ingest.channels c JOIN ingest.channel_members m ON m.community_id = c.community_id AND m.channel_id = c.id
JOIN ingest.events e ON e.community_id = c.community_id AND e.channel_id = c.id
WHERE c.h = 'c' AND c.name = 'C' AND c.about = 'a' AND c.picture = 'p' AND c.visibility = 'private' AND m.role = 'owner' AND m.pubkey = c.created_by`))
	require.Equal(t, policy.Processed, f.verdict(c), "a retry of the caller's is no second creation")
	require.Equal(t, "channel already exists", f.verdict(f.candidate("bob", create(nostrtest.Channel("c"))...)).Message)
	// Channel ids are unique only in their community.
	f.accept(f.candidateIn(f.newCommunity("two.example", AccessOpen), "alice", create(nostrtest.Channel("c"))...))
}

func TestDataErrorIsNotTransient(t *testing.T) {
	f := newFixture(t)
	_, err := f.admin.Exec(t.Context(), `ALTER TABLE ingest.events ADD CONSTRAINT no_poison CHECK (raw NOT LIKE '%poison%'::bytea)`)
	require.NoError(t, err)
	good, bad := f.candidate("alice", nostrtest.Content("good")), f.candidate("alice", nostrtest.Content("poison"))
	_, err = f.Commit(t.Context(), []*policy.Candidate{good, bad})
	require.Error(t, err)
	require.False(t, IsTransient(err))
	f.requireStored()
	f.accept(good)
}
