package cluster

import (
	"context"
	"errors"
	"fmt"
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

// Leave ends the connection as clients do, with a closing handshake, which the relay must answer.
func (c *Client) Leave() {
	c.tb.Helper()
	require.NoError(c.tb, c.ws.Close(websocket.StatusNormalClosure, ""))
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
	return c.AuthenticateWith(url)
}

func (c *Client) authenticate(ctx context.Context, url string, more ...nostrtest.Option) (Verdict, error) {
	select {
	case challenge := <-c.challenge:
		event := nostrtest.Auth(c.tb, c.name, challenge, url, time.Now().Unix(), more...)
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
	case <-ctx.Done():
		return Verdict{}, fmt.Errorf("no OK came for %s", id)
	}
	select {
	case v := <-verdict: // it came before the end
		return v, nil
	default:
		return Verdict{}, c.err
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
