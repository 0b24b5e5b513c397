package gateway_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/services/gateway"
)

// A topic with more subscriptions than one node is given is spread over several, while it is used: nothing that comes
// meanwhile is lost or repeated, and other topics stay where they are.
func TestAHotTopicIsSpread(t *testing.T) {
	const subs = 9
	w := newWorld(t, fanouts(3), with(func(c *gateway.Config) { c.SpreadSubscriptions = subs / 3 }))
	w.linked()
	var nodes []*replayer
	for _, f := range w.fanouts {
		r := &replayer{node: f, live: make(map[*link][]uint64), dead: make(map[*link]bool), calm: true}
		f.answer(r.subscribe)
		nodes = append(nodes, r)
	}
	c := w.login(openHost, "alice")
	for i := range subs {
		c.send(`["REQ","s` + strconv.Itoa(i) + `",{"limit":0}]`)
	}
	for range subs {
		c.expect(wire.LabelEOSE)
	}
	serving := func() (counts []int) {
		for _, f := range w.fanouts {
			n := 0
			f.mu.Lock()
			for _, l := range f.links {
				l.mu.Lock()
				n += len(l.subs)
				l.mu.Unlock()
			}
			f.mu.Unlock()
			counts = append(counts, n)
		}
		return counts
	}
	next := make(map[string]int)
	published := 0
	publish := func() {
		env := committed(published)
		published++
		for _, r := range nodes {
			r.publish(env)
		}
		for range subs {
			f := c.expect(wire.LabelEvent)
			require.Contains(t, string(f.RawEvent), `"event `+strconv.Itoa(next[f.SubID])+`"`, "subscription %s", f.SubID)
			next[f.SubID]++
		}
	}
	require.Eventually(t, func() bool {
		publish()
		counts := serving()
		return counts[0] == 3 && counts[1] == 3 && counts[2] == 3
	}, patience, 10*time.Millisecond, "it is measured, and moved while events come")
	publish()
	c.quiet()
}
