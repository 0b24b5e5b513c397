package operator_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// errMissing is the answer for every host but localhost.
var errMissing = fault.New(fault.NotFound, "community not found")

func (d *directory) ArchiveCommunity(_ context.Context, r *ingestv1.ArchiveCommunityRequest) (*ingestv1.ArchiveCommunityResponse, error) {
	if host := r.GetCommunity().GetHost(); host != "localhost" && host != "alias.example" {
		return nil, errMissing
	}
	d.archived = true
	return &ingestv1.ArchiveCommunityResponse{
		Host: "localhost", ArchiveTime: timestamppb.New(timestamppb.Now().AsTime()), Announced: !d.quiet,
	}, nil
}

func (d *directory) UnarchiveCommunity(_ context.Context, r *ingestv1.UnarchiveCommunityRequest) (*ingestv1.UnarchiveCommunityResponse, error) {
	if host := r.GetCommunity().GetHost(); host != "localhost" && host != "alias.example" {
		return nil, errMissing
	}
	d.archived = false
	return &ingestv1.UnarchiveCommunityResponse{Host: "localhost"}, nil
}

func (d *directory) TransferCommunity(_ context.Context, r *ingestv1.TransferCommunityRequest) (*ingestv1.TransferCommunityResponse, error) {
	if string(r.GetNewOwner()) == d.owner {
		return &ingestv1.TransferCommunityResponse{}, nil
	}
	if want := string(r.GetExpectedOwner()); want != "" && want != d.owner {
		return nil, fault.New(fault.Exists, "owner_conflict: somebody else owns the community")
	}
	previous := d.owner
	d.owner = string(r.GetNewOwner())
	return &ingestv1.TransferCommunityResponse{Transferred: true, PreviousOwner: []byte(previous)}, nil
}

func (d *directory) DeleteCommunity(_ context.Context, r *ingestv1.DeleteCommunityRequest) (*ingestv1.DeleteCommunityResponse, error) {
	if string(r.GetOwner()) != d.owner || r.GetRequestId() != "localhost" {
		return nil, errMissing
	}
	d.stage++
	return &ingestv1.DeleteCommunityResponse{Stage: d.stage, Removed: 7}, nil
}

func (d *directory) PutHost(_ context.Context, r *ingestv1.PutHostRequest) (*ingestv1.PutHostResponse, error) {
	return &ingestv1.PutHostResponse{Added: r.GetAlias() == "new.example"}, nil
}

func (d *directory) RemoveHost(_ context.Context, r *ingestv1.RemoveHostRequest) (*ingestv1.RemoveHostResponse, error) {
	if r.GetAlias() != "new.example" || r.GetCommunity().GetHost() != "localhost" {
		return nil, errMissing
	}
	return &ingestv1.RemoveHostResponse{}, nil
}

func (d *directory) ReleaseHost(_ context.Context, r *ingestv1.ReleaseHostRequest) (*ingestv1.ReleaseHostResponse, error) {
	return &ingestv1.ReleaseHostResponse{Released: r.GetHost() == "old.example"}, nil
}

func TestTheEndOfACommunity(t *testing.T) {
	alice, bob := nostrtest.PubKey("alice"), nostrtest.PubKey("bob")
	d := &directory{owner: string(alice[:])}
	client, out := serve(t, d)
	said := func(text string) {
		t.Helper()
		require.Contains(t, out.String(), text)
		out.Reset()
	}
	require.NoError(t, client.Transfer(t.Context(), "localhost", bob.String(), alice.String()))
	said(alice.String() + " is a member")
	require.NoError(t, client.Transfer(t.Context(), "localhost", bob.String(), ""))
	said("nothing was changed")
	require.ErrorContains(t, client.Transfer(t.Context(), "localhost", alice.String(), alice.String()), "owner_conflict")
	require.ErrorContains(t, client.Transfer(t.Context(), "localhost", alice.String(), "npub1"), "public key")
	d.owner = ""
	require.NoError(t, client.Transfer(t.Context(), "LOCALHOST", bob.String(), ""))
	said(bob.String() + " owns localhost now; nobody did before")

	require.EqualError(t, client.Archive(t.Context(), "elsewhere"), "archive elsewhere: community not found (apiary community list shows which there are, "+
		"and members HOST whose it is; one that nobody owns is given to a key by transfer; one that is being deleted is gone)")
	require.NoError(t, client.Archive(t.Context(), "localhost"))
	require.True(t, d.archived)
	said("localhost is archived since")
	d.quiet = true
	require.NoError(t, client.Archive(t.Context(), "localhost"))
	said("open connections end within 30 seconds")
	require.NoError(t, client.Unarchive(t.Context(), "localhost"))
	require.False(t, d.archived)
	said("localhost is served again, within 5 seconds\n")
	require.NoError(t, client.Archive(t.Context(), "alias.example"))
	said("localhost is archived since")
	require.NoError(t, client.Unarchive(t.Context(), "alias.example"))
	said("localhost is served again")
	require.Error(t, client.Unarchive(t.Context(), "elsewhere"))

	require.ErrorContains(t, client.Delete(t.Context(), "localhost", alice.String(), "localhost"), "community not found")
	for _, stage := range []string{"will be deleted", "is being deleted (7 rows so far)", "is deleted (7 rows)"} {
		require.NoError(t, client.Delete(t.Context(), "localhost", bob.String(), "localhost"))
		said(stage)
	}
	require.NoError(t, client.Release(t.Context(), "old.example"))
	said("old.example is free")
	require.NoError(t, client.Release(t.Context(), "Free.Example"))
	said("free.example is free already")
}

func TestAliases(t *testing.T) {
	client, out := serve(t, &directory{})
	require.NoError(t, client.AddAlias(t.Context(), "Localhost", "new.example"))
	require.NoError(t, client.AddAlias(t.Context(), "localhost", "Old.example"))
	require.NoError(t, client.RemoveAlias(t.Context(), "localhost", "new.example"))
	require.Equal(t, []string{
		"new.example is a host of localhost, within 5 seconds",
		"old.example is a host of localhost already; nothing was changed",
		"new.example is no host of localhost any more; who is connected by it is disconnected",
	}, strings.Split(strings.TrimSpace(out.String()), "\n"))
	require.ErrorContains(t, client.RemoveAlias(t.Context(), "localhost", "other.example"), "take the host other.example from localhost: community not found")
}
