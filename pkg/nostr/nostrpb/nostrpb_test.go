package nostrpb_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := nostrtest.Events(1, 4).Draw(t, "events")
		f := nostrtest.Filter(events...).Draw(t, "filter")
		f.MatchesNothing = false
		f.Search = rapid.StringN(0, -1, nostrpb.MaxSearch).Draw(t, "search")

		wire, err := proto.Marshal(nostrpb.FilterToProto(&f))
		require.NoError(t, err)
		var m commonv1.Filter
		require.NoError(t, proto.Unmarshal(wire, &m))
		back, err := nostrpb.FilterFromProto(&m)
		require.NoError(t, err)
		require.Equal(t, &f, back)
	})
}

func TestNoSharedMemory(t *testing.T) {
	t.Parallel()
	since := int64(5)
	f := nostr.Filter{IDs: []nostr.ID{{1}}, Authors: []nostr.PubKey{{2}}, Since: &since}
	m := nostrpb.FilterToProto(&f)
	back, err := nostrpb.FilterFromProto(m)
	require.NoError(t, err)
	m.Ids[0][0], m.Authors[0][0], *m.Since = 9, 9, 9
	require.Equal(t, nostr.ID{1}, f.IDs[0])
	require.Equal(t, nostr.PubKey{2}, f.Authors[0])
	require.Equal(t, int64(5), *f.Since)
	require.Equal(t, &f, back)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	cond := func(name string, values ...[]byte) *commonv1.Filter {
		return &commonv1.Filter{Tags: []*commonv1.TagCondition{{Name: name, Values: values}}}
	}
	for name, m := range map[string]*commonv1.Filter{
		"missing":       nil,
		"short id":      {Ids: [][]byte{make([]byte, 31)}},
		"long author":   {Authors: [][]byte{make([]byte, 33)}},
		"large kind":    {Kinds: []uint32{65536}},
		"no name":       cond("", []byte("x")),
		"long name":     cond("ee", []byte("x")),
		"not a letter":  cond("1", []byte("x")),
		"no values":     cond("e"),
		"not UTF-8":     cond("e", []byte{0xff}),
		"twice":         {Tags: []*commonv1.TagCondition{{Name: "e", Values: [][]byte{{}}}, {Name: "e", Values: [][]byte{{}}}}},
		"long search":   {Search: strings.Repeat("x", nostrpb.MaxSearch+1)},
		"nil condition": {Tags: []*commonv1.TagCondition{nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := nostrpb.FilterFromProto(m)
			require.ErrorIs(t, err, nostrpb.ErrBadFilter)
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]uint32{0: 0, 1: 1, 1 << 31: 1 << 31, 1 << 40: 1<<32 - 1, -1: 0} {
		m := nostrpb.FilterToProto(&nostr.Filter{Limit: &limit})
		require.Equal(t, want, m.GetLimit())
	}
	large := uint32(1<<32 - 1)
	f, err := nostrpb.FilterFromProto(&commonv1.Filter{Limit: &large})
	require.NoError(t, err)
	require.Equal(t, 1<<31-1, *f.Limit)
}
