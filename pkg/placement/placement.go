// Package placement says where things live: a topic in a partition, a partition on nodes.
//
// It owns the two hash functions that every service must agree on. They are part of the cluster's
// wire contract: a stream written with one partition function cannot be read with another, so they
// never change for a cluster's life. The package has no state and does no I/O; all functions are
// safe for concurrent use.
package placement

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// DefaultPartitions is the number of partitions of a new cluster.
const DefaultPartitions = 64

// Partition returns the partition of the topic (community, channel), in [0, partitions): xxhash64 of
// the community as 8 big-endian bytes followed by the channel, modulo partitions. channel is the `h`
// value; empty is the community's global topic. partitions 0 is treated as 1.
func Partition(community int64, channel string, partitions uint32) uint32 {
	if partitions <= 1 {
		return 0
	}
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], uint64(community))
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(key[:]) // a hash never fails
	_, _ = d.WriteString(channel)
	return uint32(d.Sum64() % uint64(partitions))
}

// Rank returns nodes in the order in which they should be asked to serve the partition (rendezvous
// hashing): when a node leaves, only its partitions move, each to its second choice. The order
// depends on the set of names only, so callers with the same view agree; a caller with another view
// is still right, only less cached. nodes is not changed.
func Rank(partition uint32, nodes []string) []string {
	type scored struct {
		name  string
		score uint64
	}
	list := make([]scored, len(nodes))
	for i, n := range nodes {
		list[i] = scored{n, score(partition, n)}
	}
	slices.SortFunc(list, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
	})
	ranked := make([]string, len(list))
	for i := range list {
		ranked[i] = list[i].name
	}
	return ranked
}

// Owner returns Rank(partition, nodes)[0] without allocating, and false when there are no nodes.
func Owner(partition uint32, nodes []string) (string, bool) {
	if len(nodes) == 0 {
		return "", false
	}
	best, bestScore := nodes[0], score(partition, nodes[0])
	for _, n := range nodes[1:] {
		if s := score(partition, n); s > bestScore || (s == bestScore && n < best) {
			best, bestScore = n, s
		}
	}
	return best, true
}

// score is the weight of a node for a partition; the highest wins.
func score(partition uint32, node string) uint64 {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], partition)
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(key[:])
	_, _ = d.WriteString(node)
	return d.Sum64()
}
