package fanout

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/nostrpb"
	"github.com/apiary-relay/apiary/pkg/placement"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	community      = 1
	testPartitions = 4
	patience       = 20 * time.Second // for what must come
	silence        = 150 * time.Millisecond
)

var (
	alice = nostr.PubKey{0xa1}
	bob   = nostr.PubKey{0xb0}
)

// cell is a NATS server, a directory of who may read what, and nodes.
type cell struct {
	t         testing.TB
	server    *bustest.Server
	bus       *bus.Bus
	directory *directory
	memory    *rpc.Memory

	mu    sync.Mutex
	nodes int
	ids   uint64
}

func newCell(tb testing.TB, opts ...bustest.Option) *cell {
	tb.Helper()
	server := bustest.New(tb, opts...)
	b := server.Connect(tb)
	bustest.EnsureStreams(tb, b)
	return &cell{t: tb, server: server, bus: b, directory: newDirectory(), memory: rpc.NewMemory()}
}

// node is a running fan-out node behind real gRPC in memory.
type node struct {
	cell    *cell
	service *Service
	conn    *grpc.ClientConn
	cancel  context.CancelFunc
	stopped chan struct{}
}

type nodeOption func(*Config, *Deps)

// node starts a node with short timers.
func (c *cell) node(opts ...nodeOption) *node {
	c.t.Helper()
	c.mu.Lock()
	c.nodes++
	name := fmt.Sprintf("fanout-%d", c.nodes)
	c.mu.Unlock()
	cfg := DefaultConfig()
	cfg.Partitions, cfg.Watermark, cfg.DrainGrace = testPartitions, 20*time.Millisecond, 0
	deps := Deps{Bus: c.bus, Search: c.directory, Log: slog.New(slog.DiscardHandler)}
	for _, opt := range opts {
		opt(&cfg, &deps)
	}
	service, err := New(cfg, deps)
	require.NoError(c.t, err)
	server := rpc.NewServer(rpc.ServerConfig{}, rpc.ServerOptions{Deps: rpc.Deps{Memory: c.memory}, MemoryName: name})
	server.Register(service.Register)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	n := &node{cell: c, service: service, cancel: cancel, stopped: make(chan struct{})}
	var running sync.WaitGroup
	var ready sync.WaitGroup
	ready.Add(2)
	running.Go(func() { noError(c.t, service.Run(ctx, ready.Done)) })
	running.Go(func() { noError(c.t, server.Run(ctx, ready.Done)) })
	go func() { running.Wait(); close(n.stopped) }()
	ready.Wait()
	n.conn, err = rpc.Dial("mem:///"+name, rpc.Deps{Memory: c.memory})
	require.NoError(c.t, err)
	c.t.Cleanup(n.kill)
	return n
}

// noError is require.NoError for goroutines that are not the test's.
func noError(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Errorf("unexpected error: %v", err)
	}
}

// kill ends the node at once; twice is once.
func (n *node) kill() {
	n.cancel()
	<-n.stopped
	_ = n.conn.Close()
}

// gateway is one Attach stream.
type gateway struct {
	t      testing.TB
	stream grpc.BidiStreamingClient[fanoutv1.AttachRequest, fanoutv1.AttachResponse]
	items  chan *fanoutv1.Item // but of those about the bus
	away   chan bool           // what those say
	err    error               // set when items is closed
	cancel context.CancelFunc
}

// attach opens a stream whose items are collected as they come.
func (n *node) attach() *gateway {
	g := n.attachStalled()
	go g.collect()
	return g
}

// attachStalled opens a stream that nobody reads.
func (n *node) attachStalled() *gateway {
	t := n.cell.t
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stream, err := fanoutv1.NewFanoutServiceClient(n.conn).Attach(ctx)
	require.NoError(t, err)
	t.Cleanup(cancel)
	return &gateway{t: t, stream: stream, items: make(chan *fanoutv1.Item, 1<<16), away: make(chan bool, 1<<10), cancel: cancel}
}

func (g *gateway) collect() {
	defer close(g.items)
	for {
		resp, err := g.stream.Recv()
		if err != nil {
			g.err = err
			return
		}
		for _, item := range resp.GetItems() {
			if item.GetBus() != nil {
				select {
				case g.away <- item.GetBus().GetAway():
				default: // nobody listens
				}
				continue
			}
			g.items <- item
		}
	}
}

func (g *gateway) send(commands ...*fanoutv1.Command) {
	g.t.Helper()
	require.NoError(g.t, g.stream.Send(&fanoutv1.AttachRequest{Commands: commands}))
}

type subOption func(*fanoutv1.Subscribe)

func asKeys(keys ...nostr.PubKey) subOption {
	return func(s *fanoutv1.Subscribe) {
		s.Principal = &commonv1.Principal{}
		for _, k := range keys {
			s.Principal.Pubkeys = append(s.Principal.Pubkeys, k[:])
		}
	}
}

func resume(c position.Cursor) subOption {
	return func(s *fanoutv1.Subscribe) { s.ResumeAfter = c.Proto() }
}

func inCommunity(id int64) subOption {
	return func(s *fanoutv1.Subscribe) { s.Community = id }
}

func subscribe(handle uint64, channel string, f nostr.Filter, opts ...subOption) *fanoutv1.Command {
	s := &fanoutv1.Subscribe{
		Handle: handle, Community: community, Channel: channel, Filters: []*commonv1.Filter{nostrpb.FilterToProto(&f)},
		Principal: &commonv1.Principal{Pubkeys: [][]byte{alice[:]}},
	}
	for _, opt := range opts {
		opt(s)
	}
	return &fanoutv1.Command{Command: &fanoutv1.Command_Subscribe{Subscribe: s}}
}

func unsubscribe(handle uint64) *fanoutv1.Command {
	return &fanoutv1.Command{Command: &fanoutv1.Command_Unsubscribe{Unsubscribe: &fanoutv1.Unsubscribe{Handle: handle}}}
}

// next returns the next item that is not a watermark.
func (g *gateway) next() *fanoutv1.Item {
	g.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case item, ok := <-g.items:
			require.True(g.t, ok, "stream ended: %v", g.err)
			if item.GetWatermark() == nil {
				return item
			}
		case <-timeout:
			require.FailNow(g.t, "nothing came")
		}
	}
}

// silent requires that nothing but watermarks comes for a while.
func (g *gateway) silent() {
	g.t.Helper()
	timeout := time.After(silence)
	for {
		select {
		case item, ok := <-g.items:
			require.True(g.t, ok, "stream ended: %v", g.err)
			require.NotNil(g.t, item.GetWatermark(), "unexpected %v", item)
		case <-timeout:
			return
		}
	}
}

// attached returns where the handle is served from.
func (g *gateway) attached(handle uint64) position.Cursor {
	g.t.Helper()
	item := g.next()
	require.NotNil(g.t, item.GetAttached(), "unexpected %v", item)
	require.Equal(g.t, handle, item.GetAttached().GetHandle())
	return position.CursorFromProto(item.GetAttached().GetFrom(), position.Cursor{})
}

func (g *gateway) lost(reason commonv1.Reason, handles ...uint64) {
	g.t.Helper()
	item := g.next()
	require.NotNil(g.t, item.GetLost(), "unexpected %v", item)
	require.Equal(g.t, reason, item.GetLost().GetReason(), item.GetLost().GetMessage())
	require.ElementsMatch(g.t, handles, item.GetLost().GetHandles())
}

// delivered requires the event next, for these handles.
func (g *gateway) delivered(e *event, handles ...uint64) *fanoutv1.Delivery {
	g.t.Helper()
	item := g.next()
	d := item.GetDelivery()
	require.NotNil(g.t, d, "unexpected %v", item)
	require.Equal(g.t, e.envelope.GetHeader().GetId(), d.GetEnvelope().GetHeader().GetId())
	require.Equal(g.t, e.envelope.GetRaw(), d.GetEnvelope().GetRaw())
	require.ElementsMatch(g.t, handles, d.GetHandles())
	return d
}

// event is a fan-out's view of an event: not signed, because ingest has verified it.
type event struct {
	*nostr.Event
	envelope *commonv1.Envelope
	stream   position.Stream
	at       position.Position // once published
}

type eventOption func(*event)

func from(author nostr.PubKey) eventOption { return func(e *event) { e.PubKey = author } }

func ofKind(k nostr.Kind) eventOption { return func(e *event) { e.Kind = k } }

func tagged(elements ...string) eventOption {
	return func(e *event) { e.Tags = append(e.Tags, elements) }
}

func content(s string) eventOption { return func(e *event) { e.Content = s } }

func versions(community, channel uint64) eventOption {
	return func(e *event) {
		e.envelope.Header.CommunityAclVersion, e.envelope.Header.ChannelAclVersion = community, channel
	}
}

// judged sets when ingest looked who may do what.
func judged(at int64) eventOption {
	return func(e *event) { e.envelope.Header.JudgedAt = at }
}

func traced(parent string) eventOption {
	return func(e *event) { e.envelope.Header.Traceparent = parent }
}

func ofCommunity(id int64) eventOption {
	return func(e *event) { e.envelope.Header.Community = id }
}

// event makes an event of a channel, "" for global. Its partition is the topic's.
func (c *cell) event(channel string, opts ...eventOption) *event {
	c.mu.Lock()
	c.ids++
	id := c.ids
	c.mu.Unlock()
	e := &event{Event: &nostr.Event{PubKey: bob, Kind: nostr.KindChat, CreatedAt: 1_700_000_000}}
	binary.BigEndian.PutUint64(e.ID[:], id)
	e.envelope = &commonv1.Envelope{Header: &commonv1.Header{Community: community, Channel: channel}}
	for _, opt := range opts {
		opt(e)
	}
	h := e.envelope.Header
	h.Id, h.Pubkey, h.Kind, h.CreatedAt = e.ID[:], e.PubKey[:], uint32(e.Kind), e.CreatedAt
	h.Partition = placement.Partition(h.GetCommunity(), channel, testPartitions)
	e.envelope.Raw = e.AppendJSON(nil)
	if e.Kind.IsEphemeral() {
		e.stream = position.Ephemeral
	}
	return e
}

// publish publishes events of one partition and stream in one message.
func (c *cell) publish(events ...*event) {
	c.t.Helper()
	c.publishAt(events[0].envelope.GetHeader().GetPartition(), events...)
}

func (c *cell) publishAt(partition uint32, events ...*event) {
	c.t.Helper()
	require.NoError(c.t, c.tryPublish(partition, events...))
}

// tryPublish is for any goroutine.
func (c *cell) tryPublish(partition uint32, events ...*event) error {
	batch := &busv1.EnvelopeBatch{}
	for _, e := range events {
		batch.Envelopes = append(batch.Envelopes, e.envelope)
	}
	payload, err := proto.Marshal(batch)
	if err != nil {
		return err
	}
	stream := events[0].stream
	ack, err := c.bus.Publish(c.t.Context(), stream.Subject(partition), "", payload)
	if err != nil {
		return err
	}
	state, err := c.bus.StreamState(c.t.Context(), stream.Name())
	if err != nil {
		return err
	}
	for i, e := range events {
		e.at = position.Position{Epoch: state.Epoch, Sequence: ack.Sequence, Index: uint32(i)}
	}
	return nil
}

func (c *cell) epoch(s position.Stream) uint64 {
	c.t.Helper()
	state, err := c.bus.StreamState(c.t.Context(), s.Name())
	require.NoError(c.t, err)
	return state.Epoch
}

// ended waits for the end of the stream and returns its error, nil for a clean end.
func (g *gateway) ended() error {
	g.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case _, ok := <-g.items:
			if ok {
				continue
			}
			if errors.Is(g.err, io.EOF) {
				return nil
			}
			return g.err
		case <-timeout:
			require.FailNow(g.t, "stream did not end")
		}
	}
}
