package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// transport is a way to a relay: a WebSocket, or signed HTTP requests. Both answer alike.
type transport interface {
	// Publish hands over a signed event. ok and message are the relay's verdict; an error means that there is none,
	// so that the event may or may not be stored.
	Publish(ctx context.Context, event *nostr.Event) (ok bool, message string, err error)
	// stored returns the stored events that match, in the relay's order.
	stored(ctx context.Context, filter nostr.Filter) ([]message, error)
	// invite has an invite code made; empty when the relay makes none for this key. A WebSocket has no words for a wish.
	invite(ctx context.Context, wish Wish) (code string, err error)
	// Close ends it.
	Close()
}

// open returns the way that the URL's scheme asks for. The error is ErrAuth when the relay refuses the key.
func open(ctx context.Context, cfg Config) (transport, error) {
	if cfg.overHTTP() {
		return newBridge(cfg), nil
	}
	return dial(ctx, cfg)
}

// overHTTP reports whether the relay is asked by HTTP requests.
func (c Config) overHTTP() bool {
	return strings.HasPrefix(c.URL, "http://") || strings.HasPrefix(c.URL, "https://")
}

// web is the configuration to make signed requests to the same relay, which answers both at one address.
func (c Config) web() Config {
	if rest, ok := strings.CutPrefix(c.URL, "ws"); ok {
		c.URL = "http" + rest
	}
	return c
}

// httpClient connects to where the configuration says, whatever the URL's host is. Deadlines come with contexts.
func (c Config) httpClient() *http.Client {
	// Nothing is kept: each command has one connection or few, and ends.
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	if c.Connect != "" {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, c.Connect)
		}
	}
	return &http.Client{Transport: transport}
}

// where is what errors say of where the relay is.
func (c Config) where() string {
	if c.Connect != "" {
		return c.URL + " at " + c.Connect
	}
	return c.URL
}

// Find returns the event with this id. That there is none, and that the key may not read it, is the same.
func Find(ctx context.Context, cfg Config, id nostr.ID) (*nostr.Event, error) {
	found, err := Stored(ctx, cfg, nostr.Filter{IDs: []nostr.ID{id}})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no event %s that %s may read", id, cfg.Key.PubKey())
	}
	return found[0], nil
}

// Stored returns the stored events that match, in the relay's order.
func Stored(ctx context.Context, cfg Config, filter nostr.Filter) ([]*nostr.Event, error) {
	messages, err := ask(ctx, cfg, filter)
	if err != nil {
		return nil, err
	}
	events := make([]*nostr.Event, len(messages))
	for i, m := range messages {
		events[i] = m.event
	}
	return events, nil
}

// ask opens a way to the relay for one question.
func ask(ctx context.Context, cfg Config, filter nostr.Filter) ([]message, error) {
	r, err := open(ctx, cfg)
	if err != nil {
		return nil, describe(ctx, "query", err)
	}
	defer r.Close()
	messages, err := r.stored(ctx, filter)
	if err != nil {
		return nil, describe(ctx, "query", err)
	}
	return messages, nil
}

// refusedQuery quotes the relay.
func refusedQuery(text string) error {
	return errors.New("the relay refuses the query: " + Printable(text))
}
