package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/apiary-relay/apiary/pkg/placement"
	"github.com/apiary-relay/apiary/tools/bench/internal/crowd"
	"github.com/apiary-relay/apiary/tools/internal/local"
	"github.com/apiary-relay/apiary/tools/internal/topology"
)

// nodes are the clusters that are compared to see what a delivery costs when more fan-out nodes do more work. On
// few processors nothing becomes faster; what is to be seen is that the processor time of a delivery stays the same. So
// every node gets the same load, whatever their number: less of it would make its batches smaller, and each delivery
// dearer.
type nodes struct {
	bin         string // directory of the services' binaries
	natsServer  string
	counts      string  // of fan-out nodes, with commas; "" for none
	subscribers int     // of every channel
	topics      int     // channels of each node
	perSec      float64 // deliveries a second of each node
}

func (n *nodes) flags(flags *flag.FlagSet) {
	flags.StringVar(&n.bin, "bin", "bin", "directory of the services' programs, for the clusters")
	flags.StringVar(&n.natsServer, "nats-server", ".bin/nats-server", "the program of NATS, for the clusters")
	flags.StringVar(&n.counts, "nodes", "1,2,3", "fan-out nodes of the clusters to compare; empty for none")
	flags.IntVar(&n.subscribers, "node-subscribers", 200, "subscribers of each channel of a cluster")
	flags.IntVar(&n.topics, "node-topics", 4, "channels of each fan-out node")
	flags.Float64Var(&n.perSec, "node-pace", 40_000, "deliveries a second of each fan-out node")
}

// shared is how a cluster delivers. Processor times are of a delivery, in microseconds, all nodes together.
type shared struct {
	Fanouts    int     `json:"fanouts"`
	PerSecond  float64 `json:"deliveries_per_s"`
	FanoutCPU  float64 `json:"fanout_cpu_us"`
	GatewayCPU float64 `json:"gateway_cpu_us"`
	// Shares are the parts of all deliveries that each node has made.
	Shares []float64 `json:"shares"`
	Lost   int       `json:"lost"`
	Twice  int       `json:"twice"`
}

const (
	// firstCommunity is the number of a new cluster's only community. It decides where channels are placed; if it were
	// another, the nodes would not get their parts, and placed would say so.
	firstCommunity = 1
	// placeTime bounds the time until every node serves its part. The gateway gives a node that it has just met only what it
	// cannot give to others.
	placeTime = 30 * time.Second
	// shareError is by which part of it a node may miss its share of the deliveries: as many are lost, or come twice and are
	// dropped by the gateway, at most.
	shareError = 0.02
)

// measureNodes paces a cluster of each size and writes a table.
func (f *fanout) measureNodes(ctx context.Context, table io.Writer) (all []shared, err error) {
	fmt.Fprintln(table, "FAN-OUT NODES\tDELIVERIES/S\tCPU OF FAN-OUT\tOF THE GATEWAY\tSHARES\tLOST, TWICE")
	for _, count := range list(f.nodes.counts) {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-nodes %s: %s is no number of nodes", f.nodes.counts, count)
		}
		fmt.Fprintf(os.Stderr, "bench: %d fan-out nodes\n", n)
		got, err := f.measureCluster(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("%d fan-out nodes: %w", n, err)
		}
		fmt.Fprintf(table, "%d\t%.0f\t%.3f µs\t%.3f µs\t%.2f\t%d, %d\n",
			n, got.PerSecond, got.FanoutCPU, got.GatewayCPU, got.Shares, got.Lost, got.Twice)
		all = append(all, got)
	}
	return all, nil
}

// measureCluster paces a cluster with so many fan-out nodes. The error is also that a node had no part in it.
func (f *fanout) measureCluster(ctx context.Context, n int) (got shared, err error) {
	// Each topic stays on its node: to move one costs a replay, which is not to be measured.
	cluster, err := startSplit(ctx, local.Config{Bin: f.nodes.bin, NATSServer: f.nodes.natsServer, Fanouts: n, Environment: []string{
		"APIARY_EVENT_RATE=0", "APIARY_REQ_RATE=0", "APIARY_READ_RATE=0", "APIARY_ADDRESS_READ_RATE=0",
		"APIARY_SPREAD_DELIVERIES=0", "APIARY_SPREAD_SUBSCRIPTIONS=0",
	}})
	if err != nil {
		return got, err
	}
	defer func() {
		if stopErr := cluster.stop(ctx); err == nil {
			err = stopErr
		}
	}()
	if f.pin {
		if err := pinFamily(ctx, 0); err != nil {
			return got, err
		}
	}
	fanouts, gateway := cluster.watch("fanout"), cluster.watch("gateway")
	topics, perSecond := n*f.nodes.topics, float64(n)*f.nodes.perSec/float64(f.nodes.subscribers)
	people, err := crowd.Meet(ctx, crowd.Config{
		Addr: cluster.addr(), Dialect: crowd.Nostr{Auth: true, Channels: true}, Names: channelsOf(cluster.Plan, topics),
		Subscribers: f.nodes.subscribers, Topics: topics, Each: topics, Publishers: fanoutPublishers,
	})
	if err != nil {
		return got, err
	}
	defer people.Close()
	if err := placed(ctx, fanouts, f.nodes.subscribers*f.nodes.topics); err != nil {
		return got, err
	}
	if _, err := people.Paced(ctx, int(perSecond), perSecond); err != nil { // to warm up
		return got, err
	}
	var looks [][]spent
	res, err := f.observe(ctx, people, slices.Concat(fanouts, gateway), func() error {
		look, err := lookAt(ctx, fanouts, gateway[0])
		looks = append(looks, look)
		return err
	}, func() (crowd.Result, error) {
		return people.Paced(ctx, topics*max(1, int(perSecond*f.length.Seconds())/topics), perSecond)
	})
	if err != nil {
		return got, err
	}
	if cut := people.Cut(); cut > 0 {
		return got, fmt.Errorf("%d subscribers were cut off", cut)
	}
	return account(res, looks[0], looks[1])
}

// account says what a round has cost, by a look at all nodes and the gateway before it and one after. It is an error that
// a node has not made its part of the deliveries.
func account(res crowd.Result, before, after []spent) (shared, error) {
	n := len(before) - 1
	got := shared{Fanouts: n, PerSecond: float64(res.Deliveries) / res.Took.Seconds(), Lost: res.Lost, Twice: res.Twice}
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(res.Deliveries) }
	var cpu time.Duration
	for i := range n {
		cpu += after[i].cpu - before[i].cpu
		got.Shares = append(got.Shares, (after[i].delivered-before[i].delivered)/float64(res.Deliveries))
	}
	got.FanoutCPU, got.GatewayCPU = each(cpu), each(after[n].cpu-before[n].cpu)
	for _, share := range got.Shares {
		if math.Abs(share-1/float64(n)) > shareError/float64(n) {
			return got, fmt.Errorf("the nodes have made %.2f of the deliveries, not equal parts", got.Shares)
		}
	}
	return got, nil
}

// channelsOf names channels that a plan's nodes share evenly, in turn, each in a partition of its own if there are enough.
func channelsOf(plan *topology.Plan, topics int) []string {
	var nodes []string
	for _, p := range plan.Inner {
		if p.Service == "fanout" {
			nodes = append(nodes, p.Address)
		}
	}
	var names []string
	taken := map[uint32]bool{}
	for i := 0; len(names) < topics; i++ {
		name := "bench-" + strconv.Itoa(i)
		partition := placement.Partition(firstCommunity, name, placement.DefaultPartitions)
		owner, _ := placement.Owner(partition, nodes)
		if owner == nodes[len(names)%len(nodes)] && (!taken[partition] || len(taken) >= placement.DefaultPartitions/2) {
			names, taken[partition] = append(names, name), true
		}
	}
	return names
}

// placed waits until every node serves as many subscriptions.
func placed(ctx context.Context, fanouts []watched, each int) error {
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		serving := make([]float64, len(fanouts))
		for i := range fanouts {
			if err := fanouts[i].metrics(ctx, map[string]*float64{"apiary_fanout_subscriptions": &serving[i]}); err != nil {
				return err
			}
		}
		if !slices.ContainsFunc(serving, func(n float64) bool { return n != float64(each) }) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the nodes serve %v subscriptions, not %d each: %w", serving, each, ctx.Err())
		}
	}
}

// spent is what a process has used so far, and a node delivered.
type spent struct {
	cpu       time.Duration
	delivered float64
}

// lookAt looks at all nodes and, last, at the gateway.
func lookAt(ctx context.Context, fanouts []watched, gateway watched) ([]spent, error) {
	all := make([]spent, 0, len(fanouts)+1)
	for _, p := range fanouts {
		var s spent
		var err error
		if s.cpu, err = cpuOfTree(p.pid); err != nil {
			return nil, err
		}
		if err := p.metrics(ctx, map[string]*float64{"apiary_fanout_delivered_total": &s.delivered}); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	cpu, err := cpuOfTree(gateway.pid)
	return append(all, spent{cpu: cpu}), err
}
