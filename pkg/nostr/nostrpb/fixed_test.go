package nostrpb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
)

func TestFixed(t *testing.T) {
	t.Parallel()
	want := nostr.PubKey{1, 31: 2}
	got, err := nostrpb.Fixed[nostr.PubKey](want[:], "pubkey")
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, b := range [][]byte{nil, want[1:], append(want[:], 0)} {
		_, err := nostrpb.Fixed[nostr.ID](b, "event")
		require.Equal(t, fault.Invalid, fault.ReasonOf(err))
		require.Equal(t, "event must be 32 bytes", fault.Message(err))
	}
}
