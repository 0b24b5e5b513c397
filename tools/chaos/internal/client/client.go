// Package client is one connection of a Nostr client: authenticated, over a real socket.
//
// A reader goroutine stamps every frame with the time it came at and gives it to whoever waits for it: verdicts to
// Submit, everything else to Frames. Who does not read Frames holds the relay back, as a client that does not read
// would; only connections that have no subscriptions may leave it alone. The methods may be called by any
// goroutine.
package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

const (
	// dialTimeout bounds the connection and its authentication together.
	dialTimeout = 15 * time.Second
	// submitTimeout is longer than a relay takes to say that it cannot; writeTimeout bounds one frame to it.
	submitTimeout = 20 * time.Second
	writeTimeout  = 10 * time.Second
	readLimit     = 1 << 20
	// buffered frames do not hold the reader up.
	buffered = 64
)

// ErrGone is wrapped by the errors of a connection that has ended.
var ErrGone = errors.New("the connection is gone")

// errRefused says that the relay did not take the authentication.
var errRefused = errors.New("authentication refused")

// Frame is what the relay said, and when on the clock that Dial was given.
type Frame struct {
	wire.RelayFrame
	At time.Duration
}

// Verdict is an OK.
type Verdict struct {
	OK      bool
	Message string
}

// Options say where to connect and as whom.
type Options struct {
	// Address is host:port of a gateway, Host the community's authority.
	Address, Host string
	// Key is the client's own.
	Key *nostr.SecretKey
	// Now is the clock.
	Now func() time.Duration
}

// Conn is a connection.
type Conn struct {
	// Frames are EVENT, EOSE and CLOSED, in order. It is closed at the end of the connection.
	Frames <-chan Frame

	ws   *websocket.Conn
	now  func() time.Duration
	stop context.CancelFunc
	gone chan struct{} // closed by the reader at the end
	err  error         // why, to be read after gone

	mu       sync.Mutex
	verdicts map[nostr.ID]chan Verdict // guarded by mu
}

// Dial connects and authenticates; Close ends the connection, and so does the end of ctx.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	dialling, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ws, _, err := websocket.Dial(dialling, "ws://"+o.Address, &websocket.DialOptions{ //nolint:bodyclose // the library says that it needs no closing
		Host: o.Host, HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	ws.SetReadLimit(readLimit)
	frames, challenges := make(chan Frame, buffered), make(chan string, 1)
	c := &Conn{Frames: frames, ws: ws, now: o.Now, gone: make(chan struct{}), verdicts: make(map[nostr.ID]chan Verdict)}
	reading, stop := context.WithCancel(ctx)
	c.stop = stop
	go c.read(reading, frames, challenges)
	if err := c.authenticate(dialling, o, challenges); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) authenticate(ctx context.Context, o Options, challenges <-chan string) error {
	var challenge string
	select {
	case challenge = <-challenges:
	case <-c.gone:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
	event := &nostr.Event{
		Kind: nostr.KindAuth, CreatedAt: time.Now().Unix(),
		Tags: nostr.Tags{{"relay", "ws://" + o.Host}, {"challenge", challenge}},
	}
	if err := event.Sign(o.Key); err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	verdict, err := c.submit(ctx, event.ID, wire.AppendClientAuth(nil, event.AppendJSON(nil)))
	if err == nil && !verdict.OK {
		err = fmt.Errorf("%w: %s", errRefused, verdict.Message)
	}
	return err
}

// read takes frames until the connection ends.
func (c *Conn) read(ctx context.Context, frames chan<- Frame, challenges chan<- string) {
	defer close(c.gone)
	defer close(frames)
	for {
		_, data, err := c.ws.Read(ctx)
		if err != nil {
			c.err = fmt.Errorf("%w: %w", ErrGone, err)
			return
		}
		frame, err := wire.DecodeRelay(data)
		if err != nil {
			c.err = fmt.Errorf("%w: the relay sent %q: %w", ErrGone, data, err)
			_ = c.ws.CloseNow()
			return
		}
		switch frame.Label { //nolint:exhaustive // relays send no others
		case wire.LabelAuth:
			select {
			case challenges <- frame.Message:
			default:
			}
		case wire.LabelOK:
			c.decide(frame)
		case wire.LabelEvent, wire.LabelEOSE, wire.LabelClosed:
			select {
			case frames <- Frame{frame, c.now()}:
			case <-ctx.Done():
			}
		}
	}
}

func (c *Conn) decide(frame wire.RelayFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if verdict := c.verdicts[frame.EventID]; verdict != nil {
		verdict <- Verdict{OK: frame.OK, Message: frame.Message}
		delete(c.verdicts, frame.EventID)
	}
}

// Submit sends an event and waits for the verdict. An error that is ErrGone says that the connection has ended
// without one.
func (c *Conn) Submit(ctx context.Context, event *nostr.Event) (Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	return c.submit(ctx, event.ID, wire.AppendClientEvent(nil, event.AppendJSON(nil)))
}

func (c *Conn) submit(ctx context.Context, id nostr.ID, frame []byte) (Verdict, error) {
	verdict := make(chan Verdict, 1)
	c.mu.Lock()
	c.verdicts[id] = verdict
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.verdicts, id)
	}()
	if err := c.write(ctx, frame); err != nil {
		return Verdict{}, err
	}
	select {
	case v := <-verdict:
		return v, nil
	case <-c.gone:
		return Verdict{}, c.err
	case <-ctx.Done():
		return Verdict{}, fmt.Errorf("no OK came for %s: %w", id, ctx.Err())
	}
}

// Request sends a REQ.
func (c *Conn) Request(ctx context.Context, id string, filter nostr.Filter) error {
	return c.write(ctx, wire.AppendReq(nil, id, filter))
}

func (c *Conn) write(ctx context.Context, frame []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, frame); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// Gone is closed when the connection has ended; Err says why.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Err returns why the connection has ended, once Gone is closed.
func (c *Conn) Err() error { return c.err }

// Restarted reports whether the relay has ended the connection with 1012, service restart, once Gone is closed.
func (c *Conn) Restarted() bool {
	return websocket.CloseStatus(c.err) == websocket.StatusServiceRestart
}

// Close ends the connection and waits for its reader.
func (c *Conn) Close() {
	c.stop()
	_ = c.ws.CloseNow()
	<-c.gone
}
