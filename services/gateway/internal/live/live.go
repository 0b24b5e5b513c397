package live

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/placement"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/hub"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
	"github.com/apiary-relay/apiary/services/gateway/internal/replica"
)

// Client is what the package calls of a fan-out node; the generated client has it.
type Client interface {
	Attach(ctx context.Context, opts ...grpc.CallOption) (
		grpc.BidiStreamingClient[fanoutv1.AttachRequest, fanoutv1.AttachResponse], error)
}

// Config is how attachments are kept.
type Config struct {
	// Partitions is the number of partitions of the cluster.
	Partitions uint32
	// Patience is how long an attachment may be without a node before it is lost.
	Patience time.Duration
	// SettleTime is how long a node must have been linked before partitions move to it.
	SettleTime time.Duration
	// Spread says when a topic is served by several nodes.
	Spread Spread
}

// invalidPartition is the reason for a node that counts partitions in another way.
const invalidPartition = fault.Invalid

// Live keeps attachments.
type Live struct {
	cfg   Config
	log   *slog.Logger
	m     *metrics.Metrics
	nodes replica.Set[Client]
	seats *hub.Registry[*seat]
	// repeats are shared by the links.
	repeats repeats

	inbox   inbox
	backlog backlog
	book    book
}

// New returns a Live; Run makes it work. Attachments made before wait.
func New(cfg Config, nodes replica.Set[Client], log *slog.Logger, m *metrics.Metrics) *Live {
	return &Live{
		cfg: cfg, nodes: nodes, log: log, m: m,
		seats: hub.NewRegistry[*seat](), repeats: newRepeats(cfg.Partitions),
		inbox: inbox{wake: make(chan struct{}, 1)},
		book:  newBook(),
	}
}

// Admit blocks while the loop, or a node, is far behind with what it was told. Who is about to attach waits here
// first, so that clients that open and close subscriptions faster than nodes take them are held back. The
// error is the cause of ctx's end.
func (lv *Live) Admit(ctx context.Context) error { return lv.backlog.await(ctx) }

// Attach begins to attach a spec and returns at once. The Target hears Attached, or Lost.
func (lv *Live) Attach(spec Spec) *Attachment {
	a := &Attachment{spec: spec, partition: placement.Partition(spec.Community, spec.Channel, lv.cfg.Partitions)}
	lv.tell(op{kind: opAttach, att: a})
	return a
}

// Detach ends an attachment. An event being delivered at this moment may still reach the Target, and a
// Lost may cross it. It never blocks and may be called from a Target's methods.
func (lv *Live) Detach(a *Attachment) { lv.tell(op{kind: opDetach, att: a}) }

// opKind is what the loop is told.
type opKind uint8

const (
	opAttach opKind = iota
	opDetach
	opAttached
	opLost
	opLinkUp
	opLinkLeaving
	opLinkDown
	opBus
)

// op is one message to the loop; which fields are set depends on the kind.
type op struct {
	kind    opKind
	att     *Attachment
	seat    *seat
	link    *link
	reason  fault.Reason
	message string
	away    bool
	done    chan struct{} // closed by the loop when it has handled opLinkDown
}

// inbox is the way to the loop. It is not bounded by itself, because nobody who tells may wait: it holds what
// those who passed Admit do at once, and one word for the end of each attachment.
type inbox struct {
	mu     sync.Mutex
	closed bool
	ops    []op
	wake   chan struct{}
}

func (lv *Live) tell(o op) {
	in := &lv.inbox
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		if o.done != nil {
			close(o.done)
		}
		return
	}
	in.ops = append(in.ops, o)
	in.mu.Unlock()
	lv.backlog.add(1)
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func (in *inbox) take() []op {
	in.mu.Lock()
	defer in.mu.Unlock()
	ops := in.ops
	in.ops = nil
	return ops
}

// tick is how exactly patience and hold-offs are kept.
const tick = 100 * time.Millisecond

// Run keeps links to all nodes and serves attachments until ctx ends.
func (lv *Live) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { replica.Each(ctx, lv.nodes, lv.serve) })
	defer func() {
		// The link goroutines still tell the loop that they are down; nobody listens any more.
		lv.inbox.mu.Lock()
		lv.inbox.closed = true
		ops := lv.inbox.ops
		lv.inbox.ops = nil
		lv.inbox.mu.Unlock()
		for _, o := range ops {
			if o.done != nil {
				close(o.done)
			}
		}
		wg.Wait()
	}()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-lv.inbox.wake:
			for _, o := range lv.inbox.take() {
				lv.handle(ctx, o)
				lv.backlog.add(-1)
			}
		case now := <-ticker.C:
			lv.endSilent(now)
			lv.onTick(ctx, now)
		}
		lv.move(ctx)
	}
}

// serve keeps a link to one node until it has left the set and serves nobody, or ctx ends.
func (lv *Live) serve(ctx context.Context, n replica.Node[Client], left <-chan struct{}) {
	silent := false
	replica.Keep(ctx, left, func() (bool, error) {
		err := lv.link(ctx, n, left, silent)
		silent = errors.Is(err, errSilent)
		return errors.Is(err, errDrained), err
	}, func(err error) {
		lv.log.LogAttrs(ctx, slog.LevelWarn, "fan-out link broke",
			slog.String(telemetry.KeyPeer, n.Name), slog.Any(telemetry.KeyError, err))
	})
}

// link opens one stream and uses it until it ends. When it returns, the loop has placed the seats of
// the link elsewhere. A node that was silent gets nothing to serve before it has said something.
func (lv *Live) link(ctx context.Context, n replica.Node[Client], left <-chan struct{}, silent bool) error {
	linkCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rpc, err := n.Client.Attach(linkCtx)
	if err != nil {
		return err
	}
	l := &link{
		name: n.Name, rpc: rpc, cancel: cancel, wake: make(chan struct{}, 1), backlog: &lv.backlog,
		seats: make(map[uint64]*seat), parts: make(map[uint32]*progress), mute: silent,
	}
	var wg sync.WaitGroup
	wg.Go(func() { cancel(l.send(linkCtx)) })
	wg.Go(func() {
		select {
		case <-left:
			lv.tell(op{kind: opLinkLeaving, link: l})
		case <-linkCtx.Done():
		}
	})
	lv.m.Linked(ctx, 1)
	if !silent {
		lv.tell(op{kind: opLinkUp, link: l})
	}
	err = l.receive(lv)
	cancel(err)
	wg.Wait()
	l.end()
	lv.m.Linked(ctx, -1)
	// The receiver has returned: nothing is delivered through this link any more, and its progress is
	// final.
	down := op{kind: opLinkDown, link: l, done: make(chan struct{})}
	lv.tell(down)
	<-down.done
	return context.Cause(linkCtx)
}
