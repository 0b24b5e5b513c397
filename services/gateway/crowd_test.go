package gateway_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

// member is one of a crowd. It keeps nothing of what it reads.
type member struct{ ws *websocket.Conn }

// join connects a member whose receive buffer has so many bytes, with so many subscriptions to everything.
func (w *world) join(ctx context.Context, buffer, subs int) (*member, error) {
	ws, resp, err := websocket.Dial(ctx, "ws://"+w.addr, &websocket.DialOptions{Host: openHost, HTTPClient: (&netDialer{buffer: buffer}).client()})
	if err != nil {
		return nil, err
	}
	if resp.Body != nil {
		resp.Body.Close()
	}
	ws.SetReadLimit(-1)
	w.tb.Cleanup(func() { ws.CloseNow() })
	m := &member{ws: ws}
	hello, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	auth := nostrtest.Auth(w.tb, "alice", hello.Message, "ws://"+openHost, time.Now().Unix())
	if err := ws.Write(ctx, websocket.MessageText, wire.AppendClientAuth(nil, nostrtest.Raw(auth))); err != nil {
		return nil, err
	}
	for i := range subs {
		if err := ws.Write(ctx, websocket.MessageText, []byte(`["REQ","`+strconv.Itoa(i)+`",{"limit":0}]`)); err != nil {
			return nil, err
		}
	}
	for eoses := 0; eoses < subs; {
		f, err := m.read(ctx)
		if err != nil {
			return nil, err
		}
		if f.Label == wire.LabelEOSE {
			eoses++
		}
	}
	return m, nil
}

func (m *member) read(ctx context.Context) (wire.RelayFrame, error) {
	_, b, err := m.ws.Read(ctx)
	if err != nil {
		return wire.RelayFrame{}, err
	}
	return wire.DecodeRelay(b)
}

// follow reads until it has what is to come, in order, and nothing else. Whenever there is one more it says so.
func (m *member) follow(ctx context.Context, tb testing.TB, want []nostr.ID, arrived chan<- struct{}) {
	tb.Helper()
	for n, id := range want {
		f, err := m.read(ctx)
		if err != nil {
			if ctx.Err() == nil {
				tb.Errorf("a client that reads has lost its connection before event %d: %v", n, err)
			}
			return
		}
		if f.Label != wire.LabelEvent || f.EventID != id {
			tb.Errorf("a client that reads got %s %s %s instead of event %d", f.Label, f.EventID, f.Message, n)
			return
		}
		arrived <- struct{}{}
	}
}

// catchUp reads what a member finds when it reads again: of each of its subscriptions the first events, in order, and then CLOSED.
// It returns how many events that are, and an error if anything else comes.
func (m *member) catchUp(ctx context.Context, tb testing.TB, subs int, want []nostr.ID) (events int) {
	tb.Helper()
	got := make(map[string]int)
	for closed := 0; closed < subs; {
		f, err := m.read(ctx)
		switch {
		case err != nil:
			tb.Errorf("a client that reads again after %d events: %v", events, err)
			return events
		case f.Label == wire.LabelClosed && f.Message == lagged:
			got[f.SubID] = len(want) // nothing comes any more
			closed++
		case f.Label == wire.LabelEvent && got[f.SubID] < len(want) && f.EventID == want[got[f.SubID]]:
			got[f.SubID]++
			events++
		default:
			tb.Errorf("a client that reads again got %s %s %s %s", f.Label, f.SubID, f.EventID, f.Message)
			return events
		}
	}
	return events
}

// One in a hundred of two thousand clients stops reading. Each of the others has every event before the next is published; those
// few, and nobody else, lag, keep no more than what may wait for one, and are told when they read again.
func TestOneInAHundredStopsReading(t *testing.T) {
	clients, slow := 2000, 20
	if underRace {
		clients, slow = 200, 2
	}
	const (
		slowSubs = 32 // so that what the system keeps for them is full soon
		length   = 24
		waiting  = 100
	)
	w := newWorld(t, with(func(c *gateway.Config) {
		c.QueueFrames = waiting
		c.AuthTimeout, c.Revalidate, c.PingInterval = 0, 0, 0 // a machine that is busy is not what is tested,
		c.SlowStrikes, c.WriteTimeout = 600, patience         // nor is how long somebody may be slow
	}))
	members := make([]*member, clients)
	joining, ctx := errgroup.WithContext(t.Context())
	joining.SetLimit(8)
	for i := range members {
		joining.Go(func() (err error) {
			buffer, subs := 64<<10, 1
			if i < slow {
				buffer, subs = 256<<10, slowSubs
			}
			members[i], err = w.join(ctx, buffer, subs)
			return err
		})
	}
	require.NoError(t, joining.Wait())

	var events []*commonv1.Envelope
	var ids []nostr.ID
	for n := range length {
		env := envelope(t, "", uint64(100+n), nostrtest.Content(strconv.Itoa(n)+strings.Repeat("x", 10_000)))
		events, ids = append(events, env), append(ids, nostr.ID(env.GetHeader().GetId()))
	}
	var following errgroup.Group
	reading, stop := context.WithCancel(t.Context())
	defer stop()
	arrived := make(chan struct{}, clients)
	for _, m := range members[slow:] {
		following.Go(func() error {
			m.follow(reading, t, ids, arrived)
			return nil
		})
	}
	for n, env := range events {
		w.fanouts[0].publish(uint64(n+1), env)
		for range clients - slow {
			take(t, arrived)
		}
	}
	require.NoError(t, following.Wait())

	// What each of the few may have waiting is full, so nothing is served to it any more, and that is so for nobody else.
	for range slow * slowSubs {
		take(t, w.fanouts[0].forgotten)
	}
	var late errgroup.Group
	for _, m := range members[:slow] {
		late.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			if got := m.catchUp(ctx, t, slowSubs, ids); got >= slowSubs*length {
				t.Errorf("a client that did not read got all %d events", got)
			}
			return nil
		})
	}
	require.NoError(t, late.Wait())
	require.Empty(t, w.fanouts[0].forgotten)
}
