package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

// list returns n quoted values, without brackets.
func list(n int, format string) string {
	values := make([]string, n)
	for i := range values {
		values[i] = `"` + fmt.Sprintf(format, i) + `"`
	}
	return strings.Join(values, ",")
}

// A REQ may be large and listen on many channels: together its commands are far more than one message
// between services may hold. A message that is refused would end the link of everybody.
func TestWhatOneClientAsksForBreaksNoLink(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.MaxSubValues = 0 }))
	other := w.login(openHost, "bob")
	other.send(`["REQ","s",{"limit":0}]`)
	other.eose("s")
	link := w.fanouts[0].link(t)

	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0,"#h":[` + list(100, "c%d") + `],"#e":[` + list(2000, "%064x") + `]}]`)
	c.eose("s")
	require.Same(t, link, w.fanouts[0].link(t), "the link has been the same all the time")
	e := envelope(t, "c7", 1)
	w.fanouts[0].publish(1, e)
	require.Equal(t, idOf(t, e), c.event("s"))
}

// Each channel's node is told of its own channel only, once for each time the filters name it.
func TestATopicGetsItsOwnPartOfAFilter(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0,"kinds":[9],"#t":["x","y"],"#h":["bees","hive","bees"],"since":5},{"limit":0,"#h":["hive"]}]`)
	c.eose("s")
	got := make(map[string][]*commonv1.Filter)
	for range 2 {
		s := take(t, w.fanouts[0].subscribed)
		got[s.GetChannel()] = s.GetFilters()
	}
	values := func(f *commonv1.Filter, name string) (all []string) {
		for _, tag := range f.GetTags() {
			for _, v := range tag.GetValues() {
				if tag.GetName() == name {
					all = append(all, string(v))
				}
			}
		}
		return all
	}
	require.Len(t, got["bees"], 1)
	require.Len(t, got["hive"], 2)
	for channel, filters := range got {
		for _, f := range filters {
			require.Equal(t, []string{channel}, values(f, "h"))
		}
		require.Equal(t, []string{"x", "y"}, values(filters[0], "t"))
		require.Equal(t, []uint32{9}, filters[0].GetKinds())
		require.Equal(t, int64(5), filters[0].GetSince())
	}
}

// What fan-out has to remember for one connection is bounded, however it is spread over subscriptions.
func TestValuesOfAllSubscriptionsAreBounded(t *testing.T) {
	const refusal = "error: too many values in the filters of all subscriptions"
	w := newWorld(t, with(func(c *gateway.Config) { c.MaxSubValues = 100 }))
	c := w.login(openHost, "alice")
	c.send(`["REQ","a",{"limit":0,"#h":["x","y"],"#t":[` + list(20, "%d") + `]}]`) // 2 × (16 + 1 + 20)
	c.eose("a")
	c.send(`["REQ","b",{"limit":0,"kinds":[` + strings.Repeat("1,", 10) + `1]}]`) // 16 + 11
	require.Equal(t, refusal, c.expect(wire.LabelClosed).Message)
	c.send(`["REQ","b",{"limit":0,"kinds":[1]}]`)
	c.eose("b")

	// What a client replaces makes room for what comes instead, or is closed with it.
	c.send(`["REQ","a",{"limit":0,"#h":["x","y"],"#t":[` + list(19, "%d") + `]}]`)
	c.eose("a")
	c.send(`["REQ","a",{"limit":0,"#h":["x","y"],"#t":[` + list(30, "%d") + `]}]`)
	require.Equal(t, refusal, c.expect(wire.LabelClosed).Message)
	for range 3 { // and what has ended is free
		c.send(`["REQ","c",{"limit":0,"authors":[` + list(60, "%064x") + `]}]`)
		c.eose("c")
		c.send(`["CLOSE","c"]`)
	}
	c.send(`["CLOSE"]`)
	c.expect(wire.LabelNotice) // so what came before has been done
	e := envelope(t, "x", 1)
	w.fanouts[0].publish(1, e)
	e = envelope(t, "", 2)
	w.fanouts[0].publish(2, e)
	require.Equal(t, idOf(t, e), c.event("b"), "a has ended, b has not")
}

func TestValuesOfOneRequestAreBounded(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	part := `{"#e":[` + list(3334, "%x") + `]}`
	for _, label := range []string{"REQ", "COUNT"} {
		c.send(`["` + label + `","s",` + part + `,` + part + `,` + part + `]`)
		f := c.expect(wire.LabelClosed)
		require.Equal(t, "s", f.SubID)
		require.Equal(t, "invalid: filters hold more than 10000 values", f.Message)
	}
	require.Empty(t, w.search.asked())
	require.Empty(t, w.fanouts[0].subscribed)
}

// However much one client asks for at a time, others are asked about too.
func TestOneConnectionLeavesQueriesToOthers(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.MaxQueries, c.ConnQueries = 5, 4 }))
	release := make(chan struct{})
	defer sync.OnceFunc(func() { close(release) })()
	w.search.set(func() {
		w.search.onQuery = func(q *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			if slices.Equal(q.GetFilters()[0].GetKinds(), []uint32{7}) {
				<-release
			}
			return send(&searchv1.QueryResponse{Snapshot: snapshot(1, 1)})
		}
	})
	greedy := w.login(openHost, "alice")
	for i := range 7 {
		greedy.send(fmt.Sprintf(`["REQ","r%d",{"kinds":[7]}]`, i))
	}
	greedy.send(`["COUNT","n",{"kinds":[7]}]`)
	require.Eventually(t, func() bool { return len(w.search.asked()) == 4 }, patience, time.Millisecond)
	other := w.login(openHost, "bob")
	other.send(`["REQ","s",{"kinds":[1]}]`)
	other.eose("s")
	other.send(`["COUNT","n",{"kinds":[1]}]`)
	other.expect(wire.LabelCount)
	require.Len(t, w.search.asked(), 5)
}

// When everybody comes back at once, search is not asked about all of them at once: it would refuse most, and
// live delivery's questions with them.
func TestKeysAreAskedAboutInTurn(t *testing.T) {
	w := newWorld(t)
	var running, most atomic.Int32
	w.search.set(func() {
		w.search.onCheck = func() {
			n := running.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			<-time.After(5 * time.Millisecond)
			running.Add(-1)
		}
	})
	clients := make([]*client, 40)
	for i := range clients {
		clients[i] = w.dial(openHost)
	}
	for _, c := range clients {
		c.auth("alice")
	}
	for _, c := range clients {
		f := c.next()
		require.True(t, f.OK, f.Message)
	}
	require.LessOrEqual(t, most.Load(), int32(8))
}

// Fan-out files what comes one after the other: who asks for little is not to wait for all that others ask for.
func TestLargeSubscriptionsAreAttachedAFewAtATime(t *testing.T) {
	w := newWorld(t)
	held := make(chan func(), 16) // answers to those of more than one value
	w.fanouts[0].answer(func(l *link, s *fanoutv1.Subscribe) bool {
		if len(s.GetFilters()[0].GetAuthors()) == 0 {
			return false
		}
		held <- func() { l.attached(s, 0) }
		return true
	})
	attackers := []*client{w.login(openHost, "alice"), w.login(openHost, "carol"), w.login(openHost, "dave")}
	for _, c := range attackers {
		c.send(`["REQ","large",{"limit":0,"authors":[` + list(4500, "%064x") + `]}]`)
	}
	first, second := take(t, held), take(t, held)
	c := w.login(openHost, "bob")
	c.send(`["REQ","small",{"limit":0}]`)
	c.eose("small")
	require.Empty(t, held, "the third large one waits for the others")
	second()
	third := take(t, held)
	first()
	third()
	for _, c := range attackers {
		c.eose("large")
	}
}

// A large subscription holds its places until its node has answered. A node that says nothing is left, and then the large
// ones of other nodes, which had to wait for those places, are attached as well.
func TestASilentNodeHoldsLargeSubscriptionsBackUntilItIsLeft(t *testing.T) {
	w := newWorld(t, fanouts(2), with(func(c *gateway.Config) { c.AttachTimeout = patience }))
	w.linked()
	c := w.login(openHost, "bob")
	channels := [2]string{} // one that each node serves
	for i := 0; channels[0] == "" || channels[1] == ""; i++ {
		channel := fmt.Sprintf("channel-%d", i)
		c.send(fmt.Sprintf(`["REQ","%s",{"limit":0,"#h":["%s"]}]`, channel, channel))
		c.eose(channel)
		node, _ := w.subscribed()
		channels[node] = channel
	}
	silent, other := w.fanouts[0], w.fanouts[1]
	large := func(values int, channel string) string {
		return fmt.Sprintf(`["REQ","large",{"limit":0,"#h":["%s"],"authors":[%s]}]`, channel, list(values, "%064x"))
	}
	silent.answer(func(*link, *fanoutv1.Subscribe) bool { return true })
	silent.link(t).bus(false)
	attackers := []*client{w.login(openHost, "alice"), w.login(openHost, "carol")}
	for _, a := range attackers {
		a.send(large(4500, channels[0]))
		take(t, silent.subscribed)
	}
	c.send(large(600, channels[1]))
	c.send(`["REQ","small",{"limit":0,"#h":["` + channels[1] + `"]}]`)
	c.eose("small")
	require.Empty(t, take(t, other.subscribed).GetFilters()[0].GetAuthors(), "who asks for little waits for nobody")
	require.Empty(t, other.subscribed, "all places are taken")

	silent.link(t).hush()
	c.eose("large")
	for _, a := range attackers {
		a.eose("large")
	}
}

// Without another node nobody waits for longer than attach-timeout, neither for a place nor for the node.
func TestLargeSubscriptionsWaitNoLongerThanTheTimeout(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.AttachTimeout = time.Second }))
	w.fanouts[0].answer(func(*link, *fanoutv1.Subscribe) bool { return true })
	clients := []*client{w.login(openHost, "alice"), w.login(openHost, "carol"), w.login(openHost, "bob")}
	for _, c := range clients {
		c.send(`["REQ","large",{"limit":0,"authors":[` + list(4500, "%064x") + `]}]`)
	}
	for _, c := range clients {
		c.expect(wire.LabelClosed)
	}
}
