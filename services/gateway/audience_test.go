package gateway_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// Filters that name kinds that are not for everybody have to say that the reader's own are wanted, in every kind of
// request; others are answered, and what is not for the reader is not in the answer.
func TestFiltersForTheEventsOfOthersAreRefused(t *testing.T) {
	w := newWorld(t)
	w.stores(snapshot(10, 10))
	c := w.login(openHost, "alice")
	alice, bob := nostrtest.PubKey("alice").String(), nostrtest.PubKey("bob").String()
	const byP = "p-gated events require #p matching your pubkey"
	for _, tt := range []struct{ filters, why string }{
		{`{"kinds":[44100]}`, byP},
		{`{"kinds":[44100],"#p":["` + bob + `"]}`, byP},
		{`{"kinds":[44100],"#p":["` + alice + `","` + bob + `"]}`, byP},
		{`{"kinds":[44100],"#h":["general"]},{"kinds":[1]}`, byP},
		{`{"kinds":[30622],"ids":["` + bob + `"]}`, byP},
		{`{"kinds":[1059],"search":"x"}`, byP},
		{`{"kinds":[30300]}`, "author-only kinds require authors=[self]"},
		{`{"kinds":[30174],"authors":["` + bob + `"]}`, "agent-engram reads require authors=[self] or #p=[self]"},
	} {
		for _, verb := range []string{"REQ", "COUNT"} {
			c.send(fmt.Sprintf(`[%q,"s",%s]`, verb, tt.filters))
			require.Equal(t, "restricted: "+tt.why, c.expect(wire.LabelClosed).Message, tt.filters)
		}
		for _, path := range []string{"/query", "/count"} {
			status, answer := w.post("alice", path, "["+tt.filters+"]")
			require.Equal(t, http.StatusForbidden, status, tt.filters)
			require.JSONEq(t, `{"error":"restricted: `+tt.why+`"}`, answer)
		}
	}
	require.Empty(t, w.search.asked())
	for _, filters := range []string{
		`{}`, `{"kinds":[44100],"#p":["` + alice + `"]}`, `{"kinds":[1059],"ids":["` + bob + `"]}`,
		`{"kinds":[30300],"authors":["` + alice + `"]}`, `{"kinds":[1,30300]}`, `{"kinds":[4]}`,
	} {
		c.send(`["REQ","s",` + filters + `]`)
		c.eose("s")
	}
}
