package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// patience bounds every wait of a test. It is long because two busy cores are slow, not because anything
// should take that long.
const patience = 60 * time.Second

// errGone is the end of a connection.
var errGone = errors.New("connection is gone")

// Client is a Nostr client over a real socket, authenticated as one key. Its reader goroutine routes
// frames to whoever waits for them; the methods may be called by any goroutine.
type Client struct {
	tb   testing.TB
	name string
	ws   *websocket.Conn
	gone chan struct{} // closed by the reader at the end
	err  error         // why, readable after gone

	mu        sync.Mutex
	verdicts  map[nostr.ID]chan Verdict       // guarded by mu
	subs      map[string]chan wire.RelayFrame // guarded by mu
	nextSub   int                             // guarded by mu
	challenge chan string
}

// Verdict is an OK.
type Verdict struct {
	OK      bool
	Message string
}

// Dial connects to url and authenticates as the nostrtest key of this name; the test fails if it cannot.
// The connection is closed at the end of the test.
func Dial(tb testing.TB, url, name string) *Client {
	tb.Helper()
	c := Connect(tb, url, name)
	verdict := c.Authenticate(url)
	require.True(tb, verdict.OK, "authenticate %s: %s", name, verdict.Message)
	return c
}

// DialHost is Dial for the community of another host: url says where to connect, host what to ask for.
func DialHost(tb testing.TB, url, host, name string) *Client {
	tb.Helper()
	c := ConnectHost(tb, url, host, name)
	verdict := c.Authenticate("ws://" + host)
	require.True(tb, verdict.OK, "authenticate %s at %s: %s", name, host, verdict.Message)
	return c
}

// Connect is Dial without authentication.
func Connect(tb testing.TB, url, name string) *Client {
	tb.Helper()
	return ConnectHost(tb, url, "", name)
}

// ConnectHost is DialHost without authentication.
func ConnectHost(tb testing.TB, url, host, name string) *Client {
	tb.Helper()
	c, err := connect(tb.Context(), tb, url, host, name)
	require.NoError(tb, err)
	return c
}

// DialAgain is Dial for a relay that may be away: it tries until it is back.
func DialAgain(tb testing.TB, url, name string) *Client {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	c, err := dialAgain(ctx, tb, url, name)
	require.NoError(tb, err)
	return c
}

func dialAgain(ctx context.Context, tb testing.TB, url, name string) (*Client, error) {
	tb.Helper()
	for {
		c, err := connect(ctx, tb, url, "", name)
		if err == nil {
			var verdict Verdict
			if verdict, err = c.authenticate(ctx, url); err == nil && verdict.OK {
				return c, nil
			}
			c.Close()
		}
		pause(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the relay does not come back: %w", err)
		}
	}
}

// pause waits a moment between two tries.
func pause(ctx context.Context) {
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func connect(ctx context.Context, tb testing.TB, url, host, name string) (*Client, error) {
	tb.Helper()
	dialing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ws, _, err := websocket.Dial(dialing, url, &websocket.DialOptions{Host: host}) //nolint:bodyclose // the library says that it needs no closing
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(1 << 20)
	c := &Client{
		tb: tb, name: name, ws: ws,
		gone:      make(chan struct{}),
		verdicts:  map[nostr.ID]chan Verdict{},
		subs:      map[string]chan wire.RelayFrame{},
		challenge: make(chan string, 1),
	}
	// The end of the test closes the connection itself, in its clean-up.
	go c.read(context.WithoutCancel(ctx))
	tb.Cleanup(c.Close)
	return c, nil
}

// Close ends the connection and waits for its reader.
func (c *Client) Close() {
	_ = c.ws.CloseNow() // an already closed one fails
	<-c.gone
}

// Gone is closed when the connection has ended.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Ended waits for the relay to close the connection, and returns with which code and reason it did.
func (c *Client) Ended() (websocket.StatusCode, string) {
	c.tb.Helper()
	select {
	case <-c.gone:
	case <-time.After(patience):
		require.FailNow(c.tb, "connection stays open", c.name)
	}
	var end websocket.CloseError
	require.ErrorAs(c.tb, c.err, &end)
	return end.Code, end.Reason
}

// read routes frames until the connection ends.
func (c *Client) read(ctx context.Context) {
	defer close(c.gone)
	for {
		_, data, err := c.ws.Read(ctx)
		if err != nil {
			c.err = fmt.Errorf("%w: %w", errGone, err)
			return
		}
		frame, err := wire.DecodeRelay(data)
		if err != nil {
			c.err = fmt.Errorf("%w: relay sent %q: %w", errGone, data, err)
			_ = c.ws.CloseNow()
			return
		}
		c.route(frame)
	}
}

func (c *Client) route(frame wire.RelayFrame) {
	switch frame.Label {
	case wire.LabelAuth:
		select {
		case c.challenge <- frame.Message:
		default:
		}
	case wire.LabelOK:
		c.mu.Lock()
		verdict := c.verdicts[frame.EventID]
		delete(c.verdicts, frame.EventID)
		c.mu.Unlock()
		if verdict != nil {
			verdict <- Verdict{OK: frame.OK, Message: frame.Message}
		}
	case wire.LabelNotice:
		c.tb.Logf("%s got NOTICE %s", c.name, frame.Message)
	default:
		c.mu.Lock()
		frames := c.subs[frame.SubID]
		c.mu.Unlock()
		if frames != nil {
			frames <- frame
		}
	}
}

func (c *Client) write(ctx context.Context, frame []byte) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.ws.Write(ctx, websocket.MessageText, frame)
}

// Authenticate answers the relay's challenge for the relay at url.
func (c *Client) Authenticate(url string) Verdict {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	verdict, err := c.authenticate(ctx, url)
	require.NoError(c.tb, err)
	return verdict
}

func (c *Client) authenticate(ctx context.Context, url string) (Verdict, error) {
	select {
	case challenge := <-c.challenge:
		event := nostrtest.Auth(c.tb, c.name, challenge, url, time.Now().Unix())
		return c.submit(ctx, event.ID, wire.AppendClientAuth(nil, nostrtest.Raw(event)))
	case <-c.gone:
		return Verdict{}, c.err
	case <-ctx.Done():
		return Verdict{}, errors.New("no challenge came")
	}
}

func (c *Client) submit(ctx context.Context, id nostr.ID, frame []byte) (Verdict, error) {
	verdict := make(chan Verdict, 1)
	c.mu.Lock()
	c.verdicts[id] = verdict
	c.mu.Unlock()
	if err := c.write(ctx, frame); err != nil {
		return Verdict{}, fmt.Errorf("%w: %w", errGone, err)
	}
	select {
	case v := <-verdict:
		return v, nil
	case <-c.gone:
		return Verdict{}, c.err
	case <-ctx.Done():
		return Verdict{}, fmt.Errorf("no OK came for %s", id)
	}
}

// Event signs an event as the client's key, made now.
func (c *Client) Event(opts ...nostrtest.Option) *nostr.Event {
	c.tb.Helper()
	return nostrtest.Event(c.tb, c.name, append([]nostrtest.Option{nostrtest.CreatedAt(time.Now().Unix())}, opts...)...)
}

// Publish sends an event and returns the relay's verdict.
func (c *Client) Publish(event *nostr.Event) Verdict {
	c.tb.Helper()
	verdict, err := c.TryPublish(event)
	require.NoError(c.tb, err)
	return verdict
}

// TryPublish is Publish for a relay that may go away; the error says that it did, without a verdict.
func (c *Client) TryPublish(event *nostr.Event) (Verdict, error) {
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	return c.submit(ctx, event.ID, wire.AppendClientEvent(nil, nostrtest.Raw(event)))
}

// Accept publishes an event that the relay must accept, and returns it.
func (c *Client) Accept(opts ...nostrtest.Option) *nostr.Event {
	c.tb.Helper()
	event := c.Event(opts...)
	verdict := c.Publish(event)
	require.True(c.tb, verdict.OK, "publish: %s", verdict.Message)
	return event
}

// Persist publishes an event again and again while the relay has no verdict or says to try again, dialling
// url anew when the connection is gone. It returns the connection to go on with. It may be called from any
// goroutine.
func (c *Client) Persist(url func() string, event *nostr.Event) (*Client, error) {
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	for {
		verdict, err := c.TryPublish(event)
		switch {
		case err == nil && verdict.OK:
			return c, nil
		case errors.Is(err, errGone):
			if c, err = dialAgain(ctx, c.tb, url(), c.name); err != nil {
				return nil, err
			}
		case err == nil && !strings.HasPrefix(verdict.Message, "error:"):
			return nil, fmt.Errorf("the relay refuses the event: %s", verdict.Message)
		}
		pause(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the event was never accepted: %s: %w", verdict.Message, err)
		}
	}
}

// Sub is an open subscription.
type Sub struct {
	// ID is its subscription id, Stored its stored events in the order they came.
	ID     string
	Stored []*nostr.Event

	client *Client
	frames chan wire.RelayFrame
}

// Subscribe sends a REQ and waits for its EOSE.
func (c *Client) Subscribe(filters ...nostr.Filter) *Sub {
	c.tb.Helper()
	s, closed, err := c.request(filters)
	require.NoError(c.tb, err)
	require.Empty(c.tb, closed, "CLOSED")
	return s
}

// Refused sends a REQ that the relay must refuse, and returns the reason.
func (c *Client) Refused(filters ...nostr.Filter) string {
	c.tb.Helper()
	_, closed, err := c.request(filters)
	require.NoError(c.tb, err)
	require.NotEmpty(c.tb, closed, "the relay answered")
	return closed
}

// Query returns the stored events that match.
func (c *Client) Query(filters ...nostr.Filter) []*nostr.Event {
	c.tb.Helper()
	s := c.Subscribe(filters...)
	s.Close()
	return s.Stored
}

// TryQuery is Query where the relay may refuse or go away; the error says that it did.
func (c *Client) TryQuery(filters ...nostr.Filter) ([]*nostr.Event, error) {
	c.tb.Helper()
	s, closed, err := c.request(filters)
	if err != nil {
		return nil, err
	}
	if closed != "" {
		return nil, errors.New(closed)
	}
	s.Close()
	return s.Stored, nil
}

// QueryUntil queries until the answer comes and satisfies done: reads may fail while a service is away.
func (c *Client) QueryUntil(done func([]*nostr.Event) bool, filters ...nostr.Filter) []*nostr.Event {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), patience)
	defer cancel()
	for {
		stored, err := c.TryQuery(filters...)
		require.NotErrorIs(c.tb, err, errGone)
		if err == nil && done(stored) {
			return stored
		}
		pause(ctx)
		require.NoError(c.tb, ctx.Err(), "the answer never came")
	}
}

// Count returns the number in the relay's answer to COUNT.
func (c *Client) Count(filters ...nostr.Filter) uint64 {
	c.tb.Helper()
	return c.CountFrame(filters...).Count
}

// CountFrame returns the relay's answer to COUNT.
func (c *Client) CountFrame(filters ...nostr.Filter) wire.RelayFrame {
	c.tb.Helper()
	s := c.open()
	defer s.forget()
	require.NoError(c.tb, c.write(c.tb.Context(), wire.AppendCountReq(nil, s.ID, filters...)))
	frame, err := s.next()
	require.NoError(c.tb, err)
	require.Equal(c.tb, wire.LabelCount, frame.Label, frame.Message)
	return frame
}

func (c *Client) open() *Sub {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextSub++
	// Room for all that a test may leave unread, so that the reader never waits.
	s := &Sub{ID: fmt.Sprintf("sub-%d", c.nextSub), client: c, frames: make(chan wire.RelayFrame, 1<<14)}
	c.subs[s.ID] = s.frames
	return s
}

// request opens a subscription and waits for EOSE, or for CLOSED, whose message it returns.
func (c *Client) request(filters []nostr.Filter) (s *Sub, closed string, err error) {
	s = c.open()
	if err := c.write(c.tb.Context(), wire.AppendReq(nil, s.ID, filters...)); err != nil {
		return nil, "", err
	}
	for {
		frame, err := s.next()
		if err != nil {
			return nil, "", err
		}
		switch frame.Label { //nolint:exhaustive // relays send no others to a subscription
		case wire.LabelEOSE:
			return s, "", nil
		case wire.LabelClosed:
			s.forget()
			return nil, frame.Message, nil
		case wire.LabelEvent:
			s.Stored = append(s.Stored, c.decode(frame.RawEvent))
		}
	}
}

// decode reads and verifies an event that the relay sent.
func (c *Client) decode(raw []byte) *nostr.Event {
	c.tb.Helper()
	event, err := wire.DecodeEvent(raw, wire.DefaultLimits())
	require.NoError(c.tb, err)
	require.NoError(c.tb, event.Verify())
	return event
}

func (s *Sub) next() (wire.RelayFrame, error) {
	ctx, cancel := context.WithTimeout(s.client.tb.Context(), patience)
	defer cancel()
	select {
	case frame := <-s.frames:
		return frame, nil
	case <-ctx.Done():
		return wire.RelayFrame{}, fmt.Errorf("nothing came for %s", s.ID)
	case <-s.client.gone:
	}
	// What came before the end counts.
	select {
	case frame := <-s.frames:
		return frame, nil
	default:
		return wire.RelayFrame{}, s.client.err
	}
}

// NextFrame waits for the next frame of the subscription.
func (s *Sub) NextFrame() wire.RelayFrame {
	s.client.tb.Helper()
	frame, err := s.next()
	require.NoError(s.client.tb, err)
	return frame
}

// Next waits for the next live event.
func (s *Sub) Next() *nostr.Event {
	s.client.tb.Helper()
	frame, err := s.next()
	require.NoError(s.client.tb, err)
	require.Equal(s.client.tb, wire.LabelEvent, frame.Label, frame.Message)
	return s.client.decode(frame.RawEvent)
}

// TryNext is Next for a connection that may go away.
func (s *Sub) TryNext() (*nostr.Event, error) {
	frame, err := s.next()
	if err != nil {
		return nil, err
	}
	require.Equal(s.client.tb, wire.LabelEvent, frame.Label, frame.Message)
	return s.client.decode(frame.RawEvent), nil
}

// Rest yields the frames that have come and were not read, without waiting for more.
func (s *Sub) Rest() iter.Seq[wire.RelayFrame] {
	return func(yield func(wire.RelayFrame) bool) {
		for {
			select {
			case frame := <-s.frames:
				if !yield(frame) {
					return
				}
			default:
				return
			}
		}
	}
}

// Silent fails the test if a live event has come that was not read.
func (s *Sub) Silent() {
	s.client.tb.Helper()
	for frame := range s.Rest() {
		require.Fail(s.client.tb, "unexpected frame", "%s %s %s", frame.Label, frame.Message, frame.RawEvent)
	}
}

// Close sends CLOSE.
func (s *Sub) Close() {
	s.client.tb.Helper()
	require.NoError(s.client.tb, s.client.write(s.client.tb.Context(), wire.AppendClose(nil, s.ID)))
	s.forget()
}

func (s *Sub) forget() {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	delete(s.client.subs, s.ID)
}
