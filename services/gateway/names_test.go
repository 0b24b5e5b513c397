package gateway_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
)

// named is what the fake of search knows of names.
type named struct {
	mu    sync.Mutex
	keys  map[string][]byte // by name@host
	asked int
	down  bool
}

func (n *named) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (s *search) ResolveName(_ context.Context, req *searchv1.ResolveNameRequest) (*searchv1.ResolveNameResponse, error) {
	n := &s.named
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	key := n.keys[req.GetName()+"@"+req.GetHost()]
	switch {
	case n.down:
		return nil, fault.New(fault.Overloaded, "")
	case key == nil:
		return nil, fault.New(fault.NotFound, "")
	}
	return &searchv1.ResolveNameResponse{Pubkey: key}, nil
}

func TestNamesOfAHost(t *testing.T) {
	w := newWorld(t)
	alice, other := nostrtest.PubKey("alice"), nostrtest.PubKey("other alice")
	names := &w.search.named
	names.set(func() { names.keys = map[string][]byte{"alice@" + openHost: alice[:], "alice@" + closedHost: other[:]} })
	ask := func(host, query string, head http.Header) string {
		t.Helper()
		status, headers, answer := w.request(http.MethodGet, host, "/.well-known/nostr.json"+query, head)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "*", headers.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "application/json", headers.Get("Content-Type"))
		return answer
	}
	key := alice.String()
	require.JSONEq(t, `{"names":{"alice":"`+key+`"},"relays":{"`+key+`":["ws://open.example"]}}`, ask(openHost, "?name=alice", nil))
	require.JSONEq(t, `{"names":{"Alice":"`+key+`"},"relays":{"`+key+`":["wss://open.example"]}}`,
		ask(openHost, "?name=Alice", http.Header{"X-Forwarded-Proto": {"https"}}))
	require.Contains(t, ask(closedHost, "?name=alice", nil), other.String(), "each host has names of its own")
	names.set(func() { names.asked = 0 })
	for _, query := range []string{"", "?name=", "?name=" + url.QueryEscape("a b"), "?name=" + strings.Repeat("a", 65), "?name=%00", "?nam=alice"} {
		require.JSONEq(t, `{"names":{},"relays":{}}`, ask(openHost, query, nil), query)
	}
	names.set(func() { require.Zero(t, names.asked, "what is no name costs no question") })
	require.JSONEq(t, `{"names":{},"relays":{}}`, ask(openHost, "?name=bob", nil))

	status, _, _ := w.request(http.MethodGet, "nobody.example", "/.well-known/nostr.json?name=alice", nil)
	require.Equal(t, http.StatusNotFound, status)
	status, head, _ := w.request(http.MethodPost, openHost, "/.well-known/nostr.json?name=alice", nil)
	require.Equal(t, http.StatusMethodNotAllowed, status)
	require.Equal(t, "GET, HEAD, OPTIONS", head.Get("Allow"))
	names.set(func() { names.down = true })
	status, _, _ = w.request(http.MethodGet, openHost, "/.well-known/nostr.json?name=alice", nil)
	require.Equal(t, http.StatusServiceUnavailable, status)
}
