package fanout

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/rpc"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// replica is a search replica that answers as it is told.
type replica struct {
	searchv1.UnimplementedSearchServiceServer

	answer func(ctx context.Context) error
}

func (r *replica) CheckAccess(ctx context.Context, _ *searchv1.CheckAccessRequest) (*searchv1.CheckAccessResponse, error) {
	if err := r.answer(ctx); err != nil {
		return nil, err
	}
	return &searchv1.CheckAccessResponse{}, nil
}

// A replica that fails, or that does not answer though it counts as live, holds nobody up for long: another is asked.
func TestAnotherReplicaIsAsked(t *testing.T) {
	t.Parallel()
	failing := func(context.Context) error { return fault.New(fault.Overloaded, "no") }
	frozen := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, bad := range map[string]func(context.Context) error{"failing": failing, "frozen": frozen} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := rpc.NewMemory()
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			var targets []string
			for target, answer := range map[string]func(context.Context) error{"bad": bad, "good": func(context.Context) error { return nil }} {
				server := rpc.NewServer(rpc.ServerConfig{}, rpc.ServerOptions{Deps: rpc.Deps{Memory: memory}, MemoryName: target})
				server.Register(func(r grpc.ServiceRegistrar) {
					searchv1.RegisterSearchServiceServer(r, &replica{answer: answer})
				})
				running.Go(func() { noError(t, server.Run(ctx, func() {})) })
				targets = append(targets, "mem:///"+target)
			}
			peers, err := rpc.NewPeers(rpc.PeersConfig{Targets: targets}, rpc.Deps{Memory: memory})
			require.NoError(t, err)
			running.Go(func() { noError(t, peers.Run(ctx, func() {})) })
			waiting, stop := context.WithTimeout(ctx, patience)
			defer stop()
			require.NoError(t, peers.Await(waiting, 2))
			for range 4 { // both are asked first, in turn
				_, err := NewSearch(peers).CheckAccess(waiting, &searchv1.CheckAccessRequest{})
				require.NoError(t, err)
			}
		})
	}
}
