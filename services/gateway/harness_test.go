package gateway_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/rpc"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

const (
	openHost   = "open.example"
	closedHost = "closed.example"

	openCommunity   = 11
	closedCommunity = 12

	// patience is for what must happen; long, because the machine may be busy.
	patience = 20 * time.Second
	// silence is how long a test listens for what must not happen.
	silence = 150 * time.Millisecond
)

// world is one gateway with what it calls.
type world struct {
	tb     testing.TB
	memory *rpc.Memory
	stops  map[string]func()

	ingests []*ingest
	fanouts []*fanout
	search  *search
	queue   *queue
	// moderation is what all ingest replicas say about moderation and tokens.
	moderation *moderation
	// agents is what all ingest replicas say about attestations.
	agents *agents
	roster *roster

	control gateway.Control // nil unless an option sets it
	service *gateway.Service
	addr    string
}

// option changes the configuration or the fakes before the start.
type option func(*world, *gateway.Config)

func ingests(n int) option {
	return func(w *world, _ *gateway.Config) {
		w.ingests = nil
		for range n {
			w.ingests = append(w.ingests, &ingest{})
		}
	}
}

func fanouts(n int) option {
	return func(w *world, _ *gateway.Config) {
		w.fanouts = nil
		for range n {
			w.fanouts = append(w.fanouts, newFanout())
		}
	}
}

func with(change func(*gateway.Config)) option {
	return func(_ *world, c *gateway.Config) { change(c) }
}

// newWorld starts a gateway and, unless the options say otherwise, one replica of each service.
func newWorld(tb testing.TB, opts ...option) *world {
	tb.Helper()
	w := &world{
		tb: tb, memory: rpc.NewMemory(), stops: make(map[string]func()),
		ingests: []*ingest{{}}, fanouts: []*fanout{newFanout()}, moderation: &moderation{}, agents: &agents{}, roster: &roster{sessions: make(chan *ingestv1.Session, 16)}, queue: &queue{reports: make(chan *searchv1.ListReportsRequest, 16)},
		search: &search{hosts: map[string]*searchv1.ResolveCommunityResponse{
			openHost:   {Community: openCommunity, Name: "Open", Description: "For everybody", Icon: "https://open.example/icon.png", Hosts: []string{openHost}},
			closedHost: {Community: closedCommunity, Name: "Closed", Closed: true, Hosts: []string{closedHost}},
		}},
	}
	cfg := gateway.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	for _, o := range opts {
		o(w, &cfg)
	}
	deps := gateway.Deps{Control: w.control, Version: "test"}
	var targets []string
	for i, s := range w.ingests {
		targets = append(targets, w.start(fmt.Sprintf("ingest-%d", i), w.ingestServer(s)))
	}
	deps.Ingest = w.peers(targets)
	targets = nil
	for i := range w.fanouts {
		targets = append(targets, w.startFanout(i))
	}
	deps.Fanout = w.peers(targets)
	deps.Search = w.peers([]string{w.start("search-0", func(r grpc.ServiceRegistrar) {
		searchv1.RegisterSearchServiceServer(r, w.search)
		searchv1.RegisterModerationServiceServer(r, w.queue)
	})})

	var err error
	w.service, err = gateway.New(cfg, deps)
	require.NoError(tb, err)
	w.run("gateway", w.service.Run)
	w.addr = w.service.Addr().String()
	return w
}

func (w *world) ingestServer(s *ingest) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) {
		ingestv1.RegisterIngestServiceServer(r, s)
		ingestv1.RegisterModerationServiceServer(r, w.moderation)
		ingestv1.RegisterOverlayServiceServer(r, overlays{})
		ingestv1.RegisterAgentServiceServer(r, w.agents)
		ingestv1.RegisterPresenceServiceServer(r, w.roster)
	}
}

func (w *world) startFanout(i int) string {
	return w.start(fmt.Sprintf("fanout-%d", i), func(r grpc.ServiceRegistrar) {
		fanoutv1.RegisterFanoutServiceServer(r, w.fanouts[i])
	})
}

// start runs a gRPC server in memory and returns its target.
func (w *world) start(name string, register func(grpc.ServiceRegistrar)) string {
	server := rpc.NewServer(rpc.ServerConfig{}, rpc.ServerOptions{Deps: rpc.Deps{Memory: w.memory}, MemoryName: name})
	server.Register(register)
	w.run(name, server.Run)
	return "mem:///" + name
}

// peers runs a set of replicas and waits until all are live.
func (w *world) peers(targets []string) *rpc.Peers {
	if len(targets) == 0 {
		targets = []string{"mem:///nobody"}
	}
	// A process that gets no processor for a second answers no health check meanwhile, and its links would be cut.
	p, err := rpc.NewPeers(rpc.PeersConfig{Targets: targets, PingInterval: 50 * time.Millisecond, PingTimeout: patience}, rpc.Deps{Memory: w.memory})
	require.NoError(w.tb, err)
	w.run("peers of "+targets[0], p.Run)
	if targets[0] != "mem:///nobody" {
		ctx, cancel := context.WithTimeout(w.tb.Context(), patience)
		defer cancel()
		require.NoError(w.tb, p.Await(ctx, len(targets)))
	}
	return p
}

// run runs a service until the test ends or stop is called with its name.
func (w *world) run(name string, run func(context.Context, func()) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.tb.Context()))
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- run(ctx, sync.OnceFunc(func() { close(ready) })) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		require.NoError(w.tb, err, name)
	case <-time.After(patience):
		cancel()
		require.FailNow(w.tb, "not ready", name)
	}
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(w.tb, err, name)
		case <-time.After(patience):
			require.FailNow(w.tb, "did not stop", name)
		}
	})
	w.stops[name] = stop
	w.tb.Cleanup(stop)
}

func (w *world) stop(name string) { w.stops[name]() }

// envelope returns a signed event as fan-out delivers it, committed by the transaction xid.
func envelope(tb testing.TB, channel string, xid uint64, opts ...nostrtest.Option) *commonv1.Envelope {
	tb.Helper()
	if channel != "" {
		opts = append(opts, nostrtest.Channel(channel))
	}
	ev := nostrtest.Event(tb, "alice", opts...)
	return &commonv1.Envelope{
		Raw: nostrtest.Raw(ev),
		Header: &commonv1.Header{
			Id: ev.ID[:], Pubkey: ev.PubKey[:], CreatedAt: ev.CreatedAt, Kind: uint32(ev.Kind),
			Community: openCommunity, Channel: channel, Partition: partitionOf(openCommunity, channel),
			CommitXid: xid, DatabaseId: 1,
		},
	}
}

// another returns an envelope like env for another event, as far as the gateway looks: its id in the header.
func another(env *commonv1.Envelope, n int) *commonv1.Envelope {
	env = proto.CloneOf(env)
	binary.BigEndian.PutUint64(env.GetHeader().GetId(), uint64(n))
	return env
}

// client is a Nostr client on a real socket.
type client struct {
	t         testing.TB
	ws        *websocket.Conn
	host      string
	challenge string
	frames    chan wire.RelayFrame // closed when the connection has ended
	err       error                // why, once frames is closed
}

// dial connects and takes the challenge.
func (w *world) dial(host string) *client {
	w.tb.Helper()
	c, resp, err := w.tryDial(host)
	if resp != nil && resp.Body != nil {
		defer resp.Body.Close()
	}
	require.NoError(w.tb, err)
	f := c.next()
	require.Equal(w.tb, wire.LabelAuth, f.Label)
	require.Len(w.tb, f.Message, 64)
	c.challenge = f.Message
	return c
}

func (w *world) tryDial(host string) (*client, *http.Response, error) {
	ctx, cancel := context.WithTimeout(w.tb.Context(), patience)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, "ws://"+w.addr, &websocket.DialOptions{Host: host})
	if err != nil {
		return nil, resp, err
	}
	ws.SetReadLimit(-1)
	c := &client{t: w.tb, ws: ws, host: host, frames: make(chan wire.RelayFrame, 1<<16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(c.frames)
		for {
			_, b, err := ws.Read(context.WithoutCancel(w.tb.Context()))
			if err != nil {
				c.err = err
				return
			}
			f, err := wire.DecodeRelay(b)
			if err != nil {
				c.err = fmt.Errorf("decode %q: %w", b, err)
				return
			}
			f.RawEvent = append([]byte(nil), f.RawEvent...)
			c.frames <- f
		}
	}()
	w.tb.Cleanup(func() {
		ws.CloseNow()
		<-done
	})
	return c, resp, nil
}

// login connects and authenticates with the keys of names.
func (w *world) login(host string, names ...string) *client {
	w.tb.Helper()
	c := w.dial(host)
	for _, name := range names {
		c.auth(name)
		f := c.next()
		require.True(w.tb, f.OK, f.Message)
	}
	return c
}

// auth answers the challenge with the key of name.
func (c *client) auth(name string) *nostr.Event {
	c.t.Helper()
	ev := nostrtest.Auth(c.t, name, c.challenge, "ws://"+c.host+"/", time.Now().Unix())
	c.send(string(wire.AppendClientAuth(nil, nostrtest.Raw(ev))))
	return ev
}

func (c *client) send(text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	require.NoError(c.t, c.ws.Write(ctx, websocket.MessageText, []byte(text)))
}

// publish sends an EVENT.
func (c *client) publish(ev *nostr.Event) {
	c.t.Helper()
	c.send(string(wire.AppendClientEvent(nil, nostrtest.Raw(ev))))
}

// next returns the next frame.
func (c *client) next() wire.RelayFrame {
	c.t.Helper()
	select {
	case f, ok := <-c.frames:
		if !ok {
			require.NoError(c.t, c.err, "connection ended")
		}
		return f
	case <-time.After(patience):
		require.FailNow(c.t, "no frame")
		return wire.RelayFrame{}
	}
}

// expect takes the next frame, which must have a label.
func (c *client) expect(label wire.Label) wire.RelayFrame {
	c.t.Helper()
	f := c.next()
	require.Equal(c.t, label.String(), f.Label.String(), "%s %s", f.SubID, f.Message)
	return f
}

// closed waits for the end of the connection and returns its code and reason.
func (c *client) closed() (websocket.StatusCode, string) {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-c.frames:
			if !ok {
				var ce websocket.CloseError
				if !errors.As(c.err, &ce) {
					return -1, c.err.Error()
				}
				return ce.Code, ce.Reason
			}
		case <-deadline:
			require.FailNow(c.t, "connection stays open")
		}
	}
}

// quiet requires that nothing comes for a while.
func (c *client) quiet() {
	c.t.Helper()
	select {
	case f, ok := <-c.frames:
		require.False(c.t, ok, "unexpected frame %s %s %s", f.Label, f.SubID, f.Message)
		require.NoError(c.t, c.err, "connection ended")
	case <-time.After(silence):
	}
}

func take[T any](tb testing.TB, ch <-chan T) T {
	tb.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		require.FailNow(tb, "nothing came")
		var zero T
		return zero
	}
}

// request makes an HTTP request to the gateway under a host.
func (w *world) request(method, host, path string, header http.Header) (status int, head http.Header, body string) {
	w.tb.Helper()
	return w.requestBody(method, host, path, header, "")
}

// requestBody makes an HTTP request with a body.
func (w *world) requestBody(method, host, path string, header http.Header, content string) (status int, head http.Header, body string) {
	w.tb.Helper()
	req, err := http.NewRequestWithContext(w.tb.Context(), method, "http://"+w.addr+path, strings.NewReader(content))
	require.NoError(w.tb, err)
	req.Host = host
	for k, v := range header {
		req.Header[k] = v
	}
	tr := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: patience}).DialContext}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	require.NoError(w.tb, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(w.tb, err)
	return resp.StatusCode, resp.Header, string(b)
}

func idOf(tb testing.TB, env *commonv1.Envelope) string {
	tb.Helper()
	var ev struct {
		ID string `json:"id"`
	}
	require.NoError(tb, json.Unmarshal(env.GetRaw(), &ev))
	return ev.ID
}
