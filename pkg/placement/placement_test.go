package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/placement"
)

// The values are part of the cluster's wire contract: a change here breaks every stored stream.
func TestPartitionIsFixed(t *testing.T) {
	for _, c := range []struct {
		community  int64
		channel    string
		partitions uint32
		want       uint32
	}{
		{1, "", 64, 26},
		{1, "general", 64, 55},
		{2, "general", 64, 52},
		{1 << 40, "8c2a6d2e-7d6c-4b11-9a53-0d6f0b6f7c11", 64, 1},
		{1, "general", 1, 0},
		{1, "general", 0, 0},
	} {
		require.Equal(t, c.want, placement.Partition(c.community, c.channel, c.partitions), "%+v", c)
	}
}

func TestRankIsFixed(t *testing.T) {
	require.Equal(t, []string{"c:1", "a:1", "b:1"}, placement.Rank(7, []string{"a:1", "b:1", "c:1"}))
}

func TestPartitionSpreads(t *testing.T) {
	const topics = 64_000
	var count [placement.DefaultPartitions]int
	for i := range topics {
		count[placement.Partition(int64(i%10), fmt.Sprintf("channel-%d", i), placement.DefaultPartitions)]++
	}
	for p, n := range count {
		require.InDelta(t, topics/placement.DefaultPartitions, n, 200, "partition %d", p)
	}
}

func TestRankSpreads(t *testing.T) {
	const partitions = 9_000
	nodes := []string{"10.0.0.1:7402", "10.0.0.2:7402", "10.0.0.3:7402"}
	count := map[string]int{}
	for p := range uint32(partitions) {
		count[placement.Rank(p, nodes)[0]]++
	}
	for _, n := range nodes {
		require.InDelta(t, partitions/len(nodes), count[n], 300, n)
	}
}

// Whatever the nodes: the order does not depend on how they are listed, the owner is the first, and
// removing a node moves nothing but what was on it.
func TestRankProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.:]{1,20}`), 1, 12, rapid.ID).Draw(t, "nodes")
		partition := rapid.Uint32().Draw(t, "partition")
		given := slices.Clone(nodes)
		ranked := placement.Rank(partition, nodes)
		require.Equal(t, given, nodes, "the input is not changed")
		require.ElementsMatch(t, nodes, ranked)

		slices.Reverse(nodes)
		require.Equal(t, ranked, placement.Rank(partition, nodes))
		owner, ok := placement.Owner(partition, nodes)
		require.True(t, ok)
		require.Equal(t, ranked[0], owner)

		gone := rapid.SampledFrom(nodes).Draw(t, "gone")
		left := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == gone })
		require.Equal(t, slices.DeleteFunc(slices.Clone(ranked), func(n string) bool { return n == gone }),
			placement.Rank(partition, left))
	})
}

func TestNoNodes(t *testing.T) {
	_, ok := placement.Owner(1, nil)
	require.False(t, ok)
	require.Empty(t, placement.Rank(1, nil))
}

func BenchmarkPartition(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		placement.Partition(42, "8c2a6d2e-7d6c-4b11-9a53-0d6f0b6f7c11", placement.DefaultPartitions)
	}
}
