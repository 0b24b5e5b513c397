package store

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// due is when the reminders of these tests are due.
var due = time.Unix(time.Now().Add(time.Hour).Unix(), 0)

// reminder signs a reminder of alice's.
func (f *fixture) reminder(d string, at time.Time, opts ...nostrtest.Option) *policy.Candidate {
	f.t.Helper()
	return f.command(f.community, "alice", nostr.KindReminder, append([]nostrtest.Option{
		nostrtest.Tag("d", d), nostrtest.Tag("not_before", strconv.FormatInt(at.Unix(), 10)),
	}, opts...)...)
}

// remind passes on what is due at a time, and returns it.
func (f *fixture) remind(at time.Time) (list []*commonv1.Envelope) {
	f.t.Helper()
	var rows []*Row
	s := *f.Store
	s.publish = func(_ context.Context, row *Row) { rows = append(rows, row) }
	passed, _, err := s.Remind(f.t.Context(), at, 100)
	require.NoError(f.t, err)
	for _, row := range rows {
		for _, l := range envelopes(f.t, row) {
			list = append(list, l...)
		}
	}
	require.Len(f.t, list, passed)
	return list
}

func (f *fixture) awaited() int { return f.count(`SELECT count(*) FROM ingest.reminders`) }

// A reminder is passed on once more when it is due, by one replica, as it was signed.
func TestAReminderComesOnce(t *testing.T) {
	f := newFixture(t)
	r := f.reminder("tea", due)
	f.accept(r)
	f.put(f.community, "bob", policy.RoleMember) // the community has another version since
	require.Equal(t, policy.Duplicate, f.verdict(r))
	require.Empty(t, f.remind(due.Add(-time.Second)))

	before := f.rows()
	var passed atomic.Int64
	var replicas sync.WaitGroup
	for range 3 {
		other := f.replica()
		replicas.Go(func() {
			n, _, err := other.Remind(t.Context(), due, 100)
			if err != nil {
				t.Error(err)
			}
			passed.Add(int64(n))
		})
	}
	replicas.Wait()
	require.EqualValues(t, 1, passed.Load())
	require.Equal(t, before+1, f.rows(), "nobody published it, so it waits in the outbox")
	require.Zero(t, f.awaited())
	require.Empty(t, f.remind(due.Add(time.Hour)))

	var last *Row
	_, err := f.SweepOutbox(t.Context(), 0, 0, 100, func(rows []*Row) []int64 {
		last = rows[len(rows)-1]
		return nil
	})
	require.NoError(t, err)
	for _, list := range envelopes(t, last) {
		require.Len(t, list, 1)
		require.Equal(t, r.Raw, list[0].GetRaw())
		h := list[0].GetHeader()
		require.Equal(t, r.Event.ID[:], h.GetId())
		require.Equal(t, due.Unix(), h.GetDueAt())
		require.Equal(t, f.version(f.community), h.GetCommunityAclVersion())
		require.NotZero(t, h.GetCommitXid())
	}
	f.requireStored(r)
}

// A replica that has a reminder in hand and dies leaves it to the others.
func TestAReminderOutlivesWhoHadIt(t *testing.T) {
	f := newFixture(t)
	f.accept(f.reminder("tea", due), f.reminder("cake", due))
	tx, err := f.admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM ingest.reminders ORDER BY id LIMIT 1 FOR UPDATE`)
	require.NoError(t, err)
	require.Len(t, f.remind(due), 1, "the others are not waited for")
	require.NoError(t, tx.Conn().Close(t.Context()))
	_ = tx.Rollback(t.Context())
	require.Eventually(t, func() bool { return len(f.remind(due)) == 1 }, 10*time.Second, time.Millisecond, "until the server has noticed")
}

// A reminder that was replaced, deleted or has expired does not come, nor does that of who is gone.
func TestRemindersThatDoNotCome(t *testing.T) {
	alice := nostrtest.PubKey("alice").String()
	after := func(r *policy.Candidate) nostrtest.Option { return nostrtest.CreatedAt(r.Event.CreatedAt + 1) }
	for name, c := range map[string]struct {
		then func(f *fixture, r *policy.Candidate)
		left int // reminders that are still awaited
		opts []nostrtest.Option
	}{
		"done": {then: func(f *fixture, r *policy.Candidate) {
			f.accept(f.command(f.community, "alice", nostr.KindReminder, nostrtest.Tag("d", "tea"), after(r)))
		}},
		"snoozed": {left: 1, then: func(f *fixture, r *policy.Candidate) {
			f.accept(f.reminder("tea", due.Add(2*time.Hour), after(r)))
		}},
		"deleted by its address": {then: func(f *fixture, r *policy.Candidate) {
			f.accept(f.command(f.community, "alice", nostr.KindDeletion, nostrtest.Tag("a", "30300:"+alice+":tea"), after(r)))
		}},
		"deleted by its id": {then: func(f *fixture, r *policy.Candidate) {
			f.accept(f.command(f.community, "alice", nostr.KindDeletion, nostrtest.Tag("e", r.Event.ID.String()), after(r)))
		}},
		"removed by a moderator": {then: func(f *fixture, r *policy.Candidate) {
			f.moderate(BanEvent(r.Event.ID))
		}},
		"of a key that has vanished": {then: func(f *fixture, r *policy.Candidate) {
			f.accept(f.command(f.community, "alice", nostr.KindVanish, nostrtest.Tag("relay", "ALL_RELAYS"), after(r)))
		}},
		"of a key that is vanishing": {then: func(f *fixture, _ *policy.Candidate) {
			_, err := f.admin.Exec(f.t.Context(), `INSERT INTO ingest.vanished (community_id, pubkey, until, request_id)
SELECT community_id, pubkey, created_at, id FROM ingest.events`)
			require.NoError(f.t, err)
		}},
		"expired": {opts: []nostrtest.Option{nostrtest.Tag("expiration", strconv.FormatInt(due.Unix()+1, 10))}},
		"gone without a trace": {then: func(f *fixture, _ *policy.Candidate) {
			_, err := f.admin.Exec(f.t.Context(), `DELETE FROM ingest.events`)
			require.NoError(f.t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			r := f.reminder("tea", due, c.opts...)
			f.accept(r)
			if c.then != nil {
				c.then(f, r)
			}
			require.Empty(t, f.remind(due.Add(time.Hour)))
			require.Equal(t, c.left, f.awaited())
			require.Len(t, f.remind(due.Add(3*time.Hour)), c.left)
			require.Zero(t, f.awaited())
		})
	}
}

// What is due when it is accepted has come with that. Another community's is another.
func TestWhatIsDueAlreadyIsNotAwaited(t *testing.T) {
	f := newFixture(t)
	f.accept(f.reminder("tea", time.Now().Add(-time.Minute)), f.reminder("x", time.Unix(0, 0)))
	require.Zero(t, f.awaited())
	r := f.reminder("cake", due)
	there := *r
	there.Community = f.newCommunity("two.example", AccessOpen)
	f.accept(r, &there)
	require.Len(t, f.remind(due), 2)
}

// However many are due, no message is larger than may be published.
func TestManyRemindersAtOnce(t *testing.T) {
	f := newFixture(t)
	large := nostrtest.Content(strings.Repeat("x", 150<<10))
	for i := range 5 {
		f.accept(f.reminder(strconv.Itoa(i), due, large))
	}
	f.accept(f.reminder("huge", due.Add(-time.Second), nostrtest.Content(strings.Repeat("x", 450<<10))))
	messages := 0
	s := *f.Store
	s.publish = func(_ context.Context, row *Row) {
		messages++
		require.LessOrEqual(t, row.Size(), 460<<10)
	}
	total := 0
	for range 5 {
		passed, found, err := s.Remind(t.Context(), due, 4)
		require.NoError(t, err)
		require.LessOrEqual(t, passed, found)
		total += passed
	}
	require.Equal(t, 6, total)
	require.Equal(t, 4, messages)

	f.accept(f.reminder("small", due), f.reminder("grown", due, large))
	s.most = func() int { return 100 << 10 }
	passed, _, err := s.Remind(t.Context(), due, 10)
	require.NoError(t, err)
	if passed == 0 { // the large one was first
		passed, _, err = s.Remind(t.Context(), due, 10)
		require.NoError(t, err)
	}
	_, _, err = s.Remind(t.Context(), due, 10)
	require.NoError(t, err)
	require.Equal(t, 1, passed, "what the bus does not take any more is left to who asks for it")
	require.Zero(t, f.awaited())
}
