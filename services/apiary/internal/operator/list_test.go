package operator_test

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/apiary/internal/operator"
)

var someDay = timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// lists answers as search would, in pages of two; it has the communities c0.example to c4.example.
type lists struct {
	searchv1.UnimplementedDirectoryServiceServer
}

func (lists) ListCommunities(_ context.Context, r *searchv1.ListCommunitiesRequest) (*searchv1.ListCommunitiesResponse, error) {
	var page searchv1.ListCommunitiesResponse
	first, _ := strconv.Atoi(r.GetPageToken())
	for i := first; i < 5; i++ {
		if len(page.GetCommunities()) == min(2, int(r.GetPageSize())) {
			page.NextPageToken = strconv.Itoa(i)
			break
		}
		page.Communities = append(page.Communities, &searchv1.CommunityEntry{
			Hosts: []string{"c" + strconv.Itoa(i) + ".example", "alias"}, Name: "Team\n\x1b[31m" + strconv.Itoa(i), Closed: i == 0, Uuid: "u" + strconv.Itoa(i),
			Members: uint32(i) * 25_000, CreateTime: someDay, Deleting: i == 4,
		})
		if i > 2 {
			page.Communities[len(page.GetCommunities())-1].ArchiveTime = someDay
		}
	}
	return &page, nil
}

func (lists) ListMembers(_ context.Context, r *searchv1.ListMembersRequest) (*searchv1.ListMembersResponse, error) {
	if r.GetHost() != "c0.example" {
		return nil, fault.New(fault.NotFound, "no such community")
	}
	alice := nostrtest.PubKey("alice")
	return &searchv1.ListMembersResponse{Members: []*searchv1.MemberEntry{{Pubkey: alice[:], Role: "owner", AddTime: someDay}}}, nil
}

func reader(t *testing.T, limit int, asJSON bool) (r *operator.Reader, out, notes *strings.Builder) {
	t.Helper()
	target := listen(t, func(r grpc.ServiceRegistrar) { searchv1.RegisterDirectoryServiceServer(r, lists{}) })
	out, notes = &strings.Builder{}, &strings.Builder{}
	r, err := operator.DialReader(target, operator.List{Out: out, Notes: notes, Limit: limit, JSON: asJSON})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r, out, notes
}

func TestListCommunities(t *testing.T) {
	r, out, notes := reader(t, 1000, false)
	require.NoError(t, r.Communities(t.Context()))
	lines := strings.Split(out.String(), "\n")
	require.Len(t, lines, 7)
	require.Regexp(t, `^HOSTS +ACCESS +STATE +MEMBERS +CREATED +NAME$`, lines[0])
	require.Regexp(t, `^c0\.example,alias +closed +active +0 +2026-01-02 03:04 +Team .\[31m0$`, lines[1])
	require.Regexp(t, `^c3\.example,alias +open +archived +75000`, lines[4])
	require.Regexp(t, `^c4\.example,alias +open +deleting +100000\+ +2026-01-02 03:04 +Team .\[31m4$`, lines[5])
	require.NotContains(t, out.String(), "\x1b")
	require.Empty(t, notes.String())
}

func TestListsStopAtTheLimit(t *testing.T) {
	r, out, notes := reader(t, 3, true)
	require.NoError(t, r.Communities(t.Context()))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, lines, 3)
	require.JSONEq(t, `{"hosts":["c1.example","alias"],"name":"Team\n\u001b[31m1","access":"open","members":25000,"created":"2026-01-02T03:04:05Z","state":"active","uuid":"u1"}`, lines[1])
	require.Equal(t, "there are more than 3; --limit shows them\n", notes.String())
}

func TestListMembers(t *testing.T) {
	r, out, _ := reader(t, 10, false)
	require.NoError(t, r.Members(t.Context(), "c0.example"))
	require.Regexp(t, `^PUBKEY +ROLE +SINCE\n`+nostrtest.PubKey("alice").String()+` +owner +2026-01-02 03:04\n$`, out.String())
	require.EqualError(t, r.Members(t.Context(), "elsewhere"), "list the members of elsewhere: no such community")

	r, out, _ = reader(t, 10, true)
	require.NoError(t, r.Members(t.Context(), "c0.example"))
	require.JSONEq(t, `{"pubkey":"`+nostrtest.PubKey("alice").String()+`","role":"owner","since":"2026-01-02T03:04:05Z"}`, out.String())

	nobody, err := operator.DialReader("unix://"+filepath.Join(t.TempDir(), "nobody"), operator.List{Out: out, Notes: out, Limit: 1})
	require.NoError(t, err)
	defer nobody.Close()
	require.ErrorContains(t, nobody.Communities(t.Context()), "list the communities: cannot reach search (dial unix ")
}
