package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
)

// Cluster is a running Apiary with an open community for localhost.
type Cluster struct {
	nats     *bustest.Server
	database string
	memory   *rpc.Memory
	logs     io.Writer
	tracers  trace.TracerProvider
	spans    *tracetest.InMemoryExporter

	joinTerms string
	nodes     []*node // in order of start; fixed after the start
	// dialDirectory connects to ingest.
	dialDirectory func() (*grpc.ClientConn, error)
}

// options say what is built.
type options struct {
	gateways, ingests, fanouts, searches int
	traced, paired                       bool
	joinTerms                            string
}

// Option changes what New builds.
type Option func(*options)

// Gateways sets the number of gateways.
func Gateways(n int) Option { return func(o *options) { o.gateways = n } }

// Ingests sets the number of ingest replicas.
func Ingests(n int) Option { return func(o *options) { o.ingests = n } }

// Fanouts sets the number of fan-out nodes.
func Fanouts(n int) Option { return func(o *options) { o.fanouts = n } }

// Searches sets the number of search replicas.
func Searches(n int) Option { return func(o *options) { o.searches = n } }

// Paired gives each gateway one ingest replica, in turn: what comes through the first is done by the first.
func Paired() Option { return func(o *options) { o.paired = true } }

// Traced samples every event's trace; see Traces.
func Traced() Option { return func(o *options) { o.traced = true } }

// JoinTerms has whoever joins with an invite accept terms first, and confirm their age.
func JoinTerms(markdown string) Option { return func(o *options) { o.joinTerms = markdown } }

// New starts a split cluster, of one node of each service unless options say otherwise. Nodes are called
// gateway-1, gateway-2, ingest-1 and so on.
func New(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	o := options{gateways: 1, ingests: 1, fanouts: 1, searches: 1}
	for _, opt := range opts {
		opt(&o)
	}
	c := empty(tb, o)
	searches, ingests, fanouts := names("search", o.searches), names("ingest", o.ingests), names("fanout", o.fanouts)
	for _, name := range searches {
		c.add(name, c.search(name))
	}
	for _, name := range ingests {
		c.add(name, c.ingest(name))
	}
	for _, name := range fanouts {
		c.add(name, c.fanout(name, searches))
	}
	c.dialDirectory = func() (*grpc.ClientConn, error) { return rpc.Dial("mem:///"+ingests[0], rpc.Deps{Memory: c.memory}) }
	for i, name := range names("gateway", o.gateways) {
		of := ingests
		if o.paired {
			of = ingests[i%len(ingests):][:1]
		}
		c.add(name, c.gateway(of, fanouts, searches))
	}
	c.start(tb)
	return c
}

// AllInOne starts the all-in-one as the only node, called apiary. Of the options it takes JoinTerms.
func AllInOne(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	c := empty(tb, options{joinTerms: o.joinTerms})
	c.add("apiary", c.allInOne())
	c.start(tb)
	return c
}

// empty makes what every cluster needs before its nodes.
func empty(tb testing.TB, o options) *Cluster {
	tb.Helper()
	c := &Cluster{
		nats: bustest.New(tb), database: pgtest.URL(tb), memory: rpc.NewMemory(),
		logs: tb.Output(), tracers: tracenoop.NewTracerProvider(), joinTerms: o.joinTerms,
	}
	if o.traced {
		c.trace(tb)
	}
	return c
}

func names(service string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%d", service, i+1)
	}
	return list
}

func (c *Cluster) add(name string, build builder) {
	c.nodes = append(c.nodes, &node{name: name, build: build})
}

// start starts every node and makes the community.
func (c *Cluster) start(tb testing.TB) {
	tb.Helper()
	tb.Cleanup(func() {
		for _, n := range slices.Backward(c.nodes) {
			n.kill(tb)
		}
	})
	for _, n := range c.nodes {
		n.start(tb)
	}
	c.createCommunity(tb, &ingestv1.CreateCommunityRequest{Host: "localhost", Name: "localhost", Access: ingestv1.Access_ACCESS_OPEN})
}

// CreateCommunity makes a closed community, owned by the nostrtest key of this name, and returns its host.
func (c *Cluster) CreateCommunity(tb testing.TB, host, owner string) string {
	tb.Helper()
	key := nostrtest.PubKey(owner)
	c.createCommunity(tb, &ingestv1.CreateCommunityRequest{
		Host: host, Name: host, Access: ingestv1.Access_ACCESS_CLOSED, Owner: key[:],
	})
	return host
}

func (c *Cluster) createCommunity(tb testing.TB, request *ingestv1.CreateCommunityRequest) {
	tb.Helper()
	c.withDirectory(tb, func(ctx context.Context, directory ingestv1.DirectoryServiceClient) error {
		_, err := directory.CreateCommunity(ctx, request)
		return err
	})
}

// RemoveMember takes the nostrtest key of this name out of the community of a host.
func (c *Cluster) RemoveMember(tb testing.TB, host, name string) {
	tb.Helper()
	key := nostrtest.PubKey(name)
	c.withDirectory(tb, func(ctx context.Context, directory ingestv1.DirectoryServiceClient) error {
		_, err := directory.RemoveMember(ctx, &ingestv1.RemoveMemberRequest{Host: host, Pubkey: key[:]})
		return err
	})
}

// PutMember makes the nostrtest key of this name a member of the community of a host.
func (c *Cluster) PutMember(tb testing.TB, host, name string) {
	tb.Helper()
	key := nostrtest.PubKey(name)
	c.withDirectory(tb, func(ctx context.Context, directory ingestv1.DirectoryServiceClient) error {
		_, err := directory.PutMember(ctx, &ingestv1.PutMemberRequest{Host: host, Pubkey: key[:], Role: "member"})
		return err
	})
}

// PutHost gives the community of a host another one.
func (c *Cluster) PutHost(tb testing.TB, host, alias string) {
	tb.Helper()
	c.withDirectory(tb, func(ctx context.Context, directory ingestv1.DirectoryServiceClient) error {
		_, err := directory.PutHost(ctx, &ingestv1.PutHostRequest{Community: hostRef(host), Alias: alias})
		return err
	})
}

// RemoveHost takes one of its hosts from the community of another.
func (c *Cluster) RemoveHost(tb testing.TB, host, alias string) {
	tb.Helper()
	c.withDirectory(tb, func(ctx context.Context, directory ingestv1.DirectoryServiceClient) error {
		_, err := directory.RemoveHost(ctx, &ingestv1.RemoveHostRequest{Community: hostRef(host), Alias: alias})
		return err
	})
}

func hostRef(host string) *ingestv1.CommunityRef {
	return &ingestv1.CommunityRef{By: &ingestv1.CommunityRef_Host{Host: host}}
}

// withDirectory calls do with a client of some ingest replica.
func (c *Cluster) withDirectory(tb testing.TB, do func(context.Context, ingestv1.DirectoryServiceClient) error) {
	tb.Helper()
	conn, err := c.dialDirectory()
	require.NoError(tb, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	require.NoError(tb, do(ctx, ingestv1.NewDirectoryServiceClient(conn)))
}

// Gateway returns the URL of a gateway, counted from 0 and around, so that a case that wants two gateways
// also runs where there is one.
func (c *Cluster) Gateway(i int) string {
	var urls []string
	for _, n := range c.nodes {
		if n.address != "" {
			urls = append(urls, "ws://"+n.address)
		}
	}
	return urls[i%len(urls)]
}

// Nodes returns the names of all nodes.
func (c *Cluster) Nodes() []string {
	list := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		list[i] = n.name
	}
	return list
}

// Replicas returns how many nodes run the service of this node.
func (c *Cluster) Replicas(name string) int {
	service, _, _ := strings.Cut(name, "-")
	count := 0
	for _, n := range c.nodes {
		if strings.HasPrefix(n.name, service) {
			count++
		}
	}
	return count
}

// Kill stops a node at once: nothing is drained, its connections break.
func (c *Cluster) Kill(tb testing.TB, name string) {
	tb.Helper()
	c.find(tb, name).kill(tb)
}

// Restart starts a node that was killed. It has nothing of before but its configuration and addresses.
func (c *Cluster) Restart(tb testing.TB, name string) {
	tb.Helper()
	c.find(tb, name).start(tb)
}

// NATS is the server that all nodes use, to be stopped and started again.
func (c *Cluster) NATS() *bustest.Server { return c.nats }

func (c *Cluster) find(tb testing.TB, name string) *node {
	tb.Helper()
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == name })
	require.GreaterOrEqual(tb, i, 0, "no node is called %s", name)
	return c.nodes[i]
}

// log is a node's logger; what it says is shown when the test fails.
func (c *Cluster) log(name string) *slog.Logger {
	handler := slog.NewTextHandler(c.logs, &slog.HandlerOptions{Level: slog.LevelWarn})
	return slog.New(handler).With(slog.String("node", name))
}
