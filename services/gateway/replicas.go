package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/rpc"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/live"
	"github.com/apiary-relay/apiary/services/gateway/internal/replica"
	"github.com/apiary-relay/apiary/services/gateway/internal/submit"
)

// Peers is the changing set of a service's replicas; *rpc.Peers satisfies it.
type Peers interface {
	// Live returns the replicas that can be called now.
	Live() []rpc.Peer
	// Subscribe returns a channel that gets a value after Live changed.
	Subscribe() <-chan struct{}
	// Pick returns a live replica that is not in exclude, in turn.
	Pick(exclude ...string) (rpc.Peer, bool)
}

// clients turns peers into a set of typed clients.
type clients[C any] struct {
	peers  Peers
	client func(grpc.ClientConnInterface) C
}

// Live implements replica.Set.
func (c clients[C]) Live() []replica.Node[C] {
	peers := c.peers.Live()
	nodes := make([]replica.Node[C], len(peers))
	for i, p := range peers {
		nodes[i] = replica.Node[C]{Name: p.Name, Client: c.client(p.Conn)}
	}
	return nodes
}

// Subscribe implements replica.Set.
func (c clients[C]) Subscribe() <-chan struct{} { return c.peers.Subscribe() }

func ingestClients(p Peers) replica.Set[submit.Client] {
	return clients[submit.Client]{p, func(cc grpc.ClientConnInterface) submit.Client {
		return ingestv1.NewIngestServiceClient(cc)
	}}
}

func fanoutClients(p Peers) replica.Set[live.Client] {
	return clients[live.Client]{p, func(cc grpc.ClientConnInterface) live.Client {
		return fanoutv1.NewFanoutServiceClient(cc)
	}}
}

// NewSearch returns a client of search that asks one live replica after the other: a call that fails
// before it brought anything, for a reason that another replica or a moment may cure, is made again.
// All of search's calls are idempotent.
func NewSearch(p Peers) searchv1.SearchServiceClient {
	return searchv1.NewSearchServiceClient(&balanced{peers: p})
}

// NewQueue returns a client of search's lists for moderators that asks replicas as NewSearch does.
func NewQueue(p Peers) searchv1.ModerationServiceClient {
	return searchv1.NewModerationServiceClient(&balanced{peers: p})
}

// NewModeration returns a client of ingest's moderation that asks replicas as NewSearch does. Moderation is
// idempotent. A token whose first attempt got through without an answer counts as used at the second: the
// client then signs another one, which is the safe mistake.
func NewModeration(p Peers) ingestv1.ModerationServiceClient {
	return ingestv1.NewModerationServiceClient(&balanced{peers: p})
}

// NewInvites returns a client of ingest's invites that asks replicas as NewSearch does. A code whose making got
// through without an answer is nobody's, and ends by itself.
func NewInvites(p Peers) ingestv1.InviteServiceClient {
	return ingestv1.NewInviteServiceClient(&balanced{peers: p})
}

// NewAgents returns a client of ingest that is told whose agents keys are, and asks replicas as NewSearch does. Its call is
// idempotent.
func NewAgents(p Peers) ingestv1.AgentServiceClient {
	return ingestv1.NewAgentServiceClient(&balanced{peers: p})
}

// NewDirectory returns a client of ingest's directory that asks replicas as NewSearch does; all of its calls are idempotent.
func NewDirectory(p Peers) ingestv1.DirectoryServiceClient {
	return ingestv1.NewDirectoryServiceClient(&balanced{peers: p})
}

// NewOverlays returns a client of ingest that has overlays signed, and asks replicas as NewSearch does.
func NewOverlays(p Peers) ingestv1.OverlayServiceClient {
	return ingestv1.NewOverlayServiceClient(&balanced{peers: p})
}

// NewPresence returns a client of ingest's presence that asks replicas as NewSearch does; both of its calls are
// idempotent.
func NewPresence(p Peers) ingestv1.PresenceServiceClient {
	return ingestv1.NewPresenceServiceClient(&balanced{peers: p})
}

// Retries of a call to a replica.
const (
	callAttempts = 4
	callPause    = 40 * time.Millisecond
)

// balanced is a client connection over replicas.
type balanced struct{ peers Peers }

// Invoke implements grpc.ClientConnInterface.
func (b *balanced) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return b.attempt(ctx, func(cc grpc.ClientConnInterface) error {
		return cc.Invoke(ctx, method, args, reply, opts...)
	})
}

// NewStream implements grpc.ClientConnInterface for server streams.
func (b *balanced) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if desc.ClientStreams {
		return nil, errors.New("balanced connections carry no client streams")
	}
	return &balancedStream{balanced: b, ctx: ctx, desc: desc, method: method, opts: opts}, nil
}

// attempt calls do with one replica after the other.
func (b *balanced) attempt(ctx context.Context, do func(grpc.ClientConnInterface) error) error {
	var tried []string
	err := error(fault.New(fault.Overloaded, ""))
	for n := range callAttempts {
		if wait := callPause << n; n > 0 && !lifecycle.Pause(ctx, wait/2+rand.N(wait)) { //nolint:gosec // jitter
			return err
		}
		peer, ok := b.peers.Pick(tried...)
		if !ok && len(tried) > 0 {
			tried = tried[:0]
			peer, ok = b.peers.Pick()
		}
		if !ok {
			continue
		}
		if err = do(peer.Conn); err == nil || ctx.Err() != nil || !fault.Retryable(fault.ReasonOf(err)) {
			return err
		}
		tried = append(tried, peer.Name)
	}
	return err
}

// balancedStream is a server stream that is opened again until it has brought a message. Like any
// grpc.ClientStream it belongs to one goroutine at a time.
type balancedStream struct {
	grpc.ClientStream // the attempt that answered; nil before

	*balanced
	ctx    context.Context // the stream's own
	desc   *grpc.StreamDesc
	method string
	opts   []grpc.CallOption
	sent   []any
}

// SendMsg implements grpc.ClientStream: the request is kept for every attempt.
func (s *balancedStream) SendMsg(m any) error {
	s.sent = append(s.sent, m)
	return nil
}

// CloseSend implements grpc.ClientStream.
func (s *balancedStream) CloseSend() error { return nil }

// Context implements grpc.ClientStream.
func (s *balancedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ClientStream.
func (s *balancedStream) RecvMsg(m any) error {
	if s.ClientStream != nil {
		return s.ClientStream.RecvMsg(m)
	}
	return s.attempt(s.ctx, func(cc grpc.ClientConnInterface) error {
		stream, err := cc.NewStream(s.ctx, s.desc, s.method, s.opts...)
		if err != nil {
			return err
		}
		for _, sent := range slices.All(s.sent) {
			if err := stream.SendMsg(sent); err != nil {
				break // RecvMsg says why
			}
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		if err := stream.RecvMsg(m); err != nil {
			return err
		}
		s.ClientStream = stream
		return nil
	})
}
