package gateway_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	fanoutv1 "github.com/apiary-relay/apiary/proto/gen/apiary/fanout/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

// snapshot saw every transaction below xmin.
func snapshot(xmin, xmax uint64, inProgress ...uint64) *commonv1.Snapshot {
	return &commonv1.Snapshot{DatabaseId: 1, Xmin: xmin, Xmax: xmax, InProgress: inProgress}
}

// stores makes search answer queries with a snapshot and envelopes.
func (w *world) stores(snap *commonv1.Snapshot, envs ...*commonv1.Envelope) {
	w.search.set(func() {
		w.search.onQuery = func(_ *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			if err := send(&searchv1.QueryResponse{Snapshot: snap}); err != nil {
				return err
			}
			for _, e := range envs {
				if err := send(&searchv1.QueryResponse{Events: [][]byte{e.GetRaw()}}); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// event takes an EVENT frame of a subscription and returns the event's id.
func (c *client) event(sub string) string {
	c.t.Helper()
	f := c.expect(wire.LabelEvent)
	require.Equal(c.t, sub, f.SubID)
	return f.EventID.String()
}

func (c *client) eose(sub string) {
	c.t.Helper()
	require.Equal(c.t, sub, c.expect(wire.LabelEOSE).SubID)
}

func TestHistoryThenEOSEThenLive(t *testing.T) {
	w := newWorld(t)
	old, older := envelope(t, "", 5, nostrtest.Content("old")), envelope(t, "", 4, nostrtest.Content("older"))
	w.stores(snapshot(10, 10), old, older)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"kinds":[1],"limit":20}]`)
	require.Equal(t, idOf(t, old), c.event("s"))
	require.Equal(t, idOf(t, older), c.event("s"))
	c.eose("s")
	fresh := envelope(t, "", 11, nostrtest.Content("fresh"))
	w.fanouts[0].publish(1, fresh)
	f := c.expect(wire.LabelEvent)
	require.Equal(t, string(fresh.GetRaw()), string(f.RawEvent), "the bytes are the author's")

	q := w.search.asked()
	require.Len(t, q, 1)
	require.Equal(t, int64(openCommunity), q[0].GetCommunity())
	require.Equal(t, uint32(20), q[0].GetFilters()[0].GetLimit())
	pk := nostrtest.PubKey("alice")
	require.Equal(t, [][]byte{pk[:]}, q[0].GetPrincipal().GetPubkeys())
}

// What commits between registration and snapshot arrives on both ways and is sent once; what the
// snapshot could not see is sent live.
func TestTheSnapshotJoinsHistoryAndLive(t *testing.T) {
	w := newWorld(t)
	both := envelope(t, "", 9, nostrtest.Content("both"))
	running := envelope(t, "", 8, nostrtest.Content("was running"))
	after := envelope(t, "", 12, nostrtest.Content("after"))
	elsewhere := envelope(t, "", 3, nostrtest.Content("another database"))
	elsewhere.Header.DatabaseId = 2
	ephemeral := envelope(t, "", 0, nostrtest.Content("ephemeral"), nostrtest.Kind(20001))
	asked, answer := make(chan struct{}), make(chan struct{})
	w.search.set(func() {
		w.search.onQuery = func(_ *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			close(asked)
			<-answer
			return send(&searchv1.QueryResponse{Snapshot: snapshot(8, 12, 8), Events: [][]byte{both.GetRaw()}})
		}
	})
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{}]`)
	take(t, asked)
	for i, e := range []*commonv1.Envelope{both, running, after, elsewhere} {
		w.fanouts[0].publish(uint64(i+1), e)
	}
	w.fanouts[0].publish(1, ephemeral)
	close(answer)
	require.Equal(t, idOf(t, both), c.event("s"))
	c.eose("s")
	require.Equal(t, idOf(t, running), c.event("s"))
	require.Equal(t, idOf(t, after), c.event("s"))
	require.Equal(t, idOf(t, elsewhere), c.event("s"))
	require.Equal(t, idOf(t, ephemeral), c.event("s"))

	// However late it comes: the outbox may republish what the history has had.
	late := envelope(t, "", 7, nostrtest.Content("late"))
	w.fanouts[0].publish(5, late)
	marker := envelope(t, "", 20, nostrtest.Content("marker"))
	w.fanouts[0].publish(6, marker)
	require.Equal(t, idOf(t, marker), c.event("s"))
}

func TestFiltersThatMatchNothing(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"kinds":[]},{"ids":[]}]`)
	c.eose("s")
	c.send(`["COUNT","n",{"authors":[]}]`)
	require.Equal(t, uint64(0), c.expect(wire.LabelCount).Count)
	require.Empty(t, w.search.asked())
	require.Empty(t, w.fanouts[0].subscribed)

	c.send(`["REQ","s",{"kinds":[]},{"kinds":[1]}]`)
	c.eose("s")
	require.Len(t, take(t, w.fanouts[0].subscribed).GetFilters(), 1)
	require.Len(t, w.search.asked()[0].GetFilters(), 1)
}

func TestLimitZeroIsLiveOnly(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":0}]`)
	c.eose("s")
	require.Empty(t, w.search.asked())
	e := envelope(t, "", 1)
	w.fanouts[0].publish(1, e)
	require.Equal(t, idOf(t, e), c.event("s"))
}

func TestLimitsAreClamped(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"limit":100000},{"kinds":[7]},{"limit":3}]`)
	c.eose("s")
	f := w.search.asked()[0].GetFilters()
	require.Equal(t, []uint32{500, 500, 3}, []uint32{f[0].GetLimit(), f[1].GetLimit(), f[2].GetLimit()})
}

func TestTopicsOfFilters(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"kinds":[9],"#h":["bees","hive","bees"]},{"kinds":[7],"#h":["hive"]},{"kinds":[0]}]`)
	c.eose("s")
	got := make(map[string]int)
	for range 3 {
		s := take(t, w.fanouts[0].subscribed)
		require.Equal(t, int64(openCommunity), s.GetCommunity())
		require.Nil(t, s.GetResumeAfter())
		got[s.GetChannel()] = len(s.GetFilters())
	}
	require.Equal(t, map[string]int{"bees": 1, "hive": 2, "": 1}, got)
	require.Empty(t, w.fanouts[0].subscribed)
}

// A channel's state goes to its channel and to the global topic; a subscription on both gets it once.
func TestChannelStateIsDeliveredOnce(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"kinds":[39000]},{"#h":["bees"]}]`)
	c.eose("s")
	state := envelope(t, "bees", 5, nostrtest.Kind(39000))
	w.fanouts[0].publish(1, state)
	global := &commonv1.Envelope{Raw: state.GetRaw(), Header: &commonv1.Header{
		Id: state.GetHeader().GetId(), Kind: 39000, Community: openCommunity, CommitXid: 5, DatabaseId: 1,
	}}
	w.fanouts[0].publish(2, global)
	marker := envelope(t, "", 6)
	w.fanouts[0].publish(3, marker)
	require.Equal(t, idOf(t, state), c.event("s"))
	require.Equal(t, idOf(t, marker), c.event("s"))
}

func TestAReplacedSubscriptionIsSilent(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"#h":["old"]}]`)
	c.eose("s")
	old := take(t, w.fanouts[0].subscribed)
	w.fanouts[0].answer(func(l *link, s *fanoutv1.Subscribe) bool {
		// Late deliveries for the old handle, before and after the new one is confirmed.
		l.deliver(1, envelope(t, "old", 1, nostrtest.Content("late")), old.GetHandle())
		l.attached(s, 1)
		l.deliver(2, envelope(t, "old", 2, nostrtest.Content("later")), old.GetHandle())
		return true
	})
	c.send(`["REQ","s",{"#h":["new"]}]`)
	c.eose("s")
	require.Equal(t, old.GetHandle(), take(t, w.fanouts[0].forgotten))
	e := envelope(t, "new", 3)
	w.fanouts[0].publish(3, e)
	require.Equal(t, idOf(t, e), c.event("s"))
}

func TestClose(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	c.send(`["REQ","a",{"limit":0}]`)
	c.eose("a")
	handle := take(t, w.fanouts[0].subscribed).GetHandle()
	c.send(`["REQ","b",{"limit":0}]`)
	c.eose("b")
	c.send(`["CLOSE","a"]`)
	require.Equal(t, handle, take(t, w.fanouts[0].forgotten))
	e := envelope(t, "", 1)
	w.fanouts[0].link(t).deliver(1, e, handle)
	w.fanouts[0].publish(1, e)
	require.Equal(t, idOf(t, e), c.event("b"))
	c.send(`["CLOSE","never opened"]`)
	c.quiet()
}

func TestCloseStopsAQuery(t *testing.T) {
	w := newWorld(t)
	asked, stopped := make(chan struct{}), make(chan struct{})
	w.search.set(func() {
		w.search.onQuery = func(_ *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			close(asked)
			defer close(stopped)
			for { // until the gateway has hung up
				if err := send(&searchv1.QueryResponse{Snapshot: snapshot(1, 1)}); err != nil {
					return err
				}
			}
		}
	})
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{}]`)
	take(t, asked)
	c.send(`["CLOSE","s"]`)
	take(t, stopped)
	c.quiet()
}

func TestSubscriptionLimit(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.MaxSubs = 3 }))
	c := w.login(openHost, "alice")
	for i := range 3 {
		c.send(fmt.Sprintf(`["REQ","s%d",{"limit":0}]`, i))
		c.eose("s" + strconv.Itoa(i))
	}
	c.send(`["REQ","more",{"limit":0}]`)
	f := c.expect(wire.LabelClosed)
	require.Equal(t, "more", f.SubID)
	require.Contains(t, f.Message, "too many subscriptions")
	c.send(`["REQ","s1",{"limit":0}]`)
	c.eose("s1")
	c.send(`["CLOSE","s1"]`)
	c.send(`["REQ","more",{"limit":0}]`)
	c.eose("more")
}

func TestQueryFailures(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fault.New(fault.Overloaded, ""), "error: temporarily unavailable, try again"},
		{fault.New(fault.Restricted, "not for you"), "restricted: not for you"},
		{fault.New(fault.Unsupported, "cannot be counted"), "unsupported: cannot be counted"},
	} {
		w.search.set(func() {
			w.search.onQuery = func(*searchv1.QueryRequest, func(*searchv1.QueryResponse) error) error { return tt.err }
			w.search.onCount = func(*searchv1.CountRequest) (uint64, error) { return 0, tt.err }
		})
		c.send(`["REQ","s",{}]`)
		f := c.expect(wire.LabelClosed)
		require.Equal(t, "s", f.SubID)
		require.Equal(t, tt.want, f.Message)
		c.send(`["COUNT","n",{}]`)
		require.Equal(t, tt.want, c.expect(wire.LabelClosed).Message)
	}
	// The subscriptions are gone from fan-out too.
	for range 3 {
		require.Equal(t, take(t, w.fanouts[0].subscribed).GetHandle(), take(t, w.fanouts[0].forgotten))
	}
}

func TestSearchIsRetriedBeforeItAnswered(t *testing.T) {
	w := newWorld(t)
	calls := 0
	w.search.set(func() {
		w.search.onQuery = func(_ *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			if calls++; calls == 1 {
				return fault.New(fault.Overloaded, "")
			}
			return send(&searchv1.QueryResponse{Snapshot: snapshot(1, 1)})
		}
	})
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{}]`)
	c.eose("s")
}

func TestSearchThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.CallTimeout = 100 * time.Millisecond }))
	release := make(chan struct{})
	defer close(release)
	w.search.set(func() {
		w.search.onQuery = func(*searchv1.QueryRequest, func(*searchv1.QueryResponse) error) error {
			<-release
			return nil
		}
	})
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{}]`)
	require.Contains(t, c.expect(wire.LabelClosed).Message, "error: timed out")
}

func TestFanoutThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.AttachTimeout = 100 * time.Millisecond }))
	w.fanouts[0].answer(func(*link, *fanoutv1.Subscribe) bool { return true })
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{}]`)
	require.Equal(t, "error: temporarily unavailable, try again", c.expect(wire.LabelClosed).Message)
	require.Empty(t, w.search.asked(), "history is not read before the live side stands")
}

func TestCount(t *testing.T) {
	w := newWorld(t)
	w.search.set(func() {
		w.search.onCount = func(r *searchv1.CountRequest) (uint64, error) {
			return uint64(len(r.GetFilters())) * 21, nil
		}
	})
	c := w.login(openHost, "alice")
	c.send(`["COUNT","n",{"kinds":[1]},{"kinds":[7]}]`)
	f := c.expect(wire.LabelCount)
	require.Equal(t, "n", f.SubID)
	require.Equal(t, uint64(42), f.Count)
	require.Empty(t, w.fanouts[0].subscribed)
}

func TestALongHistoryComesWhole(t *testing.T) {
	const n = 3000
	w := newWorld(t, with(func(c *gateway.Config) { c.QueueFrames = 20 }))
	var stored []*commonv1.Envelope
	body := strings.Repeat("x", 500)
	for i := range n {
		stored = append(stored, &commonv1.Envelope{Raw: fmt.Appendf(nil, `{"id":"%064x","content":"%s"}`, i, body)})
	}
	w.stores(snapshot(1, 1), stored...)
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{}]`)
	for i := range n {
		require.Equal(t, fmt.Sprintf("%064x", i), c.event("s"))
	}
	c.eose("s")
}

// More REQs than workers: all are served.
func TestManySubscriptionsAtOnce(t *testing.T) {
	const n = 200
	w := newWorld(t)
	c := w.login(openHost, "alice")
	for i := range n {
		c.send(fmt.Sprintf(`["REQ","s%d",{"limit":1}]`, i))
	}
	open := make(map[string]bool)
	for range n {
		open[c.expect(wire.LabelEOSE).SubID] = true
	}
	require.Len(t, open, n)
	e := envelope(t, "", 1)
	w.fanouts[0].publish(1, e)
	for range n {
		f := c.expect(wire.LabelEvent)
		require.True(t, open[f.SubID])
		delete(open, f.SubID)
	}
}
