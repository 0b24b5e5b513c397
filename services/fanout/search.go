package fanout

import (
	"context"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/rpc"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// NewSearch returns a Search over the replicas in peers. A call that fails for a reason that may pass is
// tried once more, on another replica if there is one.
func NewSearch(peers *rpc.Peers) Search { return searchPeers{peers} }

type searchPeers struct{ peers *rpc.Peers }

// CheckAccess implements Search.
func (s searchPeers) CheckAccess(ctx context.Context, in *searchv1.CheckAccessRequest, opts ...grpc.CallOption) (*searchv1.CheckAccessResponse, error) {
	first, ok := s.peers.Pick()
	if !ok {
		return nil, fault.New(fault.Overloaded, "no search replica is live")
	}
	out, err := searchv1.NewSearchServiceClient(first.Conn).CheckAccess(ctx, in, opts...)
	if err == nil || ctx.Err() != nil || !fault.Retryable(fault.ReasonOf(err)) {
		return out, err
	}
	second, ok := s.peers.Pick(first.Name)
	if !ok {
		return nil, err
	}
	return searchv1.NewSearchServiceClient(second.Conn).CheckAccess(ctx, in, opts...)
}
