package cluster_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/services/internal/cluster"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// The suite waits more than it computes: the two topologies run side by side.
func TestAllInOne(t *testing.T) {
	t.Parallel()
	suite(t, cluster.AllInOne(t))
}

func TestSplit(t *testing.T) {
	t.Parallel()
	suite(t, cluster.New(t, cluster.Gateways(2), cluster.Ingests(2), cluster.Fanouts(2), cluster.Searches(2)))
}

// suite runs every case on a cluster.
func suite(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, tc := range slices.Concat(cases, acceptance) {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, c) })
	}
}
