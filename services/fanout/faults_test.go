package fanout

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

// gatedBus lets replays wait at a gate.
type gatedBus struct {
	*bus.Bus
	gate    chan struct{}
	mu      sync.Mutex
	arrived chan struct{}
}

// replaying returns a channel that is closed when a replay waits at the gate.
func (b *gatedBus) replaying() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.arrived == nil {
		b.arrived = make(chan struct{})
	}
	return b.arrived
}

func (b *gatedBus) Replay(ctx context.Context, stream, subject string, from, to uint64, handle func(context.Context, bus.Msg) error, opts ...bus.OrderedOption) error {
	b.replaying()
	b.mu.Lock()
	select {
	case <-b.arrived:
	default:
		close(b.arrived)
	}
	b.mu.Unlock()
	select {
	case <-b.gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	return b.Bus.Replay(ctx, stream, subject, from, to, handle, opts...)
}

func TestAStalledGatewayDelaysNobody(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	n := c.node(func(cfg *Config, _ *Deps) { cfg.QueueBytes = 256 << 10 })
	stalled, g := n.attachStalled(), n.attach()
	stalled.send(subscribe(1, "hive", chats), subscribe(2, "hive", reactions))
	// Until the stalled one has been attached nothing is owed to it: wait for that without reading.
	require.Eventually(t, func() bool { return n.subscriptions() == 2 }, patience, time.Millisecond, "no other sign than the count")
	g.send(subscribe(1, "hive", chats))
	g.attached(1)

	// More than all the buffers of gRPC in between.
	var events []*event
	for range 100 {
		e := c.event("hive", content(string(make([]byte, 20<<10))))
		c.publish(e)
		g.delivered(e, 1)
		events = append(events, e)
	}

	// What it finds when it reads again is everything up to a point, then Lost.
	go stalled.collect()
	stalled.attached(1)
	stalled.attached(2)
	got := 0
	for {
		item := stalled.next()
		if lost := item.GetLost(); lost != nil {
			require.Equal(t, fault.Overloaded, lost.GetReason())
			require.Equal(t, []uint64{1}, lost.GetHandles())
			break
		}
		require.Equal(t, events[got].at, position.FromProto(item.GetDelivery().GetPosition()))
		got++
	}
	require.Less(t, got, len(events))
	for rest := events[got:]; len(rest) > 0; {
		stalled.send(subscribe(uint64(100+got), "hive", chats, resume(c.cursorAfter(events[got-1]))))
		stalled.attached(uint64(100 + got))
		for len(rest) > 0 {
			item := stalled.next()
			if item.GetLost() != nil {
				break // too fast again: from where it has come to
			}
			require.Equal(t, rest[0].at, position.FromProto(item.GetDelivery().GetPosition()))
			rest = rest[1:]
			got++
		}
	}
	reaction := c.event("hive", ofKind(nostr.KindReaction))
	c.publish(reaction)
	stalled.delivered(reaction, 2)
}

func (n *node) subscriptions() (total int) {
	for _, p := range n.service.partitions {
		total += p.Stats().Subscriptions
	}
	return total
}

func (n *node) open() (total int) {
	for _, p := range n.service.partitions {
		if p.Stats().Open {
			total++
		}
	}
	return total
}

func TestAStreamThatEndsLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	n := c.node(func(cfg *Config, _ *Deps) { cfg.IdleGrace = time.Millisecond })
	g := n.attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	g.send(subscribe(2, "", chats))
	g.attached(2)
	require.Positive(t, n.open())
	g.cancel()
	require.Eventually(t, func() bool { return n.subscriptions() == 0 && n.open() == 0 && len(n.service.links.all()) == 0 },
		patience, time.Millisecond, "nobody is told")

	g = n.attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	e := c.event("hive")
	c.publish(e)
	g.delivered(e, 1)
}

func TestTheBusComesBack(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	n := c.node()
	g := n.attach()
	g.send(subscribe(1, "hive", nostr.Filter{}))
	g.attached(1)
	before := c.event("hive")
	c.publish(before)
	g.delivered(before, 1)

	c.server.Stop(t)
	g.send(subscribe(2, "wax", nostr.Filter{})) // may wait for the bus, if its partition is another one
	c.server.Restart(t)
	c.reconnect()
	after := c.event("hive")
	c.publish(after)
	for seen := 0; seen < 2; {
		item := g.next()
		switch {
		case item.GetAttached() != nil:
			require.Equal(t, uint64(2), item.GetAttached().GetHandle())
		default:
			require.Equal(t, after.envelope.GetHeader().GetId(), item.GetDelivery().GetEnvelope().GetHeader().GetId())
		}
		seen++
	}
	// The ephemeral stream is another one now, and nobody minds.
	typed := c.event("hive", ofKind(20001))
	c.publish(typed)
	require.Equal(t, typed.at, position.FromProto(g.delivered(typed, 1).GetPosition()))
}

// reconnect waits until the streams can be used, and makes those that were lost.
func (c *cell) reconnect() {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		return c.bus.EnsureStreams(c.t.Context(), bus.StreamOptions{EventsMaxBytes: 64 << 20, EphemeralMaxBytes: 16 << 20}) == nil
	}, patience, 10*time.Millisecond, "the connection is made anew in its own time")
}

func TestABusThatStaysAwayIsSaid(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.server.Stop(t)
	g := c.node(func(cfg *Config, _ *Deps) { cfg.OpenTimeout = 50 * time.Millisecond }).attach()
	g.send(subscribe(1, "hive", chats))
	g.lost(fault.Overloaded, 1)
}

func TestALostStreamIsSaid(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	n := c.node()
	g := n.attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	e := c.event("hive")
	c.publish(e)
	g.delivered(e, 1)
	c.server.RestartEmpty(t)
	c.reconnect()
	g.lost(fault.NotFound, 1)
	g.send(subscribe(2, "hive", chats, resume(position.Cursor{position.Events: e.at})))
	g.lost(fault.NotFound, 2)
	g.send(subscribe(3, "hive", chats))
	g.attached(3)
	e = c.event("hive")
	c.publish(e)
	g.delivered(e, 3)
}

func TestDrainFlushesAndEnds(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	n := c.node(func(cfg *Config, _ *Deps) { cfg.DrainGrace = time.Hour })
	g, idle := n.attach(), n.attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	drained := make(chan error, 1)
	go func() { drained <- n.service.Drain(t.Context()) }()
	require.Eventually(t, func() bool { return !n.service.links.accepts() }, patience, time.Millisecond, "Drain returns only at its end")
	g.send(subscribe(2, "hive", chats))
	g.lost(fault.Overloaded, 2)
	e := c.event("hive")
	c.publish(e)
	g.delivered(e, 1) // served until it has moved
	g.send(unsubscribe(1))
	require.NoError(t, g.ended())
	require.NoError(t, idle.ended())
	require.NoError(t, <-drained)
	require.Equal(t, fault.Overloaded, fault.ReasonOf(n.attach().ended()))
}

func TestDrainingChannel(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	draining := make(chan struct{})
	g := c.node(func(_ *Config, d *Deps) { d.Draining = draining }).attach()
	g.send(subscribe(1, "hive", chats))
	g.attached(1)
	close(draining)
	require.NoError(t, g.ended(), "the grace is 0 here")
}
