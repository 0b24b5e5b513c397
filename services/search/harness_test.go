package search

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/tenant"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/pkg/testkit/pgtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/search/internal/fixture"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testNow is the time in tests: after every created_at that nostrtest draws.
const testNow = 1_800_000_000

// newService makes a service on the test's database, and the fixture that writes to it.
func newService(tb testing.TB, cfg Config) (*Service, *fixture.DB) {
	tb.Helper()
	s, err := New(cfg, Deps{DB: pgtest.NewAs(tb, Role), Now: func() time.Time { return time.Unix(testNow, 0) }})
	require.NoError(tb, err)
	return s, fixture.New(tb.Context(), pgtest.New(tb))
}

// serve runs the service behind a gRPC server and returns a client.
func serve(tb testing.TB, s *Service) searchv1.SearchServiceClient {
	tb.Helper()
	deps := rpc.Deps{Memory: rpc.NewMemory()}
	server := rpc.NewServer(rpc.ServerConfig{}, rpc.ServerOptions{Deps: deps, MemoryName: "search"})
	server.Register(s.Register)
	group := lifecycle.NewGroup(lifecycle.Config{})
	group.Add("service", s)
	group.Add("grpc", server, "service")
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- group.Run(ctx, func() { close(ready) }) }()
	tb.Cleanup(func() {
		cancel()
		require.NoError(tb, <-done)
	})
	<-ready
	conn, err := rpc.Dial("mem:///search", deps)
	require.NoError(tb, err)
	tb.Cleanup(func() { conn.Close() })
	return searchv1.NewSearchServiceClient(conn)
}

func principal(keys ...nostr.PubKey) *commonv1.Principal {
	p := &commonv1.Principal{}
	for _, k := range keys {
		p.Pubkeys = append(p.Pubkeys, k[:])
	}
	return p
}

func queryFor(community tenant.ID, who *commonv1.Principal, filters ...nostr.Filter) *searchv1.QueryRequest {
	req := &searchv1.QueryRequest{Community: int64(community), Principal: who}
	for i := range filters {
		req.Filters = append(req.Filters, nostrpb.FilterToProto(&filters[i]))
	}
	return req
}

func countFor(community tenant.ID, who *commonv1.Principal, filters ...nostr.Filter) *searchv1.CountRequest {
	q := queryFor(community, who, filters...)
	return &searchv1.CountRequest{Community: q.GetCommunity(), Principal: q.GetPrincipal(), Filters: q.GetFilters()}
}

// collect reads a whole answer.
func collect(stream grpc.ServerStreamingClient[searchv1.QueryResponse], err error) ([]*searchv1.QueryResponse, error) {
	if err != nil {
		return nil, err
	}
	var list []*searchv1.QueryResponse
	for {
		resp, err := stream.Recv()
		if err == io.EOF { //nolint:errorlint // the documented sentinel of Recv, never wrapped
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, resp)
	}
}

// read queries and returns the raw events.
func read(t *testing.T, c searchv1.SearchServiceClient, req *searchv1.QueryRequest) []string {
	t.Helper()
	answer, err := collect(c.Query(t.Context(), req))
	require.NoError(t, err)
	list := []string{}
	for _, resp := range answer {
		for _, raw := range resp.GetEvents() {
			list = append(list, string(raw))
		}
	}
	return list
}

// raws are the bytes that events are stored as.
func raws(events ...*nostr.Event) []string {
	list := []string{}
	for _, e := range events {
		list = append(list, string(nostrtest.Raw(e)))
	}
	return list
}

func limit(n int) *int { return &n }
