package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

func TestCreateCommunityOnce(t *testing.T) {
	f := newFixture(t)
	var group errgroup.Group
	var mu sync.Mutex
	ids, made := map[int64]bool{}, 0
	for range 8 {
		group.Go(func() error {
			c, err := f.CreateCommunity(t.Context(), NewCommunity{Host: "new.example", Name: "New", Access: AccessOpen})
			mu.Lock()
			defer mu.Unlock()
			ids[c.ID] = true
			if c.Created {
				made++
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.Len(t, ids, 1)
	require.Equal(t, 1, made)
	require.Equal(t, 2, f.count(`SELECT count(*) FROM ingest.communities`), "no community without a host is left behind")
	_, err := f.CommunityByHost(t.Context(), "missing.example")
	require.ErrorIs(t, err, ErrNoCommunity)
}

func TestVersionsRiseWithAccess(t *testing.T) {
	f := newFixture(t)
	bob := nostrtest.PubKey("bob")
	version := func(v uint64, err error) uint64 {
		t.Helper()
		require.NoError(t, err)
		return v
	}
	name := "renamed"
	require.EqualValues(t, 1, version(f.UpdateCommunity(t.Context(), f.community, CommunityChange{Name: &name})), "a name is no access")
	require.EqualValues(t, 1, version(f.UpdateCommunity(t.Context(), f.community, CommunityChange{Access: new(AccessOpen)})), "it is open already")
	require.EqualValues(t, 2, version(f.UpdateCommunity(t.Context(), f.community, CommunityChange{Access: new(AccessClosed)})))
	require.EqualValues(t, 3, version(f.PutMember(t.Context(), f.community, bob, "member")))
	require.EqualValues(t, 3, version(f.PutMember(t.Context(), f.community, bob, "member")))
	require.EqualValues(t, 4, version(f.PutMember(t.Context(), f.community, bob, "admin")))
	for _, was := range []bool{true, false} {
		done, err := f.RemoveMember(t.Context(), f.community, bob)
		require.NoError(t, err)
		require.Equal(t, Removal{ACLVersion: 5, Removed: was}, done)
	}
	require.Equal(t, 1, f.count(`SELECT count(*) FROM ingest.communities WHERE name = 'renamed' AND access = 'closed'`))
}

// A community is closed to its members: one that has none would be closed to everybody.
func TestNobodyIsLockedOut(t *testing.T) {
	f := newFixture(t)
	made, err := f.CreateCommunity(t.Context(), NewCommunity{Host: "nobody.example", Access: AccessOpen})
	require.NoError(t, err)
	_, err = f.UpdateCommunity(t.Context(), made.ID, CommunityChange{Access: new(AccessClosed), Name: new("renamed")})
	require.ErrorIs(t, err, ErrNoMembers)
	require.Zero(t, f.count(fmt.Sprintf(`SELECT count(*) FROM ingest.communities WHERE id = %d AND (name = 'renamed' OR access = 'closed')`, made.ID)),
		"what is refused changes nothing")
	_, err = f.PutMember(t.Context(), made.ID, nostrtest.PubKey("alice"), policy.RoleOwner)
	require.NoError(t, err)
	_, err = f.UpdateCommunity(t.Context(), made.ID, CommunityChange{Access: new(AccessClosed)})
	require.NoError(t, err)
}

func TestRemovedMemberLeavesChannels(t *testing.T) {
	f := newFixture(t)
	chat := func(author, content string) *policy.Candidate {
		return f.candidate(author, nostrtest.Kind(9), nostrtest.Channel("private"), nostrtest.Content(content))
	}
	f.accept(f.candidate("alice", create(nostrtest.Channel("private"), nostrtest.Tag("private"))...), chat("alice", "1"))
	_, err := f.admin.Exec(t.Context(), `INSERT INTO ingest.channel_members (community_id, channel_id, pubkey, role)
SELECT community_id, id, sha256('bob'), 'member' FROM ingest.channels`)
	require.NoError(t, err)
	before := f.count(`SELECT acl_version FROM ingest.channels WHERE h = 'private'`)
	_, err = f.RemoveMember(t.Context(), f.community, nostrtest.PubKey("alice"))
	require.NoError(t, err)
	require.Equal(t, policy.NotChannelMember, f.verdict(chat("alice", "2")))
	require.Equal(t, before+1, f.count(`SELECT acl_version FROM ingest.channels WHERE h = 'private'`))
}
