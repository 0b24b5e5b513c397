package store

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// The change that has the most signed fits into what a batch reserves for it, envelopes included.
func TestWhatFollowsFitsIntoWhatIsReserved(t *testing.T) {
	h := newHall(t)
	_, err := h.admin.Exec(t.Context(), `INSERT INTO ingest.channel_members (community_id, channel_id, pubkey, role)
SELECT c.community_id, c.id, sha256(n::text::bytea), 'member' FROM ingest.channels c, generate_series(1, 2000) AS n`)
	require.NoError(t, err)
	h.must("alice", nostr.KindEditMetadata, nostrtest.Tag("archived", "true"))

	escaped := func(n int) string { return strings.Repeat("\x01", n) }
	c := h.command(h.community, "alice", nostr.KindEditMetadata, nostrtest.Channel("hall"), nostrtest.Tag("archived", "false"),
		nostrtest.Tag("name", escaped(256)), nostrtest.Tag("about", escaped(4096)), nostrtest.Tag("topic", escaped(4096)),
		nostrtest.Tag("purpose", escaped(4096)), nostrtest.Tag("picture", escaped(2048)), nostrtest.Tag("banner", escaped(2048)))
	verdict, row := h.order(c)
	require.Equal(t, policy.Verdict{}, verdict)
	require.Len(t, told(t, row, nostr.KindMemberAdded), maxNotified)
	require.LessOrEqual(t, row.Size(), c.Size()+policy.FollowUpBytes, "with the state in two partitions")
	for _, p := range row.Partitions {
		require.LessOrEqual(t, len(p.GetBatch()), c.Size())
	}
}

// What does not fit is the refusal of the change alone, and leaves nothing behind. Envelopes count.
func TestAChangeThatHasTooMuchSigned(t *testing.T) {
	f := newFixture(t).withKey()
	small := policy.FollowUpBytes / (policy.EnvelopeOverhead + 300)
	try := func(n int) error {
		_, err := f.changeCommunity(t.Context(), f.community, func(x *change) error {
			for i := range n {
				x.draft(draft{kind: nostr.KindSystemMessage, content: strconv.Itoa(i)})
			}
			return x.raise(t.Context())
		})
		return err
	}
	before := f.version(f.community)
	var refused *RefusedError
	require.ErrorAs(t, try(small+10), &refused)
	require.Equal(t, policy.TooMuchFollows, refused.Verdict)
	require.Equal(t, before, f.version(f.community))
	require.NoError(t, try(small/2))
}

// No message is committed that is larger than may be published, whoever asks for the change.
func TestNothingIsCommittedThatCannotBePublished(t *testing.T) {
	h := newHall(t)
	rows, events := h.rows(), h.count(`SELECT count(*) FROM ingest.events`)
	most := 700
	WithMessageBytes(func() int { return most })(h.Store)
	var refused *RefusedError
	_, err := h.Commit(t.Context(), []*policy.Candidate{
		h.command(h.community, "alice", nostr.KindPutUser, nostrtest.Channel("hall"), p("bob")),
	})
	require.ErrorAs(t, err, &refused)
	_, err = h.PutMember(t.Context(), h.community, nostrtest.PubKey("dave"), policy.RoleAdmin)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, policy.TooMuchFollows, refused.Verdict)
	require.NotContains(t, h.members(), "bob")
	require.Zero(t, h.count(`SELECT count(*) FROM ingest.community_members WHERE role = 'admin'`))
	require.Equal(t, rows, h.rows())
	require.Equal(t, events, h.count(`SELECT count(*) FROM ingest.events`))
	most = 1 << 20
	h.must("alice", nostr.KindPutUser, p("bob"))
	require.Equal(t, rows+1, h.rows())
}
