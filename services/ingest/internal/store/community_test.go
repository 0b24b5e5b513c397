package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// An archived community is one that does not exist, for whoever writes, and for those who moderate it.
func TestAnArchivedCommunityTakesNothing(t *testing.T) {
	f := newFixture(t).withKey()
	other := f.newCommunity("other.example", AccessOpen)
	owner := nostrtest.PubKey("owner")
	f.accept(f.candidate("alice", nostrtest.Content("before")))
	before := f.count(`SELECT acl_version FROM ingest.communities WHERE name = 'one.example'`)
	c, version, err := f.ArchiveCommunity(t.Context(), f.community, &owner)
	require.NoError(t, err)
	require.NotNil(t, c.Archived)
	require.EqualValues(t, before+1, version)
	again, _, err := f.ArchiveCommunity(t.Context(), f.community, &owner)
	require.NoError(t, err)
	require.Equal(t, c.Archived, again.Archived)

	missing := f.candidateIn(1<<40, "alice", nostrtest.Content("after"))
	want := f.verdict(missing)
	require.Equal(t, want, f.verdict(f.candidate("alice", nostrtest.Content("after"))))
	require.Equal(t, want, f.verdict(f.command(f.community, "owner", nostr.KindRelayAddMember, nostrtest.Tag("p", nostrtest.PubKey("bob").String()))))
	_, err = f.Moderate(t.Context(), Moderator{Community: f.community, Actor: owner}, BanPubKey(nostrtest.PubKey("alice")))
	require.ErrorIs(t, err, ErrNoCommunity)
	_, err = f.MintInvite(t.Context(), f.community, owner, time.Hour, 0)
	require.ErrorIs(t, err, ErrNoCommunity)
	f.accept(f.candidateIn(other, "alice", nostrtest.Content("elsewhere")))

	_, _, err = f.ArchiveCommunity(t.Context(), f.community, new(nostrtest.PubKey("mallory")))
	require.ErrorIs(t, err, ErrNoCommunity)
	_, err = f.UnarchiveCommunity(t.Context(), f.community, new(nostrtest.PubKey("mallory")))
	require.ErrorIs(t, err, ErrNoCommunity)
	for range 2 {
		c, err = f.UnarchiveCommunity(t.Context(), f.community, &owner)
		require.NoError(t, err)
		require.Nil(t, c.Archived)
	}
	f.accept(f.candidate("alice", nostrtest.Content("back")))
}

// Nothing commits after an archival under the version before it, whatever was on its way.
func TestArchivingWaitsForBatchesInFlight(t *testing.T) {
	f := newFixture(t)
	var group errgroup.Group
	var accepted atomic.Int64
	for w := range 4 {
		group.Go(func() error {
			for n := range 200 {
				result, err := f.Commit(t.Context(), []*policy.Candidate{f.candidate(fmt.Sprint(w, " ", n), nostrtest.Content("hello"))})
				if err != nil {
					return err
				}
				if !result.Verdicts[0].Accepted() {
					return nil
				}
				accepted.Add(1)
			}
			return errors.New("the community was never archived")
		})
	}
	require.Eventually(t, func() bool { return accepted.Load() > 20 }, 10*time.Second, time.Millisecond)
	_, _, err := f.ArchiveCommunity(t.Context(), f.community, nil)
	require.NoError(t, err)
	stored := f.count(`SELECT count(*) FROM ingest.events`)
	require.NoError(t, group.Wait())
	require.Equal(t, stored, f.count(`SELECT count(*) FROM ingest.events`))
	require.EqualValues(t, stored, accepted.Load())
}

func TestTransfer(t *testing.T) {
	f := newFixture(t)
	owner, bob, carol := nostrtest.PubKey("owner"), nostrtest.PubKey("bob"), nostrtest.PubKey("carol")
	role := func(k nostr.PubKey) string {
		return f.text(fmt.Sprintf(`SELECT coalesce((SELECT role FROM ingest.community_members WHERE pubkey = '\x%s' AND community_id = %d), '')`, k, f.community))
	}
	_, err := f.TransferCommunity(t.Context(), f.community, bob, &carol)
	require.ErrorIs(t, err, ErrOwnerConflict)
	require.Empty(t, role(bob))
	done, err := f.TransferCommunity(t.Context(), f.community, bob, &owner)
	require.NoError(t, err)
	require.True(t, done.Changed)
	require.Equal(t, &owner, done.Previous)
	require.Equal(t, []string{"owner", "member"}, []string{role(bob), role(owner)})
	done, err = f.TransferCommunity(t.Context(), f.community, bob, &owner)
	require.NoError(t, err)
	require.False(t, done.Changed, "to ask again changes nothing")

	// A community that is made again for another owner goes to that one, and the one before stays an admin.
	made, err := f.CreateCommunity(t.Context(), NewCommunity{Host: "one.example", Access: AccessOpen, Owner: &carol, Existing: RotateOwner})
	require.NoError(t, err)
	require.False(t, made.Created)
	require.Equal(t, &carol, made.Owner)
	require.Equal(t, []string{"owner", "admin"}, []string{role(carol), role(bob)})
	_, err = f.CreateCommunity(t.Context(), NewCommunity{Host: "one.example", Access: AccessOpen, Owner: &carol, Existing: RefuseExisting})
	require.ErrorIs(t, err, ErrCommunityExists)
	made, err = f.CreateCommunity(t.Context(), NewCommunity{Host: "one.example", Name: "other", Access: AccessClosed, Owner: &bob})
	require.NoError(t, err)
	require.Equal(t, []string{"name", "access", "owner"}, made.Differences)
	made, err = f.CreateCommunity(t.Context(), NewCommunity{Host: "one.example", Name: "one.example", Access: AccessOpen, Owner: &carol})
	require.NoError(t, err)
	require.Empty(t, made.Differences)

	_, err = f.Moderate(t.Context(), Moderator{Community: f.community, Actor: carol}, BanPubKey(owner))
	require.NoError(t, err)
	_, err = f.TransferCommunity(t.Context(), f.community, owner, &carol)
	require.ErrorIs(t, err, ErrBanned)
	disown := func() {
		_, err := f.admin.Exec(t.Context(), `DELETE FROM ingest.community_members WHERE role = 'owner'`)
		require.NoError(t, err)
	}
	disown()
	_, err = f.TransferCommunity(t.Context(), f.community, carol, &bob)
	require.ErrorIs(t, err, ErrNoOwner, "who is expected to own it does not")
	done, err = f.TransferCommunity(t.Context(), f.community, carol, nil)
	require.NoError(t, err)
	require.True(t, done.Changed)
	require.Nil(t, done.Previous)
	require.Equal(t, "owner", role(carol), "nobody was expected, and nobody is what there was")
	disown()
	_, err = f.CreateCommunity(t.Context(), NewCommunity{Host: "one.example", Access: AccessOpen, Owner: &carol, Existing: RotateOwner})
	require.NoError(t, err)
	require.Equal(t, "owner", role(carol), "one that belonged to nobody belongs to who is named")
}

// However many calls come at once, nobody owns more communities than allowed.
func TestAnOwnerHasSoMany(t *testing.T) {
	f := newFixture(t)
	WithMaxOwned(3)(f.Store)
	alice := nostrtest.PubKey("alice")
	var group errgroup.Group
	var refused atomic.Int64
	for n := range 8 {
		group.Go(func() error {
			_, err := f.CreateCommunity(t.Context(), NewCommunity{Host: fmt.Sprintf("n%d.example", n), Access: AccessOpen, Owner: &alice})
			var many *TooManyError
			if errors.As(err, &many) {
				refused.Add(1)
				return nil
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, 5, refused.Load())
	var many *TooManyError
	_, err := f.TransferCommunity(t.Context(), f.community, alice, nil)
	require.ErrorAs(t, err, &many)
	_, err = f.PutMember(t.Context(), f.community, alice, policy.RoleOwner)
	require.ErrorAs(t, err, &many)
	_, err = f.CreateCommunity(t.Context(), NewCommunity{Host: "one.example", Access: AccessOpen, Owner: &alice, Existing: RotateOwner})
	require.ErrorAs(t, err, &many)
	owned, err := f.ListOwned(t.Context(), alice)
	require.NoError(t, err)
	require.Len(t, owned, 3)
	_, err = f.PutMember(t.Context(), owned[0].ID, alice, policy.RoleOwner)
	require.NoError(t, err, "what it owns it may own")

	// An archived one counts, one that is being deleted does not.
	_, _, err = f.ArchiveCommunity(t.Context(), owned[0].ID, &alice)
	require.NoError(t, err)
	_, err = f.TransferCommunity(t.Context(), f.community, alice, nil)
	require.ErrorAs(t, err, &many)
	_, err = f.DeleteCommunity(t.Context(), CommunityRef{Host: owned[0].Host()}, alice, "request")
	require.NoError(t, err)
	_, err = f.TransferCommunity(t.Context(), f.community, alice, nil)
	require.NoError(t, err)
}

func TestHosts(t *testing.T) {
	f := newFixture(t)
	f.newCommunity("other.example", AccessOpen)
	made, err := f.CreateCommunity(t.Context(), NewCommunity{
		Host: "three.example", Aliases: []string{"drei.example", "three.example"}, Name: "Three", Description: "The third.", Access: AccessOpen,
	})
	require.NoError(t, err)
	require.Equal(t, []string{"three.example", "drei.example"}, made.Hosts)
	require.Equal(t, "The third.", made.Description)
	id, err := f.CommunityByHost(t.Context(), "drei.example")
	require.NoError(t, err)
	require.Equal(t, made.ID, id)

	for _, was := range []bool{true, false} {
		added, err := f.AddHost(t.Context(), made.ID, "trois.example")
		require.NoError(t, err)
		require.Equal(t, was, added)
	}
	var taken *HostError
	_, err = f.AddHost(t.Context(), made.ID, "other.example")
	require.ErrorAs(t, err, &taken)
	require.False(t, taken.Retired)
	_, err = f.CreateCommunity(t.Context(), NewCommunity{Host: "four.example", Aliases: []string{"trois.example"}, Access: AccessOpen})
	require.ErrorAs(t, err, &taken)
	require.Equal(t, "trois.example", taken.Host)

	require.ErrorIs(t, f.RemoveHost(t.Context(), made.ID, "three.example"), ErrPrimaryHost)
	require.ErrorIs(t, f.RemoveHost(t.Context(), f.community, "trois.example"), ErrNoCommunity)
	require.NoError(t, f.RemoveHost(t.Context(), made.ID, "trois.example"))
	require.ErrorIs(t, f.RemoveHost(t.Context(), made.ID, "trois.example"), ErrNoCommunity)
	c, retired, err := f.Host(t.Context(), "drei.example")
	require.NoError(t, err)
	require.False(t, retired)
	require.Equal(t, made.UUID, c.UUID)
	c, retired, err = f.Host(t.Context(), "trois.example")
	require.NoError(t, err)
	require.False(t, retired)
	require.Nil(t, c)

	for n := len(made.Hosts); n < MaxHosts; n++ {
		_, err := f.AddHost(t.Context(), made.ID, fmt.Sprintf("n%d.example", n))
		require.NoError(t, err)
	}
	_, err = f.AddHost(t.Context(), made.ID, "one-too-many.example")
	require.ErrorIs(t, err, ErrTooManyHosts)
	require.Equal(t, MaxHosts, f.count(fmt.Sprintf(`SELECT count(*) FROM ingest.community_hosts WHERE community_id = %d`, made.ID)))
	added, err := f.AddHost(t.Context(), made.ID, "drei.example")
	require.NoError(t, err)
	require.False(t, added, "to have it already is no harm")
}
