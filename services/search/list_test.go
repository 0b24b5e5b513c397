package search

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

func TestListCommunities(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	alice, bob := nostrtest.PubKey("alice"), nostrtest.PubKey("bob")
	for i, access := range []string{"open", "closed", "open"} {
		id := db.Community(t, access, alice, bob)
		db.Exec(t, `INSERT INTO ingest.community_hosts VALUES ($1, $2, false), ($3, $2, true)`, "a"+strconv.Itoa(i)+".example", int64(id), "b"+strconv.Itoa(i)+".example")
		db.Exec(t, `UPDATE ingest.communities SET created_at = '2026-01-02T03:04:05Z' WHERE id = $1`, int64(id))
	}
	db.Exec(t, `DELETE FROM ingest.community_members WHERE community_id = (SELECT max(id) FROM ingest.communities)`)

	all, err := s.ListCommunities(t.Context(), &searchv1.ListCommunitiesRequest{})
	require.NoError(t, err)
	require.Empty(t, all.GetNextPageToken())
	require.Len(t, all.GetCommunities(), 3)
	second := all.GetCommunities()[1]
	require.Equal(t, []string{"b1.example", "a1.example"}, second.GetHosts())
	require.True(t, second.GetClosed())
	require.Equal(t, "test", second.GetName())
	require.EqualValues(t, 2, second.GetMembers())
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), second.GetCreateTime().AsTime())
	require.Zero(t, all.GetCommunities()[2].GetMembers())
	require.Nil(t, second.GetArchiveTime())
	db.Exec(t, `UPDATE ingest.communities SET archived_at = now(), deleting_at = now() WHERE access = 'closed'`)
	all, err = s.ListCommunities(t.Context(), &searchv1.ListCommunitiesRequest{})
	require.NoError(t, err)
	second = all.GetCommunities()[1]
	require.NotNil(t, second.GetArchiveTime())
	require.True(t, second.GetDeleting())
	require.False(t, all.GetCommunities()[0].GetDeleting())
	members, err := s.ListMembers(t.Context(), &searchv1.ListMembersRequest{Host: "b1.example"})
	require.NoError(t, err, "the operator sees it")
	require.Len(t, members.GetMembers(), 2)

	var hosts []string
	req := &searchv1.ListCommunitiesRequest{PageSize: 2}
	for pages := 1; ; pages++ {
		page, err := s.ListCommunities(t.Context(), req)
		require.NoError(t, err)
		for _, c := range page.GetCommunities() {
			hosts = append(hosts, c.GetHosts()[0])
		}
		if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
			require.Equal(t, 2, pages)
			break
		}
	}
	require.Equal(t, []string{"b0.example", "b1.example", "b2.example"}, hosts)

	_, err = s.ListCommunities(t.Context(), &searchv1.ListCommunitiesRequest{PageToken: "-1"})
	require.Equal(t, fault.Invalid, fault.ReasonOf(err))
}

func TestListMembers(t *testing.T) {
	s, db := newService(t, DefaultConfig())
	alice := nostrtest.PubKey("alice")
	community := db.Community(t, "closed", nostrtest.PubKey("bob"), nostrtest.PubKey("carol"))
	db.Promote(t, community, "owner", alice)
	db.Community(t, "closed", nostrtest.PubKey("dave")) // another
	db.Exec(t, `INSERT INTO ingest.community_hosts VALUES ('team.example', $1, true)`, int64(community))
	db.Exec(t, `UPDATE ingest.community_members SET added_at = '2026-01-02T03:04:05Z' WHERE pubkey = $1`, alice[:])

	all, err := s.ListMembers(t.Context(), &searchv1.ListMembersRequest{Host: "Team.Example:443"})
	require.NoError(t, err)
	require.Empty(t, all.GetNextPageToken())
	require.Len(t, all.GetMembers(), 3)
	roles := map[string]string{}
	for i, m := range all.GetMembers() {
		roles[string(m.GetPubkey())] = m.GetRole()
		if i > 0 {
			require.Less(t, string(all.GetMembers()[i-1].GetPubkey()), string(m.GetPubkey()))
		}
		if string(m.GetPubkey()) == string(alice[:]) {
			require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), m.GetAddTime().AsTime())
		}
	}
	require.Len(t, roles, 3)
	require.Equal(t, "owner", roles[string(alice[:])])

	first, err := s.ListMembers(t.Context(), &searchv1.ListMembersRequest{Host: "team.example", PageSize: 2})
	require.NoError(t, err)
	require.Len(t, first.GetMembers(), 2)
	rest, err := s.ListMembers(t.Context(), &searchv1.ListMembersRequest{Host: "team.example", PageSize: 2, PageToken: first.GetNextPageToken()})
	require.NoError(t, err)
	require.Len(t, rest.GetMembers(), 1)
	require.Empty(t, rest.GetNextPageToken())
	require.Equal(t, all.GetMembers()[2].GetPubkey(), rest.GetMembers()[0].GetPubkey())

	_, err = s.ListMembers(t.Context(), &searchv1.ListMembersRequest{Host: "elsewhere.example"})
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
	_, err = s.ListMembers(t.Context(), &searchv1.ListMembersRequest{Host: "team.example", PageToken: "x"})
	require.Equal(t, fault.Invalid, fault.ReasonOf(err))
}

// registrar notes what is registered.
type registrar []string

func (r *registrar) RegisterService(d *grpc.ServiceDesc, _ any) { *r = append(*r, d.ServiceName) }

func TestRegister(t *testing.T) {
	s, _ := newService(t, DefaultConfig())
	var r registrar
	s.Register(&r)
	require.Equal(t, registrar{"apiary.search.v1.SearchService", "apiary.search.v1.DirectoryService", "apiary.search.v1.ModerationService"}, r)
}
