package gateway_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/placement"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// The services that the gateway calls, as far as a test needs them: real gRPC servers whose answers the
// test decides. Fields named on… are set before the gateway is started or guarded by mu.

// ingest answers every submission with what on says; a nil verdict is no answer.
type ingest struct {
	ingestv1.UnimplementedIngestServiceServer

	mu      sync.Mutex
	on      func(*ingestv1.Submission) *ingestv1.Verdict
	got     []*ingestv1.Submission
	largest int
	breaks  []context.CancelCauseFunc
}

// roster hears who is connected.
type roster struct {
	ingestv1.UnimplementedPresenceServiceServer

	sessions chan *ingestv1.Session // that were reported; what does not fit is dropped
}

// ReportSessions implements ingestv1.PresenceServiceServer.
func (r *roster) ReportSessions(_ context.Context, req *ingestv1.ReportSessionsRequest) (*ingestv1.ReportSessionsResponse, error) {
	for _, one := range req.GetSessions() {
		select {
		case r.sessions <- one:
		default:
		}
	}
	return &ingestv1.ReportSessionsResponse{}, nil
}

func (s *ingest) Publish(stream grpc.BidiStreamingServer[ingestv1.PublishRequest, ingestv1.PublishResponse]) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	s.mu.Lock()
	s.breaks = append(s.breaks, cancel)
	s.mu.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- s.serve(stream) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *ingest) serve(stream grpc.BidiStreamingServer[ingestv1.PublishRequest, ingestv1.PublishResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		resp := &ingestv1.PublishResponse{}
		s.mu.Lock()
		on := s.on
		s.got = append(s.got, req.GetSubmissions()...)
		s.largest = max(s.largest, len(req.GetSubmissions()))
		s.mu.Unlock()
		for _, sub := range req.GetSubmissions() {
			v := &ingestv1.Verdict{}
			if on != nil {
				v = on(sub)
			}
			if v != nil {
				v.Ref = sub.GetRef()
				resp.Verdicts = append(resp.Verdicts, v)
			}
		}
		if len(resp.GetVerdicts()) > 0 {
			if err := stream.Send(resp); err != nil {
				return err
			}
		}
	}
}

func (s *ingest) answer(on func(*ingestv1.Submission) *ingestv1.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = on
}

// breakAll ends all streams with an error.
func (s *ingest) breakAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.breaks {
		b(fault.New(fault.Overloaded, "broken by the test"))
	}
	s.breaks = nil
}

func (s *ingest) received() []*ingestv1.Submission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*ingestv1.Submission(nil), s.got...)
}

// epoch is the incarnation of the streams in tests.
const epoch = 7

func at(sequence uint64) *commonv1.Position {
	return &commonv1.Position{Epoch: epoch, Sequence: sequence}
}

func cursorAt(sequence uint64) *commonv1.Cursor {
	return &commonv1.Cursor{Events: at(sequence), Ephemeral: at(0)}
}

// fanout is a node. It answers Subscribe with Attached at head unless on says otherwise, and delivers
// what the test publishes to all handles on the topic.
type fanout struct {
	fanoutv1.UnimplementedFanoutServiceServer

	subscribed chan *fanoutv1.Subscribe // every Subscribe that came
	forgotten  chan uint64              // every Unsubscribe

	mu    sync.Mutex
	on    func(*link, *fanoutv1.Subscribe) bool // true: handled
	links []*link
	head  uint64
}

func newFanout() *fanout {
	return &fanout{subscribed: make(chan *fanoutv1.Subscribe, 1<<16), forgotten: make(chan uint64, 1<<16)}
}

// link is one gateway's stream.
type link struct {
	stream grpc.BidiStreamingServer[fanoutv1.AttachRequest, fanoutv1.AttachResponse]
	cancel context.CancelCauseFunc
	mu     sync.Mutex // serialises Send and guards handles
	subs   map[uint64]*fanoutv1.Subscribe
	says   atomic.Pointer[bool] // what it says all the time of the bus; nil for nothing
}

func (f *fanout) Attach(stream grpc.BidiStreamingServer[fanoutv1.AttachRequest, fanoutv1.AttachResponse]) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	l := &link{stream: stream, cancel: cancel, subs: make(map[uint64]*fanoutv1.Subscribe)}
	f.mu.Lock()
	f.links = append(f.links, l)
	f.mu.Unlock()
	defer f.drop(l)
	ended := make(chan error, 1)
	go func() { ended <- f.serve(l) }()
	beat := time.NewTicker(50 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-beat.C:
			if away := l.says.Load(); away != nil {
				l.tell(*away)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *fanout) drop(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, one := range f.links {
		if one == l {
			f.links = append(f.links[:i:i], f.links[i+1:]...)
			return
		}
	}
}

func (f *fanout) serve(l *link) error {
	for {
		req, err := l.stream.Recv()
		if err != nil {
			return err
		}
		for _, c := range req.GetCommands() {
			switch c := c.GetCommand().(type) {
			case *fanoutv1.Command_Subscribe:
				f.subscribe(l, c.Subscribe)
			case *fanoutv1.Command_Unsubscribe:
				l.mu.Lock()
				delete(l.subs, c.Unsubscribe.GetHandle())
				l.mu.Unlock()
				f.forgotten <- c.Unsubscribe.GetHandle()
			}
		}
	}
}

func (f *fanout) subscribe(l *link, s *fanoutv1.Subscribe) {
	l.mu.Lock()
	l.subs[s.GetHandle()] = s
	l.mu.Unlock()
	f.mu.Lock()
	on, head := f.on, f.head
	f.mu.Unlock()
	if on == nil || !on(l, s) {
		l.attached(s, head)
	}
	f.subscribed <- s
}

// attached answers a Subscribe.
func (l *link) attached(s *fanoutv1.Subscribe, head uint64) {
	l.send(&fanoutv1.Item{Item: &fanoutv1.Item_Attached{Attached: &fanoutv1.Attached{
		Handle: s.GetHandle(), Partition: partitionOf(s.GetCommunity(), s.GetChannel()), From: cursorAt(head),
	}}})
}

func partitionOf(community int64, channel string) uint32 {
	return placement.Partition(community, channel, placement.DefaultPartitions)
}

func (l *link) send(items ...*fanoutv1.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.stream.Send(&fanoutv1.AttachResponse{Items: items}) // a stream that broke is the test's doing
}

func (l *link) lost(reason fault.Reason, handles ...uint64) {
	l.send(&fanoutv1.Item{Item: &fanoutv1.Item_Lost{Lost: &fanoutv1.Lost{Handles: handles, Reason: reason}}})
}

// bus says whether the node reaches the bus, again and again until hush.
func (l *link) bus(away bool) {
	l.says.Store(&away)
	l.tell(away)
}

// hush lets the node say nothing more of itself.
func (l *link) hush() { l.says.Store(nil) }

func (l *link) tell(away bool) {
	l.send(&fanoutv1.Item{Item: &fanoutv1.Item_Bus{Bus: &fanoutv1.Bus{Away: away}}})
}

func (l *link) watermark(topic *fanoutv1.Subscribe, sequence uint64) {
	l.send(&fanoutv1.Item{Item: &fanoutv1.Item_Watermark{Watermark: &fanoutv1.Watermark{
		Partition: partitionOf(topic.GetCommunity(), topic.GetChannel()), Cursor: cursorAt(sequence),
	}}})
}

// handles returns the handles on a topic.
func (l *link) handles(community int64, channel string) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []uint64
	for h, s := range l.subs {
		if s.GetCommunity() == community && s.GetChannel() == channel {
			all = append(all, h)
		}
	}
	return all
}

// deliver sends an envelope at a position to handles.
func (l *link) deliver(sequence uint64, env *commonv1.Envelope, handles ...uint64) {
	h := env.GetHeader()
	stream := commonv1.Stream_STREAM_EVENTS
	if h.GetKind() >= 20000 && h.GetKind() < 30000 {
		stream = commonv1.Stream_STREAM_EPHEMERAL
	}
	l.send(&fanoutv1.Item{Item: &fanoutv1.Item_Delivery{Delivery: &fanoutv1.Delivery{
		Partition: partitionOf(h.GetCommunity(), h.GetChannel()), Stream: stream, Position: at(sequence),
		Handles: handles, Envelope: env,
	}}})
}

// answer sets what the node does with a Subscribe.
func (f *fanout) answer(on func(*link, *fanoutv1.Subscribe) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
}

func (f *fanout) setHead(sequence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.head = sequence
}

func (f *fanout) link(tb testing.TB) *link {
	tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.NotEmpty(tb, f.links, "no gateway is linked")
	return f.links[len(f.links)-1]
}

// publish delivers an envelope at a position to everybody on its topic, and leaves the head there.
func (f *fanout) publish(sequence uint64, env *commonv1.Envelope) {
	f.mu.Lock()
	links := append([]*link(nil), f.links...)
	f.head = max(f.head, sequence)
	f.mu.Unlock()
	for _, l := range links {
		if handles := l.handles(env.GetHeader().GetCommunity(), env.GetHeader().GetChannel()); len(handles) > 0 {
			l.deliver(sequence, env, handles...)
		}
	}
}

// search answers from hooks.
type search struct {
	named   named
	threads func(*searchv1.DescribeThreadsRequest) []*searchv1.Thread        // set before it is asked for
	thread  func(*searchv1.QueryThreadRequest) *searchv1.QueryThreadResponse // likewise
	searchv1.UnimplementedSearchServiceServer

	mu           sync.Mutex
	hosts        map[string]*searchv1.ResolveCommunityResponse
	down         bool
	resolved     int
	onQuery      func(*searchv1.QueryRequest, func(*searchv1.QueryResponse) error) error
	onCount      func(*searchv1.CountRequest) (uint64, error)
	hll          []byte // of every count
	onList       func(*searchv1.ListModerationRequest) []*searchv1.ModerationEntry
	leastVersion uint64        // of the last CheckAccess
	versions     func() uint64 // of the channel, in answers about access
	cut          bool          // whether answers to queries are
	onAccess     func(pubkey []byte) bool
	onCheck      func() // before an answer about access; may block
	onDecided    func() // when one is decided and not yet given; may block
	onResolved   func() // likewise, for a host
	// behind are hosts as a replica still sees them that is not asked for the version of anything.
	behind    map[string]*searchv1.ResolveCommunityResponse
	queries   []*searchv1.QueryRequest
	accessErr error
	gone      map[int64]bool          // communities that are archived
	owners    map[string]nostr.PubKey // of agents, by their keys
}

func (s *search) ResolveCommunity(_ context.Context, req *searchv1.ResolveCommunityRequest) (*searchv1.ResolveCommunityResponse, error) {
	defer s.after(func() func() { return s.onResolved })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resolved++
	if s.down {
		return nil, fault.New(fault.Overloaded, "")
	}
	c := s.hosts[req.GetHost()]
	if late := s.behind[req.GetHost()]; late != nil && (req.GetCommunity() != late.GetCommunity() || req.GetMinAclVersion() <= late.GetAclVersion()) {
		c = late
	}
	if c == nil {
		return nil, fault.New(fault.NotFound, "")
	}
	return proto.CloneOf(c), nil
}

func (s *search) Query(req *searchv1.QueryRequest, stream grpc.ServerStreamingServer[searchv1.QueryResponse]) error {
	s.mu.Lock()
	on, cut := s.onQuery, s.cut
	s.queries = append(s.queries, req)
	s.mu.Unlock()
	if on != nil {
		return on(req, func(resp *searchv1.QueryResponse) error {
			resp.Cut = cut
			return stream.Send(resp)
		})
	}
	return stream.Send(&searchv1.QueryResponse{Snapshot: &commonv1.Snapshot{}})
}

func (s *search) Count(_ context.Context, req *searchv1.CountRequest) (*searchv1.CountResponse, error) {
	s.mu.Lock()
	on, hll := s.onCount, s.hll
	s.mu.Unlock()
	if on == nil {
		return &searchv1.CountResponse{Hll: hll}, nil
	}
	n, err := on(req)
	return &searchv1.CountResponse{Count: n, Hll: hll}, err
}

func (s *search) CheckAccess(_ context.Context, req *searchv1.CheckAccessRequest) (*searchv1.CheckAccessResponse, error) {
	s.mu.Lock()
	check := s.onCheck
	s.mu.Unlock()
	if check != nil {
		check()
	}
	defer s.after(func() func() { return s.onDecided })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accessErr != nil {
		return nil, s.accessErr
	}
	s.leastVersion = req.GetMinCommunityAclVersion()
	resp := &searchv1.CheckAccessResponse{Gone: s.gone[req.GetCommunity()]}
	if s.versions != nil && req.GetChannel() != "" {
		resp.ChannelAclVersion = s.versions()
	}
	for _, k := range req.GetPubkeys() {
		allowed := req.GetCommunity() == openCommunity // as long as the test says nothing else
		if s.onAccess != nil {
			allowed = s.onAccess(k)
		}
		resp.Allowed = append(resp.Allowed, allowed)
		if !allowed && req.GetCommunity() == openCommunity { // what else keeps a key out of an open one
			resp.Banned = append(resp.Banned, k)
		}
		if owner, ok := s.owners[string(k)]; ok {
			resp.Agents = append(resp.Agents, &searchv1.Agent{Pubkey: k, Owner: owner[:]})
		}
	}
	return resp, nil
}

// after calls a hook without the lock.
func (s *search) after(which func() func()) {
	s.mu.Lock()
	hook := which()
	s.mu.Unlock()
	if hook != nil {
		hook()
	}
}

// set changes the fake under its lock.
func (s *search) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *search) asked() []*searchv1.QueryRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*searchv1.QueryRequest(nil), s.queries...)
}
