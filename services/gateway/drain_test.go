package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/gateway"
)

func TestDrain(t *testing.T) {
	const n = 20
	w := newWorld(t, with(func(c *gateway.Config) { c.DrainWindow = time.Second }))
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = w.login(openHost, "alice")
		clients[i].send(`["REQ","s",{"limit":0}]`)
		clients[i].eose("s")
	}
	e := envelope(t, "", 1)
	for range 50 {
		w.fanouts[0].publish(uint64(1+len(w.fanouts[0].forgotten)), e)
	}
	began := time.Now()
	drained := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { drained <- w.service.Drain(ctx) }()

	var last time.Duration
	for _, c := range clients {
		code, reason := c.closed()
		require.Equal(t, websocket.StatusServiceRestart, code)
		require.Equal(t, "service restart", reason)
		last = max(last, time.Since(began))
	}
	require.NoError(t, take(t, drained))
	require.Greater(t, last, 500*time.Millisecond, "connections leave in waves")

	_, resp, err := w.tryDial(openHost)
	require.Error(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
}

// What is queued goes out before the close.
func TestDrainFlushes(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.DrainWindow = 0 }))
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	e := envelope(t, "", 1, nostrtest.Content(strings.Repeat("x", 5000)))
	handle := take(t, w.fanouts[0].subscribed).GetHandle()
	for n := range 200 {
		w.fanouts[0].link(t).deliver(uint64(n+1), another(e, n), handle)
	}
	for range 100 {
		c.expect(wire.LabelEvent)
	}
	require.NoError(t, w.service.Drain(t.Context()))
	code, _ := c.closed()
	require.Equal(t, websocket.StatusServiceRestart, code)
}

// Who does not answer the close is cut off in time: nothing is left when the drain is over.
func TestDrainCutsOff(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.DrainWindow = 0 }))
	w.slowLogin(t, `["REQ","s",{"limit":0}]`)                      // and reads nothing any more
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // the closing handshake alone waits for five
	defer cancel()
	require.NoError(t, w.service.Drain(ctx))
	require.NoError(t, ctx.Err())
}

func TestStopWithoutDrain(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	w.stop("gateway")
	code, _ := c.closed()
	require.Equal(t, websocket.StatusServiceRestart, code)
}
