package session

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/semaphore"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/admit"
	"github.com/apiary-relay/apiary/services/gateway/internal/conn"
	"github.com/apiary-relay/apiary/services/gateway/internal/cork"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
)

// Session is one connection's state.
type Session struct {
	srv       *Server
	conn      *conn.Conn
	ctx       context.Context // the connection's root; ends with it
	id        uint64
	community *Community
	hosts     atomic.Pointer[[]string] // of the community as is known now, which an AUTH event may name
	client    *admit.Client
	began     time.Time
	auth      authState
	slots     chan struct{} // a place for each EVENT in flight; made with the first one, as most connections only listen
	trial     chan struct{} // another one for each of a client that is not trusted; likewise
	trusted   atomic.Bool   // the last event judged was not invalid
	jobs      jobs
	values    atomic.Int64        // cost of the subscriptions that have not ended
	parked    atomic.Int64        // bytes of stored events that the client has not taken
	queries   *semaphore.Weighted // its share of the process's stored queries

	mu     sync.Mutex
	subs   map[string]*subscription
	lagged []*subscription // to be closed when there is room
	counts int
	left   bool // the connection has ended, or must
}

// Start begins a session on c. join is called once frames may be sent; when it reports false the process is draining and
// the session ends at once. ended is called when the connection has ended and nothing of the session is left.
func (srv *Server) Start(
	c *conn.Conn, client *admit.Client, community *Community, join func(hub.Member) bool, ended func(*Session),
) {
	s := &Session{
		srv: srv, conn: c, ctx: c.Context(), id: srv.lastID.Add(1), community: community, client: client,
		began:   time.Now(),
		queries: semaphore.NewWeighted(srv.cfg.ConnQueries),
		subs:    make(map[string]*subscription),
	}
	s.jobs.init(srv.cfg.Workers, max(srv.cfg.MaxSubs, srv.cfg.Workers)+srv.cfg.MaxCounts)
	s.Rehost(community.Hosts)
	s.auth.challenge = newChallenge()
	s.conn.Control(cork.Build(80, func(b []byte) []byte { return wire.AppendAuth(b, s.auth.challenge) }))
	s.startAuthTimer()
	if !join(s) {
		s.Restart()
	}
	s.conn.Start(s, func() {
		s.end()
		ended(s)
	})
}

// end ends what the session has under way, and waits for it.
func (s *Session) end() {
	s.closeAll()
	s.leave()
	s.jobs.wait()
	s.srv.Log.LogAttrs(s.ctx, slog.LevelDebug, "connection closed",
		slog.Uint64(telemetry.KeyConn, s.id), slog.String("cause", s.conn.Cause()))
}

// leave takes the session's keys off the roster, and those that are admitted later are not put on it.
func (s *Session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveLocked()
}

// leaveLocked is leave, once. Called with mu held.
func (s *Session) leaveLocked() {
	if s.left {
		return
	}
	s.left = true
	s.stopAuthTimer()
	for _, key := range s.Principal().GetPubkeys() {
		s.srv.Roster.Leave(s.community.ID, nostr.PubKey(key))
	}
}

// Community returns the surrogate key of the session's tenant and whether it was closed at connection.
func (s *Session) Community() Community { return *s.community }

// Rehost sets which hosts an AUTH event may name from now on: those of the community change, and whoever gets a host that it had could show
// what is signed there.
func (s *Session) Rehost(hosts []string) { s.hosts.Store(&hosts) }

// Principal returns the authenticated keys, nil if there are none. It must not be changed.
func (s *Session) Principal() *commonv1.Principal { return s.auth.principal.Load() }

// Restart closes the connection with 1012 after what is queued has been sent.
func (s *Session) Restart() {
	s.conn.Close(websocket.StatusServiceRestart, "service restart", metrics.OutcomeRestart)
}

// Kill ends the connection at once.
func (s *Session) Kill() { s.conn.Kill() }

// Addr returns the client's address, which is not valid if it could not be told.
func (s *Session) Addr() netip.Addr { return s.client.Addr() }

// Revoke closes the connection because its client may not use the community any more, and its subscriptions first, so
// that the client knows what it will not get. Its keys are not present any more, however long the client takes to go.
func (s *Session) Revoke(reason string) {
	s.mu.Lock()
	s.leaveLocked()
	for id, sub := range s.subs {
		sub.end()
		s.closed(id, reason)
	}
	clear(s.subs)
	s.mu.Unlock()
	s.conn.Control(cork.Build(64, func(b []byte) []byte { return wire.AppendNotice(b, reason) }))
	s.conn.Close(websocket.StatusPolicyViolation, reason, metrics.OutcomePolicy)
}

// Message handles one frame. It implements conn.Handler.
func (s *Session) Message(text bool, msg []byte) {
	if !text {
		s.srv.Metrics.FrameIn(s.ctx, wire.LabelUnknown)
		s.client.Offend(time.Now())
		s.notice(fault.FrameText(fault.Invalid, "binary frames are not accepted"))
		return
	}
	start := time.Now()
	decoded, ok := s.srv.mayDecode(s.ctx, len(msg))
	if !ok {
		return // nobody is left to answer
	}
	f, err := wire.Decode(msg, s.srv.cfg.Wire)
	decoded()
	s.srv.Metrics.FrameIn(s.ctx, f.Label)
	if err != nil {
		s.malformed(err, start)
		return
	}
	if s.exceeds(&f, start) {
		return
	}
	switch f.Label {
	case wire.LabelEvent:
		s.event(&f, start)
	case wire.LabelReq:
		s.req(&f, start)
	case wire.LabelCount:
		s.count(&f, start)
	case wire.LabelClose:
		s.close(f.SubID)
	case wire.LabelAuth:
		s.authenticate(&f)
	default:
		s.notice(fault.FrameText(fault.Invalid, "unknown message type"))
	}
}

// decodeEvent decodes the event of a frame that has been decoded. The error is about the event, or the cause of the connection's end.
func (s *Session) decodeEvent(f *wire.Frame) (*nostr.Event, error) {
	decoded, ok := s.srv.mayDecode(s.ctx, len(f.RawEvent))
	if !ok {
		return nil, context.Cause(s.ctx)
	}
	defer decoded()
	return wire.DecodeEvent(f.RawEvent, s.srv.cfg.Wire)
}

// TooBig answers a frame that exceeds the limit, as far as its beginning says to whom the answer goes.
// It implements conn.Handler; the connection is closed after it.
func (s *Session) TooBig(begin []byte) {
	_, err := wire.Decode(begin, s.srv.cfg.Wire)
	var de *wire.DecodeError
	if !errors.As(err, &de) || (!de.HaveID && de.SubID == "") {
		s.client.Offend(time.Now())
		s.notice(fault.FrameText(fault.Invalid, "frame too large"))
		return
	}
	s.malformed(err, time.Now())
}

// malformed answers a frame that could not be decoded: to the event or the subscription if it could be
// read, else as a NOTICE.
func (s *Session) malformed(err error, start time.Time) {
	reason, de := fault.Invalid, new(wire.DecodeError)
	if !errors.As(err, &de) || !de.Unsupported {
		s.client.Offend(start)
	}
	if !errors.As(err, &de) {
		s.notice(fault.FrameText(fault.Invalid, ""))
		return
	}
	if de.Unsupported {
		reason = fault.Unsupported
	}
	switch {
	case de.HaveID && (de.Label == wire.LabelEvent || de.Label == wire.LabelAuth):
		s.answer(de.EventID, reason, de.Msg, start)
	case de.SubID != "" && de.Label == wire.LabelReq:
		s.refuse(de.SubID, fault.FrameText(reason, de.Msg))
	case de.SubID != "" && de.Label == wire.LabelCount:
		s.closed(de.SubID, fault.FrameText(reason, de.Msg))
	default:
		s.notice(fault.FrameText(reason, de.Msg))
	}
}

// Room closes the subscriptions that lagged, now that the client has read. It implements conn.Handler.
func (s *Session) Room() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.lagged {
		if s.subs[sub.id] == sub { // else the client has closed or replaced it
			delete(s.subs, sub.id)
			s.closed(sub.id, lagged)
		}
	}
	s.lagged = nil
}

func (s *Session) notice(text string) {
	s.conn.Control(cork.Build(len(text)+16, func(b []byte) []byte { return wire.AppendNotice(b, text) }))
}

func (s *Session) closed(subID, text string) {
	s.conn.Control(cork.Build(len(subID)+len(text)+16, func(b []byte) []byte {
		return wire.AppendClosed(b, subID, text)
	}))
}

// answer sends the OK of an EVENT or AUTH.
func (s *Session) answer(id nostr.ID, reason fault.Reason, msg string, start time.Time) {
	s.ok(id, reason, msg)
	s.srv.Metrics.OK(s.ctx, reason, time.Since(start).Seconds())
}

func (s *Session) ok(id nostr.ID, reason fault.Reason, msg string) {
	text := fault.FrameText(reason, msg)
	s.conn.Control(cork.Build(len(text)+88, func(b []byte) []byte {
		return wire.AppendOK(b, id, fault.Succeeded(reason), text)
	}))
}

// jobs runs REQs and COUNTs of a connection, some at a time and the others in order after them.
type jobs struct {
	max   int
	slots chan struct{} // a place for each job that runs or queues
	wg    sync.WaitGroup

	mu      sync.Mutex
	running int
	queue   []func()
}

func (j *jobs) init(running, total int) {
	j.max, j.slots = running, make(chan struct{}, total)
}

// add starts or queues a job. It blocks while as many wait as may, which only happens to a client that
// replaces subscriptions faster than they open.
func (j *jobs) add(ctx context.Context, do func()) {
	select {
	case j.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.running >= j.max {
		j.queue = append(j.queue, do)
		return
	}
	j.running++
	j.wg.Go(func() { j.work(do) })
}

func (j *jobs) work(do func()) {
	for {
		do()
		<-j.slots
		j.mu.Lock()
		if len(j.queue) == 0 {
			j.running--
			j.queue = nil
			j.mu.Unlock()
			return
		}
		do = j.queue[0]
		j.queue[0] = nil
		j.queue = j.queue[1:]
		j.mu.Unlock()
	}
}

// inHand returns how many jobs run or queue.
func (j *jobs) inHand() int { return len(j.slots) }

func (j *jobs) wait() { j.wg.Wait() }

// authState is who has authenticated. principal is replaced, never changed.
type authState struct {
	challenge string
	principal atomic.Pointer[commonv1.Principal] // stored with Session.mu held
	// agents are the keys of the principal that are agents, with their owners; nil without any. It is replaced, never
	// changed, with Session.mu held.
	agents atomic.Pointer[map[nostr.PubKey]nostr.PubKey]
	guests []nostr.PubKey // guarded by Session.mu
	timer  *time.Timer    // guarded by Session.mu; of the first authentication, nil without one or after it
	asked  int            // how often a guest was asked about; only the read loop touches it
	failed bool           // only the read loop touches it
}
