package fanout

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/rpc"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// secondAfter is how long one replica may take to answer before another is asked besides. One that is frozen or cut off
// counts as live for longer than a partition should be held.
const secondAfter = 500 * time.Millisecond

// NewSearch returns a Search over the replicas in peers. A call that fails for a reason that may pass, or that is not
// answered within half a second, is tried once more, on another replica if there is one; the first answer counts.
func NewSearch(peers *rpc.Peers) Search { return searchPeers{peers} }

type searchPeers struct{ peers *rpc.Peers }

// accessAnswer is how one replica's call ended.
type accessAnswer struct {
	out *searchv1.CheckAccessResponse
	err error
}

// CheckAccess implements Search.
func (s searchPeers) CheckAccess(ctx context.Context, in *searchv1.CheckAccessRequest, opts ...grpc.CallOption) (*searchv1.CheckAccessResponse, error) {
	first, ok := s.peers.Pick()
	if !ok {
		return nil, fault.New(fault.Overloaded, "no search replica is live")
	}
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait() // after cancel
	defer cancel()
	answers := make(chan accessAnswer, 2)
	open := 0
	ask := func(peer rpc.Peer) {
		open++
		calls.Go(func() {
			out, err := searchv1.NewSearchServiceClient(peer.Conn).CheckAccess(ctx, in, opts...)
			answers <- accessAnswer{out, err}
		})
	}
	ask(first)
	patience := time.NewTimer(secondAfter)
	defer patience.Stop()
	for second := false; ; {
		var a accessAnswer
		select {
		case a = <-answers:
			open--
			if a.err == nil || ctx.Err() != nil || !fault.Retryable(fault.ReasonOf(a.err)) {
				return a.out, a.err
			}
		case <-patience.C:
		}
		if !second {
			second = true
			if peer, ok := s.peers.Pick(first.Name); ok {
				ask(peer)
			}
		}
		if open == 0 {
			return nil, a.err
		}
	}
}
