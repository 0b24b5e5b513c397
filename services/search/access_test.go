package search

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

func TestCheckAccess(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	alice, bob, carol := nostrtest.PubKey("alice"), nostrtest.PubKey("bob"), nostrtest.PubKey("carol")
	open, closed := db.Community(t, "open"), db.Community(t, "closed", alice, carol)
	for _, community := range []tenant.ID{open, closed} {
		db.Channel(t, community, "lobby", "open")
		db.Channel(t, community, "secret", "private", alice, bob)
	}
	db.Exec(t, `UPDATE ingest.communities SET acl_version = 7 WHERE id = $1`, int64(closed))
	db.Exec(t, `UPDATE ingest.channels SET acl_version = CASE WHEN h = 'secret' AND community_id = $1 THEN 9 ELSE 1 END`, int64(closed))

	for i, k := range []nostr.PubKey{alice, carol} {
		db.Promote(t, closed, []string{"owner", "admin"}[i], k)
	}
	banning := db.Community(t, "open", alice, bob, carol)
	db.Promote(t, banning, "admin", alice, bob)
	db.Ban(t, banning, bob, carol)

	for _, tt := range []struct {
		name      string
		community tenant.ID
		channel   string
		allowed   []bool // alice, bob, carol
		versions  [2]uint64
	}{
		{"open, global", open, "", []bool{true, true, true}, [2]uint64{1, 0}},
		{"open, open channel", open, "lobby", []bool{true, true, true}, [2]uint64{1, 1}},
		{"open, private channel", open, "secret", []bool{true, true, false}, [2]uint64{1, 1}},
		{"open, no such channel", open, "nowhere", []bool{false, false, false}, [2]uint64{1, 0}},
		{"open, impossible channel", open, "no\x00where", []bool{false, false, false}, [2]uint64{1, 0}},
		{"closed, global", closed, "", []bool{true, false, true}, [2]uint64{7, 0}},
		{"closed, open channel", closed, "lobby", []bool{true, false, true}, [2]uint64{7, 1}},
		{"closed, private channel", closed, "secret", []bool{true, false, false}, [2]uint64{7, 9}},
		{"banned, open community", banning, "", []bool{true, false, false}, [2]uint64{1, 0}},
		{"no such community", closed + 1000, "", []bool{false, false, false}, [2]uint64{0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := c.CheckAccess(t.Context(), &searchv1.CheckAccessRequest{
				Community: int64(tt.community), Channel: tt.channel, Pubkeys: principal(alice, bob, carol).GetPubkeys(),
				// What is older than a primary's state was deleted or made anew: no reason to wait.
				MinCommunityAclVersion: 100, MinChannelAclVersion: 100,
			})
			require.NoError(t, err)
			moderator := map[tenant.ID][]bool{closed: {true, false, true}, banning: {true, false, false}}[tt.community]
			if moderator == nil {
				moderator = make([]bool, 3)
			}
			var banned [][]byte
			if tt.community == banning {
				banned = principal(bob, carol).GetPubkeys()
			}
			slices.SortFunc(resp.Banned, bytes.Compare)
			slices.SortFunc(banned, bytes.Compare)
			require.Empty(t, cmp.Diff(&searchv1.CheckAccessResponse{
				Allowed: tt.allowed, Banned: banned, Moderator: moderator, Until: make([]int64, 3), CommunityAclVersion: tt.versions[0], ChannelAclVersion: tt.versions[1],
				Gone: tt.name == "no such community",
			}, resp, protocmp.Transform()))
		})
	}
	for name, req := range map[string]*searchv1.CheckAccessRequest{
		"no community":  {Pubkeys: principal(alice).GetPubkeys()},
		"short key":     {Community: 1, Pubkeys: [][]byte{{1}}},
		"too many keys": {Community: 1, Pubkeys: principal(make([]nostr.PubKey, maxAccessKeys+1)...).GetPubkeys()},
	} {
		_, err := c.CheckAccess(t.Context(), req)
		require.Equal(t, fault.Invalid, fault.ReasonOf(err), name)
	}
}

// unnamed leaves out the name that every community gets.
var unnamed = protocmp.IgnoreFields(&searchv1.ResolveCommunityResponse{}, "uuid")

// An archived community answers what a missing one does, at every door. Its host, like that of one which was deleted, is not
// taken for another host of the same name.
func TestAnArchivedCommunityIsMissing(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	alice := nostrtest.PubKey("alice")
	archived, other := db.Community(t, "open", alice), db.Community(t, "open", alice)
	db.Host(t, archived, "a.example:8080", "b.example")
	db.Host(t, other, "a.example")
	db.Exec(t, `INSERT INTO ingest.community_hosts (host) VALUES ('a.example:9090')`)
	db.Promote(t, archived, "owner", alice)
	db.Channel(t, archived, "lobby", "open", alice)
	event := nostrtest.Event(t, "alice", nostrtest.Kind(nostr.KindChat), nostrtest.Channel("lobby"))
	db.Insert(t, archived, event)
	require.Equal(t, raws(event), read(t, c, queryFor(archived, principal(alice), nostr.Filter{})))
	db.Exec(t, `UPDATE ingest.communities SET archived_at = now(), acl_version = 7 WHERE id = $1`, int64(archived))

	for _, host := range []string{"b.example", "a.example:8080", "a.example:9090", "missing.example"} {
		_, err := c.ResolveCommunity(t.Context(), &searchv1.ResolveCommunityRequest{Host: host})
		require.Equal(t, fault.NotFound, fault.ReasonOf(err), host)
		require.Equal(t, "no such community", fault.Message(err))
	}
	found, err := c.ResolveCommunity(t.Context(), &searchv1.ResolveCommunityRequest{Host: "a.example"})
	require.NoError(t, err)
	require.EqualValues(t, other, found.GetCommunity())

	require.Empty(t, read(t, c, queryFor(archived, principal(alice), nostr.Filter{})))
	require.Empty(t, read(t, c, queryFor(archived, principal(), nostr.Filter{})))
	n, err := c.Count(t.Context(), &searchv1.CountRequest{
		Community: int64(archived), Principal: principal(alice), Filters: queryFor(archived, principal(alice), nostr.Filter{}).GetFilters(),
	})
	require.NoError(t, err)
	require.Zero(t, n.GetCount())
	for _, channel := range []string{"", "lobby"} {
		access, err := c.CheckAccess(t.Context(), &searchv1.CheckAccessRequest{
			Community: int64(archived), Channel: channel, Pubkeys: [][]byte{alice[:]}, MinCommunityAclVersion: 7,
		})
		require.NoError(t, err)
		require.True(t, access.GetGone())
		require.Equal(t, []bool{false}, access.GetAllowed())
		require.Equal(t, []bool{false}, access.GetModerator())
		require.EqualValues(t, 7, access.GetCommunityAclVersion())
	}
	access, err := c.CheckAccess(t.Context(), &searchv1.CheckAccessRequest{Community: int64(other)})
	require.NoError(t, err)
	require.False(t, access.GetGone())
	_, err = c.ListModeration(t.Context(), &searchv1.ListModerationRequest{
		Community: int64(archived), Actor: alice[:], List: searchv1.ModerationList_MODERATION_LIST_BANNED_PUBKEYS,
	})
	require.Equal(t, fault.Restricted, fault.ReasonOf(err))
}

func TestResolveCommunity(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	c := serve(t, s)
	plain, withPort := db.Community(t, "open"), db.Community(t, "closed")
	db.Host(t, plain, "relay.example", "alias.example")
	db.Host(t, withPort, "relay.example:8080")
	db.Exec(t, `UPDATE ingest.communities SET name = 'Bees', description = 'Hive', icon = 'https://x/i', acl_version = 3 WHERE id = $1`, int64(plain))

	db.Exec(t, `UPDATE ingest.communities SET min_pow = 12 WHERE id = $1`, int64(plain))
	alice, bob := nostrtest.PubKey("alice"), nostrtest.PubKey("bob")
	db.Promote(t, plain, "owner", alice, bob)
	db.Exec(t, `UPDATE ingest.community_members SET added_at = now() - interval '1 day' WHERE community_id = $1 AND pubkey = $2`, int64(plain), bob[:])
	for i, network := range []string{"10.0.0.0/8", "2001:db8::/32", "192.0.2.7"} {
		db.Exec(t, `INSERT INTO ingest.blocked_networks (community_id, network, decided_by, decided_at) VALUES ($1, $2::text::cidr, $3, now() - $4 * interval '1 day')`,
			int64(plain), network, alice[:], i)
	}

	want := &searchv1.ResolveCommunityResponse{
		Community: int64(plain), Name: "Bees", Description: "Hive", Icon: "https://x/i", AclVersion: 3,
		MinPow: 12, Owner: bob[:], BlockedNetworks: []string{"10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"},
		Hosts: []string{"relay.example", "alias.example"},
	}
	for _, host := range []string{"relay.example", "relay.example:3000", "RELAY.example.:443", "alias.example"} {
		resp, err := c.ResolveCommunity(t.Context(), &searchv1.ResolveCommunityRequest{Host: host})
		require.NoError(t, err, host)
		require.Regexp(t, `^[0-9a-f-]{36}$`, resp.GetUuid())
		require.Empty(t, cmp.Diff(want, resp, protocmp.Transform(), unnamed), host)
	}
	_, err := c.ResolveCommunity(t.Context(), &searchv1.ResolveCommunityRequest{
		Host: "relay.example", Community: int64(plain), MinAclVersion: 4,
	})
	require.NoError(t, err, "a primary is never behind")
	resp, err := c.ResolveCommunity(t.Context(), &searchv1.ResolveCommunityRequest{Host: "relay.example:8080"})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(&searchv1.ResolveCommunityResponse{
		Community: int64(withPort), Name: "test", Closed: true, AclVersion: 1, Hosts: []string{"relay.example:8080"},
	}, resp, protocmp.Transform(), unnamed))
	for _, host := range []string{"", "other.example", "relay.example.evil", "http://relay.example", "relay.example\x00"} {
		_, err := c.ResolveCommunity(t.Context(), &searchv1.ResolveCommunityRequest{Host: host})
		require.Equal(t, fault.NotFound, fault.ReasonOf(err), host)
		require.Equal(t, "no such community", fault.Message(err))
	}
}

// What is said of a key whose attestation ends, or a ban of it or of its owner, is said until then.
func TestAccessSaysHowLongItHolds(t *testing.T) {
	cfg := DefaultConfig()
	cfg.AccessWait = 50 * time.Millisecond
	s, db := newService(t, cfg)
	c := serve(t, s)
	owner := nostrtest.PubKey("owner")
	names := []string{"a member", "for good", "for an hour", "for a minute", "pardoned", "of a pardoned owner", "over", "noticed"}
	keys := make([]nostr.PubKey, len(names))
	for i, name := range names {
		keys[i] = nostrtest.PubKey(name)
	}
	pardoned := nostrtest.PubKey("pardoned owner")
	community := db.Community(t, "closed", owner, keys[0], keys[4], pardoned)
	db.Exec(t, `INSERT INTO ingest.agents (community_id, pubkey, owner, until) VALUES
		($1, $2, $8, NULL), ($1, $3, $8, now() + interval '1 hour'), ($1, $4, $8, now() + interval '1 minute'), ($1, $5, $9, now() + interval '1 hour'),
		($1, $6, $8, now() - interval '1 second'), ($1, $7, $8, '-infinity')`,
		int64(community), keys[1][:], keys[2][:], keys[3][:], keys[5][:], keys[6][:], keys[7][:], owner[:], pardoned[:])
	db.Exec(t, `INSERT INTO ingest.banned_pubkeys (community_id, pubkey, decided_by, expires_at) VALUES
		($1, $2, $2, now() + interval '1 minute'), ($1, $3, $3, now() + interval '1 minute'), ($1, $4, $4, now() - interval '1 minute')`,
		int64(community), keys[4][:], pardoned[:], keys[0][:])

	before := time.Now()
	for _, channel := range []string{"", "nowhere"} {
		resp, err := c.CheckAccess(t.Context(), &searchv1.CheckAccessRequest{
			Community: int64(community), Channel: channel, Pubkeys: principal(keys...).GetPubkeys(), MinTime: before.Add(-time.Minute).UnixMicro(),
		})
		require.NoError(t, err)
		if channel == "" {
			require.Equal(t, []bool{true, true, true, true, false, false, false, false}, resp.GetAllowed())
		}
		for i, want := range []time.Duration{0, 0, time.Hour, time.Minute, time.Minute, time.Minute, 0, 0} {
			if want == 0 {
				require.Zero(t, resp.GetUntil()[i], names[i])
				continue
			}
			require.WithinDuration(t, before.Add(want), time.UnixMicro(resp.GetUntil()[i]), 30*time.Second, names[i])
		}
	}
	_, err := c.CheckAccess(t.Context(), &searchv1.CheckAccessRequest{
		Community: int64(community), Pubkeys: principal(keys...).GetPubkeys(), MinTime: before.Add(time.Hour).UnixMicro(),
	})
	require.Equal(t, fault.Overloaded, fault.ReasonOf(err), "what will be is not known")
}
