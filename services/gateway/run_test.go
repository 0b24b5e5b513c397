package gateway_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

func delivery(sequence uint64, env *commonv1.Envelope, handles ...uint64) *fanoutv1.Item {
	return &fanoutv1.Item{Item: &fanoutv1.Item_Delivery{Delivery: &fanoutv1.Delivery{
		Partition: partitionOf(openCommunity, ""), Stream: commonv1.Stream_STREAM_EVENTS, Position: at(sequence),
		Handles: handles, Envelope: env,
	}}}
}

// What comes in one message, as under load, is delivered as if it had come one by one: in order, once, to whom it is
// for, without what a history has had, and up to the moment at which a handle is lost.
func TestDeliveriesOfOneMessage(t *testing.T) {
	w := newWorld(t)
	w.search.set(func() {
		w.search.onQuery = func(_ *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			return send(&searchv1.QueryResponse{Snapshot: snapshot(15, 15)})
		}
	})
	var clients []*client
	var handles []uint64
	for i, sub := range []string{"s", "s", "own", "s"} { // the last one has a history that saw what came before 15
		c := w.login(openHost, "alice")
		limit := `{"limit":0}`
		if i == 3 {
			limit = `{"limit":5}`
		}
		c.send(`["REQ","` + sub + `",` + limit + `]`)
		c.eose(sub)
		clients, handles = append(clients, c), append(handles, take(t, w.fanouts[0].subscribed).GetHandle())
	}
	numbers := func(first, last int) (all []string) {
		for n := first; n <= last; n++ {
			all = append(all, idOf(t, numbered(t, n)))
		}
		return all
	}

	var items []*fanoutv1.Item
	for n := 10; n < 90; n++ {
		items = append(items, delivery(uint64(n), numbered(t, n), handles...))
	}
	items = append(items, delivery(90, numbered(t, 50), handles...)) // published again
	items = append(items, delivery(91, numbered(t, 91), handles...))
	items = append(items, delivery(92, numbered(t, 92), handles[0]))
	items = append(items, delivery(93, numbered(t, 93), handles...))
	items = append(items, &fanoutv1.Item{Item: &fanoutv1.Item_Lost{Lost: &fanoutv1.Lost{Handles: handles[1:2], Reason: fault.NotFound}}})
	items = append(items, delivery(94, numbered(t, 94), handles...))
	w.fanouts[0].link(t).send(items...)
	// Others have a part of a run already: it is theirs from where they are.
	w.fanouts[0].link(t).send(delivery(94, numbered(t, 94), handles[2:]...), delivery(95, numbered(t, 95), handles[2:]...))

	want := [][]string{
		append(numbers(10, 89), numbers(91, 94)...),
		append(append(numbers(10, 89), numbers(91, 91)...), numbers(93, 93)...),
		append(append(numbers(10, 89), numbers(91, 91)...), numbers(93, 95)...),
		append(append(numbers(15, 89), numbers(91, 91)...), numbers(93, 95)...),
	}
	for i, c := range clients {
		sub := "s"
		if i == 2 {
			sub = "own"
		}
		for _, id := range want[i] {
			require.Equal(t, id, c.event(sub), "client %d", i)
		}
		if i == 1 {
			require.Equal(t, lagged, c.expect(wire.LabelClosed).Message)
		}
		c.quiet()
	}
}

// A run that is larger than what may wait for a client ends its subscription, and what was sent before is its beginning.
func TestARunThatFindsNoRoomIsLagged(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.QueueFrames = 100 }))
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	handle := take(t, w.fanouts[0].subscribed).GetHandle()
	env := envelope(t, "", 100, nostrtest.Content(strings.Repeat("x", 5_000)))
	var items []*fanoutv1.Item
	for n := 1; n <= 400; n++ {
		items = append(items, delivery(uint64(n), another(env, n), handle))
	}
	w.fanouts[0].link(t).send(items...)
	events := 0
	for f := c.next(); f.Label != wire.LabelClosed; f = c.next() {
		require.Equal(t, wire.LabelEvent, f.Label, strconv.Itoa(events))
		events++
	}
	require.Equal(t, 100, events)
}
