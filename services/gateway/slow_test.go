package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

// sluggish is a client whose socket is read only on demand.
type sluggish struct {
	ws *websocket.Conn
	t  *testing.T
}

// slowLogin connects a client with a small receive buffer and subscribes it.
func (w *world) slowLogin(t *testing.T, req string) *sluggish {
	t.Helper()
	tr := &netDialer{buffer: 256 << 10}
	ws, resp, err := websocket.Dial(t.Context(), "ws://"+w.addr, &websocket.DialOptions{Host: openHost, HTTPClient: tr.client()})
	require.NoError(t, err)
	if resp.Body != nil {
		defer resp.Body.Close()
	}
	ws.SetReadLimit(-1)
	t.Cleanup(func() { ws.CloseNow() })
	s := &sluggish{ws: ws, t: t}
	challenge := s.next().Message
	ev := nostrtest.Auth(t, "sloth", challenge, "ws://"+openHost, time.Now().Unix())
	s.send(string(wire.AppendClientAuth(nil, nostrtest.Raw(ev))))
	require.True(t, s.next().OK)
	s.send(req)
	require.Equal(t, wire.LabelEOSE, s.next().Label)
	return s
}

func (s *sluggish) send(text string) {
	s.t.Helper()
	require.NoError(s.t, s.ws.Write(s.t.Context(), websocket.MessageText, []byte(text)))
}

func (s *sluggish) read() (wire.RelayFrame, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	_, b, err := s.ws.Read(ctx)
	if err != nil {
		return wire.RelayFrame{}, err
	}
	return wire.DecodeRelay(b)
}

func (s *sluggish) next() wire.RelayFrame {
	s.t.Helper()
	f, err := s.read()
	require.NoError(s.t, err)
	return f
}

// flood publishes events until done says so and returns how many.
func flood(w *world, env *commonv1.Envelope, done func(sent int) bool) int {
	sent := 0
	for !done(sent) {
		sent++
		w.fanouts[0].publish(uint64(sent), another(env, sent))
	}
	return sent
}

// A client that does not read loses nothing silently and disturbs nobody: others get everything, and
// once it reads again it gets what was queued and then CLOSED.
func TestASlowClientLagsAlone(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.QueueFrames = 50 }))
	slow := w.slowLogin(t, `["REQ","slow",{"limit":0}]`)
	quick := w.login(openHost, "alice")
	quick.send(`["REQ","quick",{"limit":0}]`)
	quick.eose("quick")
	slowHandle := take(t, w.fanouts[0].subscribed).GetHandle()

	env := envelope(t, "", 100, nostrtest.Content(strings.Repeat("x", 20_000)))
	sent := flood(w, env, func(sent int) bool {
		if sent > 0 { // the quick one is quick: it has each before the next comes
			require.Equal(t, "quick", quick.expect(wire.LabelEvent).SubID)
		}
		select {
		case h := <-w.fanouts[0].forgotten:
			require.Equal(t, slowHandle, h, "the one that lags is not served any more")
			return true
		default:
			return false
		}
	})

	events := 0
	for {
		f := slow.next()
		require.Equal(t, "slow", f.SubID)
		if f.Label == wire.LabelClosed {
			require.Equal(t, lagged, f.Message)
			break
		}
		events++
	}
	require.Less(t, events, sent)
	slow.send(`["REQ","slow",{"limit":0}]`)
	require.Equal(t, wire.LabelEOSE, slow.next().Label)
	w.fanouts[0].publish(uint64(sent+1), env)
	require.Equal(t, wire.LabelEvent, slow.next().Label)
}

// OKs are never dropped, however full the queue of events is.
func TestControlFramesAreNotDropped(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.QueueFrames = 20 }))
	slow := w.slowLogin(t, `["REQ","slow",{"limit":0}]`)
	take(t, w.fanouts[0].subscribed)
	env := envelope(t, "", 100, nostrtest.Content(strings.Repeat("x", 20_000)))
	flood(w, env, func(int) bool {
		select {
		case <-w.fanouts[0].forgotten:
			return true
		default:
			return false
		}
	})
	events := unsigned(30, "x")
	for _, ev := range events {
		slow.send(string(wire.AppendClientEvent(nil, nostrtest.Raw(ev))))
	}
	slow.send(`["REQ","other",{"limit":0}]`)
	oks, eose, closed := 0, 0, 0
	for oks < len(events) || eose == 0 || closed == 0 {
		switch f := slow.next(); f.Label {
		case wire.LabelOK:
			oks++
		case wire.LabelEOSE:
			eose++
		case wire.LabelClosed:
			closed++
		default:
		}
	}
	require.Equal(t, []int{len(events), 1, 1}, []int{oks, eose, closed})
}

func TestAClientThatStaysFullIsDisconnected(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.QueueFrames, c.SlowStrikes = 20, 1 }))
	slow := w.slowLogin(t, `["REQ","slow",{"limit":0}]`)
	take(t, w.fanouts[0].subscribed)
	env := envelope(t, "", 100, nostrtest.Content(strings.Repeat("x", 400_000)))
	flood(w, env, func(int) bool {
		select {
		case <-w.fanouts[0].forgotten:
			return true
		default:
			return false
		}
	})
	grace := time.NewTimer(1500 * time.Millisecond)
	defer grace.Stop()
	<-grace.C
	for {
		_, err := slow.read()
		if err != nil {
			require.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err), err.Error())
			return
		}
	}
}

func TestAStuckClientIsDropped(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.WriteTimeout, c.MaxConnections = 300*time.Millisecond, 1 }))
	w.slowLogin(t, `["REQ","stuck",{"limit":0}]`)
	env := envelope(t, "", 100, nostrtest.Content(strings.Repeat("x", 200_000)))
	flood(w, env, func(sent int) bool { return sent == 40 })
	require.Eventually(t, func() bool {
		c, resp, err := w.tryDial(openHost)
		if err != nil && resp != nil {
			resp.Body.Close()
		}
		return err == nil && c != nil
	}, patience, 20*time.Millisecond, "its place must become free")
}

// What arrives while history is sent is held in bounds.
func TestTooMuchHeldIsLagged(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.HeldEvents = 10 }))
	asked, answer := make(chan struct{}), make(chan struct{})
	w.search.set(func() {
		w.search.onQuery = func(_ *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			close(asked)
			<-answer
			return send(&searchv1.QueryResponse{Snapshot: snapshot(1, 1)})
		}
	})
	defer close(answer)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{}]`)
	take(t, asked)
	flood(w, envelope(t, "", 100), func(sent int) bool { return sent == 11 })
	require.Equal(t, lagged, c.expect(wire.LabelClosed).Message)
}

// A peer that sends pings and half frames slowly is still served.
func TestFragmentedInput(t *testing.T) {
	w := newWorld(t)
	nc, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.addr)
	require.NoError(t, err)
	defer nc.Close()
	for _, b := range []byte("GET / HTTP/1.1\r\nHost: " + openHost + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n") {
		_, err := nc.Write([]byte{b})
		require.NoError(t, err)
	}
	// CLOSE of an unknown subscription in two fragments, a ping between them, then a bad frame; mask 0.
	for _, part := range []string{
		"\x01\x85\x00\x00\x00\x00[\"CLO", "\x89\x82\x00\x00\x00\x00hi", "\x80\x87\x00\x00\x00\x00SE\",\"a\"", "\x81\x82\x00\x00\x00\x00{}",
	} {
		for _, b := range []byte(part) {
			_, err := nc.Write([]byte{b})
			require.NoError(t, err)
		}
	}
	r := bufio.NewReader(nc)
	for {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		if line == "\r\n" {
			break
		}
	}
	var got []string
	for range 4 {
		op, payload := readFrame(t, r)
		got = append(got, string(rune('0'+op))+string(payload))
	}
	require.Equal(t, `1["AUTH",`, got[0][:9])
	require.Equal(t, ":hi", got[1], "a pong") // '0'+10
	require.Contains(t, got[2], `1["NOTICE","invalid: `)
	require.Contains(t, got[3], `1["NOTICE","invalid: `)
}

// bigHistory makes search answer queries for kind 7 with n events of 64 KiB, others with none.
func (w *world) bigHistory(n int) {
	w.search.set(func() {
		w.search.onQuery = func(q *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			if err := send(&searchv1.QueryResponse{Snapshot: snapshot(1, 1)}); err != nil {
				return err
			}
			for i := range n {
				if !slices.Equal(q.GetFilters()[0].GetKinds(), []uint32{7}) {
					return nil
				}
				raw := fmt.Appendf(nil, `{"id":"%064x","content":"%s"}`, i, strings.Repeat("x", 64<<10))
				if err := send(&searchv1.QueryResponse{Events: [][]byte{raw}}); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// Clients that ask for much and read nothing do not keep others from asking, in whatever community; what
// they asked for waits for them.
func TestSlowReadersOfHistoryHoldNobodyUp(t *testing.T) {
	const events = 100
	w := newWorld(t, with(func(c *gateway.Config) { c.MaxQueries, c.QueueBytes = 1, 512<<10 }))
	w.bigHistory(events)
	var slow []*sluggish
	for range 2 {
		s := w.slowLogin(t, `["REQ","live",{"kinds":[1],"limit":0}]`)
		s.send(`["REQ","much",{"kinds":[7]}]`)
		slow = append(slow, s)
	}
	require.Eventually(t, func() bool { return len(w.search.asked()) == len(slow) }, patience, time.Millisecond,
		"each got its turn although nobody reads")
	w.search.set(func() { w.search.onAccess = func([]byte) bool { return true } })
	c := w.login(closedHost, "alice")
	c.send(`["REQ","s",{"kinds":[1]}]`)
	c.eose("s")
	c.send(`["COUNT","n",{"kinds":[1]}]`)
	c.expect(wire.LabelCount)

	for _, s := range slow {
		for i := range events {
			require.Equal(t, fmt.Sprintf("%064x", i), s.next().EventID.String())
		}
		require.Equal(t, wire.LabelEOSE, s.next().Label)
	}
}

// What waits for slow clients is bounded. Beyond, a query is given up after a moment, and only that.
func TestWhatWaitsForSlowReadersOfHistoryIsBounded(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) {
		c.MaxQueries, c.QueueBytes, c.HistoryBytes = 1, 512<<10, 512<<10
	}))
	w.bigHistory(100)
	s := w.slowLogin(t, `["REQ","live",{"kinds":[1],"limit":0}]`)
	s.send(`["REQ","much",{"kinds":[7]}]`)
	require.Eventually(t, func() bool { return len(w.search.asked()) == 1 }, patience, time.Millisecond)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"kinds":[1]}]`)
	c.eose("s")

	f := s.next()
	for f.Label == wire.LabelEvent {
		f = s.next()
	}
	require.Equal(t, wire.LabelClosed, f.Label)
	require.Equal(t, "error: too slow for so many stored events", f.Message)
	// Nothing is left behind of it.
	for range 3 {
		s.send(`["REQ","little",{"kinds":[1]}]`)
		require.Equal(t, wire.LabelEOSE, s.next().Label)
	}
}
