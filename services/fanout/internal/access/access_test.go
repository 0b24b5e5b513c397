package access

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/nostr"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

var alice, bob, carol = nostr.PubKey{1}, nostr.PubKey{2}, nostr.PubKey{3}

func TestVerdictsAgeWithTheVersions(t *testing.T) {
	t.Parallel()
	topic := NewTopic(1, "hive")
	g := topic.Acquire(alice)
	require.True(t, topic.Unsure())
	require.False(t, g.Fresh(Versions{}), "nothing known is never fresh")
	require.False(t, g.Allowed())

	topic.Apply(Answer{Keys: []nostr.PubKey{alice, bob}, Allowed: []bool{true, true}, Moderator: []bool{true, false}, Until: []int64{0, 0}, At: Versions{Community: 2, Channel: 5}})
	require.False(t, topic.Unsure())
	require.True(t, g.Allowed())
	require.True(t, g.Moderates())
	require.True(t, g.Fresh(Versions{Community: 2, Channel: 5}))
	require.False(t, g.Fresh(Versions{Community: 3, Channel: 5}))
	require.False(t, g.Fresh(Versions{Community: 2, Channel: 6}))

	topic.Apply(Answer{Keys: []nostr.PubKey{alice}, Allowed: []bool{false}, Moderator: []bool{false}, Until: []int64{0}, At: Versions{Community: 2, Channel: 6}})
	require.False(t, g.Allowed())
	require.False(t, g.Moderates())
	topic.Apply(Answer{Keys: []nostr.PubKey{alice}, Allowed: []bool{true}, Moderator: []bool{false}, Until: []int64{0}, At: Versions{Community: 2, Channel: 1}})
	require.True(t, g.Allowed())
	require.False(t, g.Fresh(Versions{Community: 2, Channel: 6}), "the channel was made anew: it counts from the beginning")
	require.Equal(t, 1, topic.Len(), "bob was never subscribed")
}

func TestVerdictsEndAtATime(t *testing.T) {
	t.Parallel()
	topic := NewTopic(1, "hive")
	a, b := topic.Acquire(alice), topic.Acquire(bob)
	topic.Apply(Answer{
		Keys: []nostr.PubKey{alice, bob}, Allowed: []bool{true, false}, Moderator: []bool{false, false}, Until: []int64{1000, 2000},
		At: Versions{Channel: 5}, Min: Versions{Channel: 5},
	})
	at := func(time int64) Versions { return Versions{Channel: 5, Time: time} }
	require.True(t, a.Fresh(at(999)))
	require.False(t, a.Fresh(at(1000)))
	require.True(t, b.Fresh(at(1999)))
	require.False(t, b.Fresh(at(2000)))
	require.Empty(t, topic.Stale(at(999), nil, 10))
	require.Equal(t, []nostr.PubKey{alice}, topic.Stale(at(1000), nil, 10), "also if it was asked about before")
	require.True(t, topic.Apply(Answer{
		Keys: []nostr.PubKey{alice}, Allowed: []bool{false}, Moderator: []bool{false}, Until: []int64{0}, At: Versions{Channel: 5}, Min: at(1000),
	}), "revoked")
	require.True(t, a.Fresh(at(1<<60)))
}

func TestGrantsLiveAsLongAsTheirUses(t *testing.T) {
	t.Parallel()
	topic := NewTopic(1, "")
	a, again := topic.Acquire(alice), topic.Acquire(alice)
	require.Same(t, a, again)
	topic.Release(a)
	require.Equal(t, 1, topic.Len())
	topic.Release(a)
	require.Zero(t, topic.Len())
	require.False(t, topic.Unsure())
	require.Equal(t, alice, a.Key())
}

func TestStaleAsksForWhatIsNeededFirst(t *testing.T) {
	t.Parallel()
	topic := NewTopic(1, "hive")
	a, b := topic.Acquire(alice), topic.Acquire(bob)
	topic.Acquire(carol)
	require.Equal(t, []nostr.PubKey{bob, alice}, topic.Stale(Versions{}, []*Grant{b, b, a}, 2))
	require.ElementsMatch(t, []nostr.PubKey{alice, bob, carol}, topic.Stale(Versions{}, []*Grant{b}, 10))
	topic.Apply(Answer{Keys: []nostr.PubKey{alice, carol}, Allowed: []bool{true, false}, Moderator: []bool{false, false}, Until: []int64{0, 0}, At: Versions{Community: 1, Channel: 1}})
	require.Equal(t, []nostr.PubKey{bob}, topic.Stale(Versions{Community: 1, Channel: 1}, []*Grant{a}, 10))
}

type checker func(*searchv1.CheckAccessRequest) (*searchv1.CheckAccessResponse, error)

func (c checker) CheckAccess(_ context.Context, in *searchv1.CheckAccessRequest, _ ...grpc.CallOption) (*searchv1.CheckAccessResponse, error) {
	return c(in)
}

func TestAsk(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	q := Question{Community: 1, Channel: "hive", Keys: []nostr.PubKey{alice, bob}, Min: Versions{Community: 2, Channel: 3, Time: 100}}
	tests := []struct {
		name string
		out  *searchv1.CheckAccessResponse
		err  error
		want error
		at   Versions
	}{
		{"newer state", &searchv1.CheckAccessResponse{Allowed: []bool{true, false}, CommunityAclVersion: 2, ChannelAclVersion: 4}, nil, nil, Versions{Community: 2, Channel: 4}},
		{"no such channel", &searchv1.CheckAccessResponse{Allowed: []bool{false, false}, CommunityAclVersion: 2}, nil, nil, Versions{Community: 2}},
		{"half an answer", &searchv1.CheckAccessResponse{Allowed: []bool{true}, CommunityAclVersion: 2, ChannelAclVersion: 3}, nil, ErrUndecided, Versions{}},
		{"half an answer about moderators", &searchv1.CheckAccessResponse{Allowed: []bool{true, true}, Moderator: []bool{true}}, nil, ErrUndecided, Versions{}},
		{"one that holds for longer", &searchv1.CheckAccessResponse{Allowed: []bool{true, true}, Until: []int64{0, 101}, ChannelAclVersion: 3}, nil, nil, Versions{Channel: 3}},
		{"one that has ended", &searchv1.CheckAccessResponse{Allowed: []bool{true, true}, Until: []int64{0, 100}}, nil, ErrUndecided, Versions{}},
		{"half an answer about ends", &searchv1.CheckAccessResponse{Allowed: []bool{true, true}, Until: []int64{0}}, nil, ErrUndecided, Versions{}},
		{"no answer", nil, down, down, Versions{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Ask(t.Context(), checker(func(in *searchv1.CheckAccessRequest) (*searchv1.CheckAccessResponse, error) {
				require.Equal(t, "hive", in.GetChannel())
				require.Equal(t, [][]byte{alice[:], bob[:]}, in.GetPubkeys())
				require.Equal(t, uint64(3), in.GetMinChannelAclVersion())
				require.Equal(t, int64(100), in.GetMinTime())
				return tt.out, tt.err
			}), q)
			require.ErrorIs(t, err, tt.want)
			require.Equal(t, tt.at, got.At)
		})
	}
}
