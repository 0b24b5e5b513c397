// Package client is a small client for a relay: it publishes, queries and listens from a terminal, by WebSocket, or
// but for listening by signed HTTP requests.
//
// It authenticates with one key as NIP-42 says, and it trusts the relay with nothing else: what comes
// back is printed only after control characters are taken out, because a message must not drive the
// reader's terminal. It must never hold a result without a bound. A Conn belongs to one goroutine;
// Listen adds one that pings.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

const (
	// readLimit bounds one frame from the relay: the largest event that the relay takes, and its label.
	readLimit = 1 << 20
	// challengeWait is how long a relay has to ask for authentication. One that does not ask in time is
	// used without.
	challengeWait = 3 * time.Second
	// writeTimeout bounds one frame to the relay.
	writeTimeout = 10 * time.Second
)

// ErrAuth says that the relay did not accept the key. Trying again with the same key is useless.
var ErrAuth = errors.New("the relay does not accept the key")

// Config says how to reach a relay.
type Config struct {
	// URL is ws:// or wss://, or http:// or https:// to make signed HTTP requests instead of a connection.
	URL string
	// Connect is the address, host:port, to connect to; empty takes that of the URL.
	Connect string
	// Key authenticates the connection and signs what is published.
	Key *nostr.SecretKey
	// Attestation is the tag that says whose agent the key is (NIP-OA), nil if it is nobody's.
	Attestation nostr.Tag
}

// Conn is a connection to a relay, authenticated if the relay asked for it.
type Conn struct {
	cfg Config
	ws  *websocket.Conn
	buf []byte
}

// Dial connects and authenticates, all before ctx ends. The error is ErrAuth when the relay refuses the
// key.
func Dial(ctx context.Context, cfg Config) (*Conn, error) {
	ws, response, err := websocket.Dial(ctx, cfg.URL, &websocket.DialOptions{HTTPClient: cfg.httpClient()}) //nolint:bodyclose // the library says that it does that itself
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", cfg.where(), dialError(response, err))
	}
	ws.SetReadLimit(readLimit)
	c := &Conn{cfg: cfg, ws: ws}
	if err := c.authenticate(ctx); err != nil {
		_ = ws.CloseNow() // whatever it says, the connection is of no use
		return nil, err
	}
	return c, nil
}

// errNoRelay is what a host without a community answers.
var errNoRelay = errors.New("the server has no relay for this host")

// dialError keeps of the library's account what a person can use.
func dialError(response *http.Response, err error) error {
	var network *net.OpError
	var name *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("nothing listens there: does the relay run, and at this port?")
	case errors.As(err, &name) && name.IsNotFound:
		return fmt.Errorf("nobody knows a host %s: --connect says where it is before it is in DNS", name.Name)
	case errors.As(err, &network):
		return network.Err
	case response == nil:
		return err
	case response.StatusCode == http.StatusNotFound:
		return errNoRelay
	default:
		return fmt.Errorf("the server answers %s", response.Status)
	}
}

// authenticate answers the relay's challenge (NIP-42).
func (c *Conn) authenticate(ctx context.Context) error {
	challenge, err := c.challenge(ctx)
	if err != nil || challenge == "" {
		return err
	}
	auth := &nostr.Event{
		CreatedAt: time.Now().Unix(),
		Kind:      nostr.KindAuth,
		Tags:      nostr.Tags{{"relay", c.cfg.URL}, {"challenge", challenge}},
	}
	if c.cfg.Attestation != nil {
		auth.Tags = append(auth.Tags, c.cfg.Attestation)
	}
	if err := auth.Sign(c.cfg.Key); err != nil {
		return err
	}
	c.buf = wire.AppendClientAuth(c.buf[:0], auth.AppendJSON(nil))
	if err := c.write(ctx, c.buf); err != nil {
		return err
	}
	for {
		frame, err := c.Next(ctx)
		if err != nil {
			return fmt.Errorf("authenticate: %w", err)
		}
		if frame.Label == wire.LabelOK && frame.EventID == auth.ID {
			if !frame.OK {
				return fmt.Errorf("%w %s: %s", ErrAuth, auth.PubKey, Printable(frame.Message))
			}
			return nil
		}
	}
}

// challenge waits for the relay's challenge; "" when it does not send one in time.
//
// A read that is cancelled ends a WebSocket, so the wait cannot be a deadline on the read: a relay that
// sends nothing is asked something that it must answer.
func (c *Conn) challenge(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const probe = "probe"
	nudge := time.AfterFunc(challengeWait, func() {
		none := nostr.Filter{MatchesNothing: true}
		// A failure shows in the read.
		_ = c.write(ctx, wire.AppendReq(nil, probe, none))
	})
	defer nudge.Stop()
	for {
		frame, err := c.Next(ctx)
		if err != nil {
			return "", fmt.Errorf("wait for the relay's greeting: %w", err)
		}
		switch {
		case frame.Label == wire.LabelAuth:
			return frame.Message, nil
		case frame.SubID == probe && frame.Label == wire.LabelEOSE:
			return "", c.write(ctx, wire.AppendClose(nil, probe))
		case frame.SubID == probe && frame.Label == wire.LabelClosed:
			return "", nil
		}
	}
}

// Next returns the relay's next frame, whose memory is the caller's. Frames that make no sense and binary
// ones are passed over. When ctx ends, so does the connection.
func (c *Conn) Next(ctx context.Context) (wire.RelayFrame, error) {
	for {
		kind, data, err := c.ws.Read(ctx)
		if err != nil {
			return wire.RelayFrame{}, fmt.Errorf("read from the relay: %w", readable(err))
		}
		if kind != websocket.MessageText {
			continue
		}
		if frame, err := wire.DecodeRelay(data); err == nil {
			return frame, nil
		}
	}
}

// Request sends REQ.
func (c *Conn) Request(ctx context.Context, subID string, filters ...nostr.Filter) error {
	c.buf = wire.AppendReq(c.buf[:0], subID, filters...)
	return c.write(ctx, c.buf)
}

// Publish sends a signed event and waits for its OK. ok and message are the relay's verdict; an error
// means that there is none, so that the event may or may not be stored.
func (c *Conn) Publish(ctx context.Context, event *nostr.Event) (ok bool, message string, err error) {
	c.buf = wire.AppendClientEvent(c.buf[:0], event.AppendJSON(nil))
	if err := c.write(ctx, c.buf); err != nil {
		return false, "", err
	}
	for {
		frame, err := c.Next(ctx)
		if err != nil {
			return false, "", fmt.Errorf("wait for the verdict: %w", err)
		}
		if frame.Label == wire.LabelOK && frame.EventID == event.ID {
			return frame.OK, frame.Message, nil
		}
	}
}

// Ping waits for the relay's answer to a ping; somebody must be in Next meanwhile.
func (c *Conn) Ping(ctx context.Context) error { return c.ws.Ping(ctx) }

// Close says goodbye, without waiting long for the relay's.
func (c *Conn) Close() { _ = c.ws.Close(websocket.StatusNormalClosure, "") }

func (c *Conn) write(ctx context.Context, frame []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, frame); err != nil {
		return fmt.Errorf("write to the relay: %w", readable(err))
	}
	return nil
}

// closedError is a connection that the relay closed on purpose.
type closedError struct{ websocket.CloseError }

// Error says why, in the relay's words.
func (e closedError) Error() string {
	reason := Printable(e.Reason)
	if reason == "" {
		reason = strings.TrimPrefix(e.Code.String(), "Status")
	}
	return fmt.Sprintf("the relay closed the connection (%d %s)", int(e.Code), reason)
}

// errBroken is a connection that ended without the relay having said so.
var errBroken = errors.New("the connection broke")

// readable turns the library's account of a connection's end into a sentence.
func readable(err error) error {
	var closed websocket.CloseError
	if errors.As(err, &closed) {
		return closedError{closed}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return errBroken
	}
	return err
}
