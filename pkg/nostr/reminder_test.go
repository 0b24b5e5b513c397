package nostr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

func TestNotBefore(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "1": 1, "1770000000": 1770000000, "9007199254740991": 9007199254740991} {
		at, ok, err := (&nostr.Event{Tags: nostr.Tags{{"d", "x"}, {"not_before", text}}}).NotBefore()
		require.NoError(t, err, text)
		require.True(t, ok, text)
		require.Equal(t, want, at)
	}
	_, ok, err := (&nostr.Event{Tags: nostr.Tags{{"d", "1"}}}).NotBefore()
	require.NoError(t, err)
	require.False(t, ok, "a reminder that is done")
	for _, tags := range []nostr.Tags{
		{{"not_before"}},
		{{"not_before", ""}},
		{{"not_before", "01"}},
		{{"not_before", "+1"}},
		{{"not_before", "-1"}},
		{{"not_before", "-0"}},
		{{"not_before", " 1"}},
		{{"not_before", "1.0"}},
		{{"not_before", "1e3"}},
		{{"not_before", "١"}},
		{{"not_before", "9007199254740992"}},
		{{"not_before", "99999999999999999999"}},
		{{"not_before", "1"}, {"not_before", "1"}},
	} {
		_, ok, err := (&nostr.Event{Tags: tags}).NotBefore()
		require.ErrorIs(t, err, nostr.ErrNotBefore, "%v", tags)
		require.False(t, ok)
	}
}
