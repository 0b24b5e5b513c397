package gateway_test

import (
	"bytes"
	"fmt"
	"net/http"
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

// A search (NIP-50) is answered from storage and stays open without anything live, until CLOSE.
func TestASearchIsForStoredEvents(t *testing.T) {
	w := newWorld(t)
	found := nostrtest.Raw(nostrtest.Event(t, "bob"))
	w.search.set(func() {
		w.search.onQuery = func(_ *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			return send(&searchv1.QueryResponse{Snapshot: &commonv1.Snapshot{}, Events: [][]byte{found}})
		}
	})
	c := w.login(openHost, "alice")
	c.send(`["REQ","s",{"search":"best bees","kinds":[1]}]`)
	require.Equal(t, found, c.expect(wire.LabelEvent).RawEvent)
	c.expect(wire.LabelEOSE)
	asked := w.search.asked()
	require.Len(t, asked, 1)
	require.Equal(t, "best bees", asked[0].GetFilters()[0].GetSearch())
	require.Empty(t, w.fanouts[0].subscribed, "nothing is listened for")
	c.send(`["CLOSE","s"]`)
	c.quiet()

	// What a search finds has an order of its own, which no other filter's events have a place in.
	const mixed = "mixed search and non-search filters not supported"
	for _, filters := range []string{`{"search":"bees"},{"#h":["hive"]}`, `{"kinds":[]},{"search":"bees"}`} {
		for _, verb := range []string{"REQ", "COUNT"} {
			c.send(fmt.Sprintf(`[%q,"t",%s]`, verb, filters))
			require.Equal(t, "invalid: "+mixed, c.expect(wire.LabelClosed).Message)
		}
		for _, path := range []string{"/query", "/count"} {
			status, answer := w.post("alice", path, "["+filters+"]")
			require.Equal(t, http.StatusBadRequest, status)
			require.JSONEq(t, `{"error":"`+mixed+`"}`, answer)
		}
	}
	status, answer := w.post("alice", "/query", `[{"search":"bees","search_mode":"prefix"},{"#h":["hive"],"top_level":true}]`)
	require.Equal(t, http.StatusBadRequest, status)
	require.JSONEq(t, `{"error":"`+mixed+`"}`, answer)
	require.Len(t, w.search.asked(), 1)
	require.Empty(t, w.fanouts[0].subscribed)
}

func TestCountsCarryTheirRegisters(t *testing.T) {
	w := newWorld(t)
	registers := bytes.Repeat([]byte{3, 255}, wire.Registers/2)
	w.search.set(func() {
		w.search.hll = registers
		w.search.onCount = func(*searchv1.CountRequest) (uint64, error) { return 7, nil }
	})
	c := w.login(openHost, "alice")
	c.send(`["COUNT","n",{"#p":["x"],"kinds":[3]}]`)
	f := c.expect(wire.LabelCount)
	require.Equal(t, uint64(7), f.Count)
	require.Equal(t, registers, f.HLL)
	// With two filters a client could not tell which one the offset comes from.
	c.send(`["COUNT","n",{"#p":["x"],"kinds":[3]},{"ids":[]}]`)
	f = c.expect(wire.LabelCount)
	require.Equal(t, uint64(7), f.Count)
	require.Nil(t, f.HLL)
}

// A banned key is refused in an open community too, and loses its connection.
func TestBannedKeys(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.Revalidate = 20 * time.Millisecond }))
	bob := nostrtest.PubKey("bob")
	here, other := w.login(openHost, "bob"), w.login(openHost, "alice")
	w.search.set(func() { w.search.onAccess = func(k []byte) bool { return string(k) != string(bob[:]) } })
	code, reason := here.closed()
	require.Equal(t, websocket.StatusPolicyViolation, code)
	require.Equal(t, "blocked: you are banned from this community", reason)
	again := w.dial(openHost)
	again.auth("bob")
	f := again.expect(wire.LabelOK)
	require.False(t, f.OK)
	require.Equal(t, "blocked: you are banned from this community", f.Message)
	other.send(`["COUNT","n",{}]`)
	other.expect(wire.LabelCount)
}
