package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// client is one authenticated connection.
type client struct {
	conn   *websocket.Conn
	secret *nostr.SecretKey
}

func connect(ctx context.Context, url string) (*client, error) {
	secret, err := nostr.GenerateSecretKey()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: &http.Client{}})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if resp.Body != nil {
		resp.Body.Close()
	}
	conn.SetReadLimit(1 << 20)
	c := &client{conn: conn, secret: secret}
	challenge, err := c.expect(ctx, wire.LabelAuth)
	if err != nil {
		return nil, fmt.Errorf("challenge: %w", err)
	}
	event := nostr.Event{Kind: nostr.KindAuth, CreatedAt: time.Now().Unix(), Tags: nostr.Tags{{"relay", url}, {"challenge", challenge.Message}}}
	if err := event.Sign(secret); err != nil {
		return nil, err
	}
	if err := c.write(ctx, wire.AppendClientAuth(nil, event.AppendJSON(nil))); err != nil {
		return nil, err
	}
	ok, err := c.expect(ctx, wire.LabelOK)
	if err != nil {
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	if !ok.OK {
		return nil, fmt.Errorf("authenticate: %s", ok.Message)
	}
	return c, nil
}

func (c *client) write(ctx context.Context, frame []byte) error {
	return c.conn.Write(ctx, websocket.MessageText, frame)
}

func (c *client) read(ctx context.Context) (wire.RelayFrame, error) {
	_, data, err := c.conn.Read(ctx)
	if err != nil {
		return wire.RelayFrame{}, err
	}
	return wire.DecodeRelay(data)
}

func (c *client) expect(ctx context.Context, label wire.Label) (wire.RelayFrame, error) {
	frame, err := c.read(ctx)
	if err != nil {
		return frame, err
	}
	if frame.Label != label {
		return frame, fmt.Errorf("expected %s, got %s %s", label, frame.Label, frame.Message)
	}
	return frame, nil
}

// subscribe opens a subscription and returns after EOSE with the number of stored events.
func (c *client) subscribe(ctx context.Context, id string, filter nostr.Filter) (int, error) {
	if err := c.write(ctx, wire.AppendReq(nil, id, filter)); err != nil {
		return 0, err
	}
	for stored := 0; ; stored++ {
		frame, err := c.read(ctx)
		if err != nil {
			return stored, err
		}
		switch frame.Label {
		case wire.LabelEvent:
		case wire.LabelEOSE:
			return stored, nil
		default:
			return stored, fmt.Errorf("expected EVENT or EOSE, got %s %s", frame.Label, frame.Message)
		}
	}
}

func (c *client) close() { _ = c.conn.CloseNow() }

// times are latencies in milliseconds.
type times []float64

func (t *times) add(d time.Duration) { *t = append(*t, float64(d.Microseconds())/1000) }

// quantile is the nearest-rank quantile, 0 ≤ q ≤ 1, of at least one value.
func (t times) quantile(q float64) float64 {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
