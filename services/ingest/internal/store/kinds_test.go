package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// A community that takes only the kinds of the registry refuses others until it takes them again.
func TestUnknownKinds(t *testing.T) {
	f := newFixture(t)
	unknown := func(content string) *policy.Candidate {
		return f.candidate("bob", nostrtest.Kind(1234), nostrtest.Content(content))
	}
	set := func(to string) {
		version, err := f.UpdateCommunity(t.Context(), f.community, CommunityChange{UnknownKinds: &to})
		require.NoError(t, err)
		require.EqualValues(t, 1, version, "nothing of it is access")
	}
	f.accept(unknown("at first"))
	set(UnknownKindsRegistryOnly)
	require.Equal(t, policy.UnknownKind, f.verdict(unknown("then")))
	f.accept(f.candidate("bob"))
	_, err := f.UpdateCommunity(t.Context(), f.community, CommunityChange{Name: new("renamed")})
	require.NoError(t, err)
	require.Equal(t, policy.UnknownKind, f.verdict(unknown("still")))
	set(UnknownKindsAllow)
	f.accept(unknown("again"))
}
