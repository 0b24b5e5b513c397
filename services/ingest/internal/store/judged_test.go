package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// clock returns the time by the database, in microseconds since the Unix epoch.
func (f *fixture) clock() (now int64) {
	require.NoError(f.t, f.admin.QueryRow(f.t.Context(), sqlClock).Scan(&now))
	return now
}

// An event that had to wait, for a change of who is a member or for another event, counts as committed after the wait: what
// ended meanwhile is over for it.
func TestWhatWaitsIsJudgedAfterwards(t *testing.T) {
	for event, wait := range map[string]func(f *fixture, c *policy.Candidate) (release func()){
		"advisory": func(f *fixture, _ *policy.Candidate) func() { return f.hold(communityLock(f.community), true) },
		"transactionid": func(f *fixture, c *policy.Candidate) func() { // of somebody who stores the same event
			tx, err := f.admin.Begin(f.t.Context())
			require.NoError(f.t, err)
			_, err = tx.Exec(f.t.Context(), sqlClaimIDs, []int64{f.community}, [][]byte{c.Event.ID[:]}, []int64{c.Event.CreatedAt})
			require.NoError(f.t, err)
			return func() { require.NoError(f.t, tx.Rollback(f.t.Context())) }
		},
	} {
		t.Run(event, func(t *testing.T) {
			f := newFixture(t)
			c := f.candidate("alice", nostrtest.Content("late"))
			release := wait(f, c)
			done := make(chan *Row, 1)
			go func() {
				result, err := f.Commit(t.Context(), []*policy.Candidate{c})
				if err != nil {
					t.Error(err)
				}
				done <- result.Row
			}()
			f.awaitWaiters(event, 1)
			ended := f.clock()
			release()
			for _, list := range envelopes(t, <-done) {
				require.Greater(t, list[0].GetHeader().GetJudgedAt(), ended)
				require.LessOrEqual(t, list[0].GetHeader().GetJudgedAt(), f.clock())
			}
		})
	}
}

// What is not stored says as well when it was judged.
func TestWhatIsReadSaysWhen(t *testing.T) {
	f := newFixture(t)
	before := f.clock()
	state, err := f.ReadState(t.Context(), []*policy.Candidate{f.candidate("alice")})
	require.NoError(t, err)
	require.GreaterOrEqual(t, state.ReadAt, before)
	require.LessOrEqual(t, state.ReadAt, f.clock())
}
