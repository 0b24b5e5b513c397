package session

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/limit"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/live"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
	"github.com/apiary-relay/apiary/services/gateway/internal/presence"
	"github.com/apiary-relay/apiary/services/gateway/internal/submit"
	"github.com/apiary-relay/apiary/services/gateway/internal/told"
)

// Search is what sessions ask of the reader; the generated client has it.
type Search interface {
	Query(ctx context.Context, in *searchv1.QueryRequest, opts ...grpc.CallOption) (
		grpc.ServerStreamingClient[searchv1.QueryResponse], error)
	Count(ctx context.Context, in *searchv1.CountRequest, opts ...grpc.CallOption) (*searchv1.CountResponse, error)
	DescribeThreads(ctx context.Context, in *searchv1.DescribeThreadsRequest, opts ...grpc.CallOption) (
		*searchv1.DescribeThreadsResponse, error)
	QueryThread(ctx context.Context, in *searchv1.QueryThreadRequest, opts ...grpc.CallOption) (
		*searchv1.QueryThreadResponse, error)
	CheckAccess(ctx context.Context, in *searchv1.CheckAccessRequest, opts ...grpc.CallOption) (
		*searchv1.CheckAccessResponse, error)
}

// Config bounds sessions.
type Config struct {
	// Wire bounds frames.
	Wire wire.Limits
	// AuthTimeout is how long a client may take to authenticate; 0 waits for ever.
	AuthTimeout time.Duration
	// AuthWindow is how far created_at of an AUTH event may be from now.
	AuthWindow time.Duration
	// MaxKeys is how many keys one connection may authenticate.
	MaxKeys int
	// MaxSubs is how many subscriptions one connection may have open.
	MaxSubs int
	// MaxSubValues bounds the filters of the open subscriptions of one connection together, in values: those in
	// the lists of each filter, once for each topic that it listens on, and some for each topic. 0 is no limit.
	MaxSubValues int64
	// MaxChannels is how many #h values one REQ may have, over all filters.
	MaxChannels int
	// Limit is the default and the largest number of stored events per filter.
	Limit int
	// MaxEvents is how many EVENTs of one connection may wait for their verdict.
	MaxEvents int
	// MaxEventBytes is the size of all EVENTs of the process that wait for their verdict.
	MaxEventBytes int64
	// MaxCounts is how many COUNTs of one connection may be open.
	MaxCounts int
	// Workers is how many REQs and COUNTs of one connection run at a time; the others queue.
	Workers int
	// MaxQueries is how many stored queries of the process run at a time; the others queue.
	MaxQueries int64
	// MaxNewQueries is how many of them may be those of connections in their first second; three quarters at most, which 0 means.
	MaxNewQueries int64
	// ConnQueries is how many of them one connection may have.
	ConnQueries int64
	// HistoryBytes is the size of the stored events of the process that wait for clients which are slower than
	// search; one connection may use an eighth of it.
	HistoryBytes int64
	// HeldEvents and HeldBytes bound the live events that one subscription holds back while it reads
	// its history.
	HeldEvents, HeldBytes int
	// AttachTimeout is how long a REQ waits for its topics to be attached.
	AttachTimeout time.Duration
	// CallTimeout bounds a unary call, and each wait for the next part of a stored query.
	CallTimeout time.Duration
	// QueryTimeout bounds a stored query as a whole, a slow client's reading included.
	QueryTimeout time.Duration
}

// Community is what a session knows of its tenant; immutable.
type Community struct {
	// ID is the surrogate key, UUID the name by which clients know the community apart from its hosts.
	ID   int64
	UUID string
	// Host is the authority by which it was found, normalised, and Hosts are those that an AUTH event may name, Host included; a
	// session hears when they change (Session.Rehost).
	Host  string
	Hosts []string
	// Closed is set when only members may use the community, and nobody else's key is admitted.
	Closed bool
}

// Deps is what sessions use.
type Deps struct {
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Tracer  trace.Tracer
	Search  Search
	// Presence answers who is online, and Roster is told who is here.
	Presence Presence
	Roster   *presence.Roster
	// Overlays signs what is made up for one answer.
	Overlays Overlays
	// Invites makes invite codes.
	Invites Invites
	// Agents is told whose agents keys are.
	Agents Agents
	// Told is what was heard of revocations, and Doubt has a session looked at again; it must not block.
	Told   *told.Log
	Doubt  func(*Session)
	Submit *submit.Submitter
	Live   *live.Live
}

// Server makes sessions and holds what they share.
type Server struct {
	cfg Config
	Deps

	lastID  atomic.Uint64
	bytes   *semaphore.Weighted // of EVENTs in flight
	queries *limit.Fair[askerKey, netip.Prefix]
	large   *limit.Fair[askerKey, netip.Prefix] // subscriptions with much in their filters, while they are attached
	parking parking

	decoding *semaphore.Weighted // large frames that are decoded now

	admissions *semaphore.Weighted // keys that search is asked about
	attempts   *attempts
}

// NewServer returns a server of sessions.
func NewServer(cfg Config, deps Deps) *Server {
	return &Server{
		cfg: cfg, Deps: deps,
		bytes:   semaphore.NewWeighted(cfg.MaxEventBytes),
		queries: limit.NewFair[askerKey, netip.Prefix](queryPlaces(int(cfg.MaxQueries), int(cfg.MaxNewQueries))),
		large:   limit.NewFair[askerKey, netip.Prefix](fairConfig(largePlaces)),
		parking: newParking(cfg.HistoryBytes),

		decoding: semaphore.NewWeighted(max(int64(runtime.GOMAXPROCS(0))/2, 1)),

		admissions: semaphore.NewWeighted(maxAdmissions),
		attempts:   newAttempts(),
	}
}

// largeFrame is how many bytes make a frame a large one. A smaller one is decoded in some ten microseconds.
const largeFrame = 16 << 10

// mayDecode waits until so many bytes of a frame may be decoded, and done says that they are. Large frames take at most half of the
// processors at a time, but one at least: what takes milliseconds is not to keep those waiting who send what takes microseconds.
// It is not ok when ctx has ended.
func (srv *Server) mayDecode(ctx context.Context, size int) (done func(), ok bool) {
	if size <= largeFrame {
		return func() {}, true
	}
	if srv.decoding.Acquire(ctx, 1) != nil {
		return nil, false
	}
	return func() { srv.decoding.Release(1) }, true
}
