package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// A receipt is good for one code in one community, as long as the policy says the same, on every replica with the secret.
func TestReceiptsOfJoinPolicies(t *testing.T) {
	secret := []byte("secret")
	p, replica := policy.NewJoinPolicy("terms", "privacy", true, secret), policy.NewJoinPolicy("terms", "privacy", true, secret)
	require.Equal(t, p.Version(), replica.Version())
	receipt, wrong := p.Accept(1, "code", replica.Version(), true)
	require.Empty(t, wrong)
	require.True(t, replica.Holds(1, "code", receipt))
	require.False(t, replica.Holds(2, "code", receipt))
	require.False(t, replica.Holds(1, "other", receipt))
	require.False(t, replica.Holds(1, "code", receipt+"x"))
	require.False(t, replica.Holds(1, "code", ""))
	require.False(t, policy.NewJoinPolicy("terms", "privacy", true, []byte("another")).Holds(1, "code", receipt))

	none, wrong := p.Accept(1, "code", p.Version(), false)
	require.Equal(t, policy.AgeUnconfirmed, wrong)
	require.Empty(t, none)
	for _, other := range []*policy.JoinPolicy{
		policy.NewJoinPolicy("terms.", "privacy", true, secret), policy.NewJoinPolicy("terms", "", true, secret),
		policy.NewJoinPolicy("termsp", "rivacy", true, secret), policy.NewJoinPolicy("terms", "privacy", false, secret),
	} {
		require.NotEqual(t, p.Version(), other.Version())
		require.False(t, other.Holds(1, "code", receipt))
		for _, age := range []bool{true, false} {
			none, wrong := other.Accept(1, "code", p.Version(), age)
			require.Equal(t, policy.OtherVersion, wrong)
			require.Empty(t, none)
		}
	}
	young, wrong := policy.NewJoinPolicy("terms", "", false, secret).Accept(1, "code", policy.NewJoinPolicy("terms", "", false, secret).Version(), false)
	require.Empty(t, wrong)
	require.NotEmpty(t, young)
}
