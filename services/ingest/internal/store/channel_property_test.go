package store

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/internal/channelmodel"
)

// second returns a store of another replica on the same database.
func (f *fixture) second() *Store {
	f.t.Helper()
	return New(pgtest.NewAs(f.t, "apiary_ingest"), partitions, WithKey(nostrtest.Key("relay")))
}

// TestChannelsAreAsTheModelSays sends random commands of several keys through two replicas, and compares the verdicts,
// the members, and what the relay has signed with a model, after each. What clients see of it is compared in
// services/internal/cluster.
func TestChannelsAreAsTheModelSays(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withKey()
	stores := []*Store{f.Store, f.second()}
	names := []string{"alice", "bob", "carol", "dave"}
	var keys []string
	for _, name := range names {
		keys = append(keys, nostrtest.PubKey(name).String())
	}
	channels, serial := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		channels++
		h := "channel-" + strconv.Itoa(channels)
		var m channelmodel.Channel
		for range channelmodel.Pick(rt, "steps", 4, 8, 12, 16) {
			s := m.Draw(rt, keys)
			actor := names[slices.Index(keys, s.Actor)]
			serial++
			opts := []nostrtest.Option{nostrtest.Channel(h), nostrtest.Tag("serial", strconv.Itoa(serial))}
			for _, tag := range s.Tags {
				opts = append(opts, nostrtest.Tag(tag...))
			}
			c := f.command(f.community, actor, s.Kind, opts...)
			before := f.access(h)
			result, err := channelmodel.Pick(rt, "replica", stores...).Commit(t.Context(), []*policy.Candidate{c})
			require.NoError(rt, err)
			require.Equal(rt, s.Allowed, result.Verdicts[0].Accepted(), "kind %d by %s: %s", s.Kind, actor, result.Verdicts[0].Message)
			if !s.Allowed {
				require.Nil(rt, result.Row, "nothing follows from what is refused")
			}
			m = s.After
			after := f.access(h)
			require.Equal(rt, m.Exists, after.exists)
			if !m.Exists {
				continue
			}
			require.Equal(rt, m.Roles, f.membersOf(h))
			require.Equal(rt, []bool{m.Private, m.Archived}, []bool{after.private, after.archived})
			for kind, want := range m.State(h) {
				require.Equal(rt, want, channelmodel.Sorted(f.state(h, kind).Tags), "kind %d", kind)
			}
			if before.exists && (before.private != after.private || before.archived != after.archived || !maps.Equal(before.roles, after.roles)) {
				require.Greater(rt, after.version, before.version, "who may read has changed")
			}
		}
	})
}

// access is what the database has of who may do what in a channel.
type access struct {
	exists, private, archived bool
	version                   int64
	roles                     map[string]string
}

func (f *fixture) access(channel string) access {
	f.t.Helper()
	rows, err := f.admin.Query(f.t.Context(), `
SELECT visibility = 'private', archived_at IS NOT NULL, acl_version FROM ingest.channels WHERE h = $1 AND community_id = $2`, channel, f.community)
	require.NoError(f.t, err)
	var a access
	for rows.Next() {
		a.exists = true
		require.NoError(f.t, rows.Scan(&a.private, &a.archived, &a.version))
	}
	require.NoError(f.t, rows.Err())
	a.roles = f.membersOf(channel)
	return a
}

// However many owners leave, demote and remove each other at the same time on two replicas, one of them stays.
func TestTheLastOwnerStays(t *testing.T) {
	const owners, attempts = 8, 64
	f := newFixture(t).withKey()
	stores := []*Store{f.Store, f.second()}
	name := func(i int) string { return "owner " + strconv.Itoa(i%owners) }
	v, _ := f.order(f.command(f.community, name(0), nostr.KindCreateGroup, nostrtest.Channel("hall")))
	require.True(t, v.Accepted())
	for i := 1; i < owners; i++ {
		v, _ := f.order(f.command(f.community, name(0), nostr.KindPutUser, nostrtest.Channel("hall"), p(name(i)), nostrtest.Tag("role", "owner")))
		require.True(t, v.Accepted())
	}
	var accepted atomic.Int32
	var all sync.WaitGroup
	for i := range attempts {
		opts := []nostrtest.Option{nostrtest.Channel("hall"), nostrtest.Tag("serial", strconv.Itoa(i))}
		kind := nostr.KindLeaveRequest
		switch i % 3 {
		case 1:
			kind, opts = nostr.KindRemoveUser, append(opts, p(name(i+1+i/owners)))
		case 2:
			kind, opts = nostr.KindPutUser, append(opts, p(name(i)), nostrtest.Tag("role", "guest"))
		}
		c := f.command(f.community, name(i), kind, opts...)
		all.Go(func() {
			result, err := stores[i%2].Commit(t.Context(), []*policy.Candidate{c})
			if err == nil && result.Verdicts[0].Accepted() {
				accepted.Add(1)
			}
		})
	}
	all.Wait()
	require.NotZero(t, accepted.Load())
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.channel_members WHERE role = 'owner'`))
	f.requireSnapshots("hall")
}
