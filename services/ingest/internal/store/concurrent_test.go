package store

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// replica returns another store on the same database, with connections of its own.
func (f *fixture) replica() *Store {
	return New(pgtest.NewAs(f.t, "apiary_ingest"), partitions)
}

// hold takes a lock until release is called.
func (f *fixture) hold(key int64, exclusive bool) (release func()) {
	f.t.Helper()
	tx, err := f.admin.Begin(f.t.Context())
	require.NoError(f.t, err)
	locks := lockSet{}
	if locks.shared(key); exclusive {
		locks.exclusive(key)
	}
	b := &pgx.Batch{}
	locks.queue(b)
	require.NoError(f.t, tx.SendBatch(f.t.Context(), b).Close())
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.WithoutCancel(f.t.Context())) })
	f.t.Cleanup(release)
	return release
}

// awaitWaiters returns when n sessions of the test's database wait for a lock of this type.
func (f *fixture) awaitWaiters(event string, n int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { // Postgres tells nobody when somebody waits
		return f.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = $1`, event) == n
	}, 20*time.Second, 5*time.Millisecond)
}

// TestConcurrentVersions commits 64 versions of each of many addresses on two replicas at once, in batches that
// hold one version of each.
func TestConcurrentVersions(t *testing.T) {
	const versions, addresses = 64, 20
	f := newFixture(t)
	stores := []*Store{f.replica(), f.replica()}
	batches, best := make([][]*policy.Candidate, versions), make([]*policy.Candidate, addresses)
	for i := range versions {
		for d := range addresses {
			v := f.candidate("alice", nostrtest.Kind(30023), nostrtest.Tag("d", strconv.Itoa(d)), nostrtest.Tag("t", strconv.Itoa(i)),
				nostrtest.CreatedAt(int64(i/2)), nostrtest.Content(strconv.Itoa(i)))
			batches[i] = append(batches[i], v)
			if best[d] == nil || newer(v.Event.CreatedAt, v.Event.ID, best[d].Event.CreatedAt, best[d].Event.ID) {
				best[d] = v
			}
		}
	}
	rand.Shuffle(versions, func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
	var group errgroup.Group
	for i, batch := range batches {
		group.Go(func() error {
			result, err := stores[i%2].Commit(t.Context(), batch)
			if err != nil {
				return err
			}
			for d, v := range result.Verdicts {
				if !v.Accepted() && (v != policy.Superseded || batch[d] == best[d]) {
					return fmt.Errorf("version %d of %d: %v", i, d, v)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	f.requireStored(best...)
}

// TestVersionWaitsForTheOneBefore lets a newer version commit while another one is being decided on.
func TestVersionWaitsForTheOneBefore(t *testing.T) {
	f := newFixture(t)
	at := func(created int64) *policy.Candidate {
		return f.candidate("alice", nostrtest.Kind(10002), nostrtest.CreatedAt(created))
	}
	newest := at(3)
	f.accept(at(1))
	tx, err := f.admin.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	_, err = tx.Exec(t.Context(), `UPDATE ingest.addresses SET created_at = 3, id = $1`, newest.Event.ID[:])
	require.NoError(t, err)
	verdict := make(chan policy.Verdict, 1)
	go func() {
		if result, err := f.Commit(t.Context(), []*policy.Candidate{at(2)}); err == nil {
			verdict <- result.Verdicts[0]
		}
		close(verdict)
	}()
	f.awaitWaiters("transactionid", 1)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, policy.Superseded, <-verdict)
}

func TestConcurrentDuplicates(t *testing.T) {
	f := newFixture(t)
	stores := []*Store{f.replica(), f.replica()}
	// Both replicas get the same events, in opposite order: locks are taken in an order of their own.
	var batch, reversed []*policy.Candidate
	for i := range 100 {
		kind := nostrtest.Kind(1)
		if i%3 == 0 {
			kind = nostrtest.Kind(30023)
		}
		batch = append(batch, f.candidate("alice", kind, nostrtest.Tag("d", strconv.Itoa(i)), nostrtest.Content(strconv.Itoa(i))))
		reversed = append([]*policy.Candidate{batch[i]}, reversed...)
	}
	var group errgroup.Group
	accepted := make([]int, 2)
	for i, list := range [][]*policy.Candidate{batch, reversed} {
		group.Go(func() error {
			result, err := stores[i].Commit(t.Context(), list)
			for _, v := range result.Verdicts {
				if v.Accepted() {
					accepted[i]++
				}
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, len(batch), accepted[0]+accepted[1], "each accepted once")
	f.requireStored(batch...)
}

// TestDeletionRacesItsTarget runs a deletion and the insertion of its target at the same moment on two
// replicas: whatever comes first, the target is gone in the end.
func TestDeletionRacesItsTarget(t *testing.T) {
	f := newFixture(t)
	stores := []*Store{f.replica(), f.replica()}
	for i := range 40 {
		var target, request *policy.Candidate
		if i%2 == 0 {
			target = f.candidate("alice", nostrtest.Content(fmt.Sprint("target ", i)), nostrtest.Tag("t", "x"))
			request = f.candidate("alice", deletion(e(target), nostrtest.Content(strconv.Itoa(i)))...)
		} else {
			target = f.candidate("alice", nostrtest.Kind(30023), nostrtest.Tag("d", strconv.Itoa(i)))
			request = f.candidate("alice", deletion(a("alice", "30023", strconv.Itoa(i)))...)
		}
		var group errgroup.Group
		var verdict policy.Verdict
		group.Go(func() error {
			result, err := stores[0].Commit(t.Context(), []*policy.Candidate{target})
			if err == nil {
				verdict = result.Verdicts[0]
			}
			return err
		})
		group.Go(func() error {
			_, err := stores[1].Commit(t.Context(), []*policy.Candidate{request})
			return err
		})
		require.NoError(t, group.Wait())
		if !verdict.Accepted() {
			require.Equal(t, policy.Deleted, verdict)
		}
		require.Zero(t, f.count(`SELECT count(*) FROM ingest.events WHERE id = $1`, target.Event.ID[:]), "round %d", i)
		require.Zero(t, f.count(`SELECT count(*) FROM ingest.event_tags WHERE id = $1`, target.Event.ID[:]), "round %d", i)
	}
	require.Equal(t, 40, f.count(`SELECT count(*) FROM ingest.events`))
}

// TestDeletionWaitsForBatchesInFlight proves the exclusion itself: while a batch of the community holds its
// lock, a deletion waits, and the other way round.
func TestDeletionWaitsForBatchesInFlight(t *testing.T) {
	f := newFixture(t)
	target := f.candidate("alice", nostrtest.Content("target"))
	request := f.candidate("alice", deletion(e(target))...)

	release := f.hold(communityLock(f.community), false)
	done := make(chan error, 1)
	go func() {
		_, err := f.Commit(t.Context(), []*policy.Candidate{request})
		done <- err
	}()
	f.awaitWaiters("advisory", 1)
	release()
	require.NoError(t, <-done)

	release = f.hold(communityLock(f.community), true)
	go func() {
		_, err := f.Commit(t.Context(), []*policy.Candidate{target})
		done <- err
	}()
	f.awaitWaiters("advisory", 1)
	// Batches of other communities and batches that share do not wait.
	f.accept(f.candidateIn(f.newCommunity("two.example", AccessOpen), "alice"))
	release()
	require.NoError(t, <-done)
	f.requireStored(request, f.candidateIn(2, "alice"))
}

// TestNothingCommitsUnderAnOlderVersion removes and adds a member while batches are committed on two
// replicas, and then holds every event against the history of versions: an event with version v was
// committed before version v+1 was.
func TestNothingCommitsUnderAnOlderVersion(t *testing.T) {
	f := newFixture(t)
	closed := f.newCommunity("closed.example", AccessClosed)
	_, err := f.PutMember(t.Context(), closed, nostrtest.PubKey("alice"), "member")
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	type outcome struct {
		version  uint64
		xid      uint64
		accepted bool
	}
	var mu sync.Mutex
	var outcomes []outcome
	var writers errgroup.Group
	for i, s := range []*Store{f.replica(), f.replica()} {
		writers.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				batch := []*policy.Candidate{f.candidateIn(closed, "alice", nostrtest.Content(fmt.Sprint(i, " ", n)))}
				result, err := s.Commit(t.Context(), batch)
				if err != nil {
					return err
				}
				o := outcome{accepted: result.Verdicts[0].Accepted()}
				if o.accepted {
					for _, list := range envelopes(t, result.Row) {
						o.version, o.xid = list[0].GetHeader().GetCommunityAclVersion(), list[0].GetHeader().GetCommitXid()
					}
				}
				mu.Lock()
				outcomes = append(outcomes, o)
				mu.Unlock()
			}
			return nil
		})
	}
	// removed maps the version of each removal to a snapshot taken right after it: what that snapshot does not see
	// was committed later.
	type snapshot struct {
		xmax uint64
		text string
	}
	removals := map[uint64]snapshot{}
	for range 15 {
		done, err := f.RemoveMember(t.Context(), closed, nostrtest.PubKey("alice"))
		require.NoError(t, err)
		var s snapshot
		require.NoError(t, f.admin.QueryRow(t.Context(), `SELECT pg_snapshot_xmax(pg_current_snapshot()), pg_current_snapshot()::text`).Scan(&s.xmax, &s.text))
		removals[done.ACLVersion] = s
		_, err = f.PutMember(t.Context(), closed, nostrtest.PubKey("alice"), "member")
		require.NoError(t, err)
	}
	stop()
	require.NoError(t, writers.Wait())
	refused, checked := 0, 0
	for _, o := range outcomes {
		if !o.accepted {
			refused++
			continue
		}
		for version, s := range removals {
			require.NotEqual(t, version, o.version, "accepted in a state where the author was no member")
			if o.version >= version {
				continue
			}
			checked++
			require.Equal(t, 1, f.count(`SELECT pg_visible_in_snapshot($1::text::xid8, $2::text::pg_snapshot)::int`, strconv.FormatUint(o.xid, 10), s.text),
				"an event of version %d was committed after the removal that made version %d", o.version, version)
		}
	}
	t.Logf("%d events, %d refused, %d comparisons", len(outcomes), refused, checked)
	require.NotZero(t, checked)
}

// TestRemovalWaitsForBatchesInFlight holds a batch between reading and commit.
func TestRemovalWaitsForBatchesInFlight(t *testing.T) {
	f := newFixture(t)
	release := f.hold(communityLock(f.community), false)
	done := make(chan error, 1)
	go func() {
		_, err := f.RemoveMember(t.Context(), f.community, nostrtest.PubKey("owner"))
		done <- err
	}()
	f.awaitWaiters("advisory", 1)
	release()
	require.NoError(t, <-done)
}

func TestConcurrentCreationsOfOneChannel(t *testing.T) {
	f := newFixture(t)
	var group errgroup.Group
	var mu sync.Mutex
	accepted := 0
	for i := range 8 {
		c := f.candidate(fmt.Sprint("author ", i), create(nostrtest.Channel("c"))...)
		group.Go(func() error {
			result, err := f.Commit(t.Context(), []*policy.Candidate{c})
			mu.Lock()
			defer mu.Unlock()
			if err == nil && result.Verdicts[0].Accepted() {
				accepted++
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, 1, accepted)
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.channels`))
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.channel_members`))
}

func TestLockKeys(t *testing.T) {
	require.NotEqual(t, communityLock(1), communityLock(2))
	one, two := channelLock(policy.ChannelKey{Community: 1, H: "a"}), channelLock(policy.ChannelKey{Community: 2, H: "a"})
	require.NotEqual(t, one, two)
	require.EqualValues(t, 2, one>>classBits)
	require.EqualValues(t, 1, communityLock(1)>>classBits)
	require.True(t, bytes.Equal(bytesOf(nostrtest.PubKey("a")), bytesOf(nostrtest.PubKey("a"))))
}

// TestABanRacesARole has an admin ban the owner of an agent that an owner makes an admin meanwhile: whichever comes first, the
// other is refused, so that no admin is ever under a ban.
func TestABanRacesARole(t *testing.T) {
	f := newFixture(t).withKey()
	closed := f.staff()
	require.NoError(t, f.attest(closed, "bot", "bob", time.Time{}))
	stores := []*Store{f.replica(), f.replica()}
	for _, s := range stores {
		s.key = f.key
	}
	wants := [][]policy.Verdict{{{}, policy.TargetBanned}, {policy.AdminIsSafe, {}}}
	for round := range 4 {
		f.moderateIn(closed, UnbanPubKey(nostrtest.PubKey("bob")))
		f.put(closed, "bob", policy.RoleMember)
		f.put(closed, "bot", policy.RoleMember)
		again := nostrtest.Tag("n", strconv.Itoa(round))
		commands := []*policy.Candidate{
			f.command(closed, "admin", nostr.KindBan, p("bob"), again),
			f.command(closed, "owner", nostr.KindRelayChangeRole, p("bot"), nostrtest.Tag("role", "admin"), again),
		}
		first := round % 2
		verdicts := make([]policy.Verdict, len(commands))
		var group errgroup.Group
		release := f.hold(communityLock(closed), true)
		for waiting, which := range []int{first, 1 - first} {
			group.Go(func() error {
				result, err := stores[which].Commit(t.Context(), commands[which:which+1])
				if err == nil {
					verdicts[which] = result.Verdicts[0]
				}
				return err
			})
			f.awaitWaiters("advisory", waiting+1)
		}
		release()
		require.NoError(t, group.Wait())
		require.Equal(t, wants[first], verdicts)
	}
}
