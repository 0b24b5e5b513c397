package ingest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

func TestDirectory(t *testing.T) {
	h := newHarness(t)
	d := h.start("one").directory
	owner, bob := nostrtest.PubKey("owner"), nostrtest.PubKey("bob")

	made, err := d.CreateCommunity(t.Context(), &ingestv1.CreateCommunityRequest{Host: "Team.Example.:443", Name: "Team", Access: closed, Owner: owner[:]})
	require.NoError(t, err)
	require.True(t, made.GetCreated())
	again, err := d.CreateCommunity(t.Context(), &ingestv1.CreateCommunityRequest{Host: "team.example", Name: "Other", Access: open})
	require.NoError(t, err)
	require.False(t, again.GetCreated())
	require.Equal(t, made.GetCommunity(), again.GetCommunity())
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.communities WHERE name = 'Team' AND access = 'closed'`), "unchanged")
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.community_members WHERE role = 'owner' AND pubkey = $1`, owner[:]))
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.community_hosts WHERE host = 'team.example' AND is_primary`))

	put, err := d.PutMember(t.Context(), &ingestv1.PutMemberRequest{Host: "TEAM.example", Pubkey: bob[:], Role: "member"})
	require.NoError(t, err)
	require.EqualValues(t, 2, put.GetAclVersion())
	updated, err := d.UpdateCommunity(t.Context(), &ingestv1.UpdateCommunityRequest{Host: "team.example", Access: open, Name: new("New")})
	require.NoError(t, err)
	require.EqualValues(t, 3, updated.GetAclVersion())
	for sent, stored := range map[ingestv1.UnknownKinds]string{
		ingestv1.UnknownKinds_UNKNOWN_KINDS_REGISTRY_ONLY: "registry-only", ingestv1.UnknownKinds_UNKNOWN_KINDS_ALLOW: "allow",
	} {
		_, err = d.UpdateCommunity(t.Context(), &ingestv1.UpdateCommunityRequest{Host: "team.example", UnknownKinds: sent})
		require.NoError(t, err)
		require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.communities WHERE unknown_kinds = $1`, stored))
	}
	updated, err = d.UpdateCommunity(t.Context(), &ingestv1.UpdateCommunityRequest{Host: "team.example"})
	require.NoError(t, err)
	require.EqualValues(t, 3, updated.GetAclVersion())
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.communities WHERE name = 'New' AND access = 'open'`))
	removed, err := d.RemoveMember(t.Context(), &ingestv1.RemoveMemberRequest{Host: "team.example", Pubkey: bob[:]})
	require.NoError(t, err)
	require.EqualValues(t, 4, removed.GetAclVersion())
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.community_members`))
}

func TestDirectoryRefusals(t *testing.T) {
	h := newHarness(t)
	d := h.start("one").directory
	h.community(h.start("two"), "team.example", open)
	key := make([]byte, 32)
	long := string(make([]byte, 300))
	for _, c := range []struct {
		name string
		call func() error
		code codes.Code
	}{
		{"a path", func() error { return create(t, d, "a.example/x", "", open, key) }, codes.InvalidArgument},
		{"an underscore", func() error { return create(t, d, "a_b.example", "", open, key) }, codes.InvalidArgument},
		{"no host", func() error { return create(t, d, "", "", open, key) }, codes.InvalidArgument},
		{"a long name", func() error { return create(t, d, "a.example", long, open, key) }, codes.InvalidArgument},
		{"a NUL", func() error { return create(t, d, "a.example", "a\x00", open, key) }, codes.InvalidArgument},
		{"no access", func() error { return create(t, d, "a.example", "", 0, key) }, codes.InvalidArgument},
		{"no owner of a closed one", func() error { return create(t, d, "a.example", "", closed, nil) }, codes.InvalidArgument},
		{"a short owner", func() error { return create(t, d, "a.example", "", open, key[:31]) }, codes.InvalidArgument},
		{"a role that is none", func() error {
			_, err := d.PutMember(t.Context(), &ingestv1.PutMemberRequest{Host: "team.example", Pubkey: key, Role: "king"})
			return err
		}, codes.InvalidArgument},
		{"a short member", func() error {
			_, err := d.RemoveMember(t.Context(), &ingestv1.RemoveMemberRequest{Host: "team.example", Pubkey: key[:3]})
			return err
		}, codes.InvalidArgument},
		{"an unknown host", func() error {
			_, err := d.PutMember(t.Context(), &ingestv1.PutMemberRequest{Host: "other.example", Pubkey: key, Role: "member"})
			return err
		}, codes.NotFound},
		{"an unknown host to change", func() error {
			_, err := d.UpdateCommunity(t.Context(), &ingestv1.UpdateCommunityRequest{Host: "other.example"})
			return err
		}, codes.NotFound},
		{"an access that is none", func() error {
			_, err := d.UpdateCommunity(t.Context(), &ingestv1.UpdateCommunityRequest{Host: "team.example", Access: 9})
			return err
		}, codes.InvalidArgument},
		{"no such rule for kinds", func() error {
			_, err := d.UpdateCommunity(t.Context(), &ingestv1.UpdateCommunityRequest{Host: "team.example", UnknownKinds: 9})
			return err
		}, codes.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call()
			require.Equal(t, c.code, status.Code(err), err)
		})
	}
	require.Equal(t, 1, h.count(`SELECT count(*) FROM ingest.communities`))
}

func create(tb testing.TB, d ingestv1.DirectoryServiceClient, host, name string, access ingestv1.Access, owner []byte) error {
	tb.Helper()
	_, err := d.CreateCommunity(tb.Context(), &ingestv1.CreateCommunityRequest{Host: host, Name: name, Access: access, Owner: owner})
	return err
}
