package gateway_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/gateway"
)

func TestUnknownHostsAndPathsGetTheSameBytes(t *testing.T) {
	w := newWorld(t)
	type answer struct {
		status int
		kind   string
		body   string
	}
	ask := func(method, host, path string, h http.Header) answer {
		status, head, body := w.request(method, host, path, h)
		head.Del("Date")
		require.NotContains(t, head, "Access-Control-Allow-Origin")
		return answer{status, head.Get("Content-Type"), body}
	}
	want := ask(http.MethodGet, "nobody.example", "/", nil)
	require.Equal(t, http.StatusNotFound, want.status)
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
	require.Equal(t, want, ask(http.MethodGet, "nobody.example", "/any/path?q=1", nil))
	require.Equal(t, want, ask(http.MethodPost, "nobody.example", "/", nil))
	require.Equal(t, want, ask(http.MethodOptions, "nobody.example", "/", nil))
	require.Equal(t, want, ask(http.MethodGet, "nobody.example", "/", upgrade))
	require.Equal(t, want, ask(http.MethodGet, "not a host", "/", nil))
	require.Equal(t, want, ask(http.MethodPost, "nobody.example", "/", http.Header{"Accept": {"application/nostr+json"}}))
	require.Equal(t, want, ask(http.MethodGet, openHost, "/nothing-here", nil))
	require.Equal(t, want, ask(http.MethodGet, openHost, "/nothing-here", upgrade))
}

func TestHostsAreRememberedForAWhile(t *testing.T) {
	w := newWorld(t)
	for range 5 {
		status, _, _ := w.request(http.MethodGet, openHost, "/", nil)
		require.Equal(t, http.StatusOK, status)
		status, _, _ = w.request(http.MethodGet, "nobody.example", "/", nil)
		require.Equal(t, http.StatusNotFound, status)
	}
	w.search.set(func() { require.Equal(t, 2, w.search.resolved) })
}

func TestHostsAreForgottenInTime(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.HostTTL = time.Millisecond }))
	status, _, _ := w.request(http.MethodGet, openHost, "/", nil)
	require.Equal(t, http.StatusOK, status)
	w.search.set(func() { delete(w.search.hosts, openHost) })
	require.Eventually(t, func() bool {
		status, _, _ := w.request(http.MethodGet, openHost, "/", nil)
		return status == http.StatusNotFound
	}, patience, 2*time.Millisecond, "the directory must ask again")
}

func TestSearchDownIsUnavailable(t *testing.T) {
	w := newWorld(t)
	w.search.set(func() { w.search.down = true })
	status, head, body := w.request(http.MethodGet, openHost, "/", nil)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.NotEmpty(t, head.Get("Retry-After"))
	require.JSONEq(t, `{"error":"temporarily unavailable"}`, body)
}

func TestRelayInformation(t *testing.T) {
	w := newWorld(t)
	status, head, body := w.request(http.MethodGet, openHost, "/", http.Header{"Accept": {"text/html, application/nostr+json;q=0.9"}})
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "application/nostr+json", head.Get("Content-Type"))
	for _, h := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods"} {
		require.NotEmpty(t, head.Get(h), h)
	}
	golden := filepath.Join("testdata", "nip11.golden.json")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(body+"\n"), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.JSONEq(t, string(want), body)
}

func TestRelayInformationSaysWhereWritesAreRestricted(t *testing.T) {
	w := newWorld(t)
	for host, restricted := range map[string]string{openHost: "false", closedHost: "true"} {
		_, _, body := w.request(http.MethodGet, host, "/", http.Header{"Accept": {"application/nostr+json"}})
		require.Contains(t, body, `"auth_required":true`)
		require.Contains(t, body, `"restricted_writes":`+restricted)
	}
}

func TestRelayInformationFollowsTheConfiguration(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) {
		c.MaxFrame, c.MaxSubs, c.Limit, c.CreatedAtWindow = 1000, 3, 7, 0
	}))
	_, _, body := w.request(http.MethodGet, openHost, "/", http.Header{"Accept": {"application/nostr+json"}})
	require.Contains(t, body, `"max_message_length":1000`)
	require.Contains(t, body, `"max_subscriptions":3`)
	require.Contains(t, body, `"max_limit":7`)
	require.NotContains(t, body, "created_at")
}

func TestRelayInformationOfACommunity(t *testing.T) {
	owner, self := nostrtest.PubKey("owner"), nostrtest.PubKey("relay").String()
	w := newWorld(t, with(func(c *gateway.Config) { c.Self, c.Contact = self, nostrtest.PubKey("operator").String() }))
	w.search.set(func() { w.search.hosts[closedHost].Owner, w.search.hosts[closedHost].MinPow = owner[:], 12 })
	accept := http.Header{"Accept": {"application/nostr+json"}}
	type document struct {
		PubKey, Self string
		Limitation   struct {
			MinPow     int  `json:"min_pow_difficulty"`
			Auth       bool `json:"auth_required"`
			Restricted bool `json:"restricted_writes"`
		}
	}
	ask := func(host string) (d document) {
		_, _, body := w.request(http.MethodGet, host, "/", accept)
		require.NoError(t, json.Unmarshal([]byte(body), &d))
		return d
	}
	closed := ask(closedHost)
	require.Equal(t, owner.String(), closed.PubKey)
	require.Equal(t, self, closed.Self)
	require.Equal(t, 12, closed.Limitation.MinPow)
	require.True(t, closed.Limitation.Auth)
	require.True(t, closed.Limitation.Restricted)
	open := ask(openHost)
	require.Equal(t, nostrtest.PubKey("operator").String(), open.PubKey, "who runs it, without an owner")
	require.Zero(t, open.Limitation.MinPow)
	require.True(t, open.Limitation.Auth)
	require.False(t, open.Limitation.Restricted)
}

func TestRelayInformationIsRevalidated(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.HostTTL = time.Millisecond }))
	ask := func(match string) (int, http.Header, string) {
		h := http.Header{"Accept": {"application/nostr+json"}}
		if match != "" {
			h.Set("If-None-Match", match)
		}
		return w.request(http.MethodGet, openHost, "/", h)
	}
	status, head, _ := ask("")
	tag := head.Get("ETag")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "no-cache", head.Get("Cache-Control"))
	require.Equal(t, "Accept", head.Get("Vary"))
	for _, match := range []string{tag, `"x", W/` + tag, "*"} {
		status, head, body := ask(match)
		require.Equal(t, http.StatusNotModified, status, match)
		require.Equal(t, tag, head.Get("ETag"))
		require.Equal(t, "*", head.Get("Access-Control-Allow-Origin"))
		require.Empty(t, body)
	}
	status, _, _ = ask(`"x"`)
	require.Equal(t, http.StatusOK, status)
	w.search.set(func() { w.search.hosts[openHost].Name = "Another" })
	require.Eventually(t, func() bool {
		status, head, _ := ask(tag)
		return status == http.StatusOK && head.Get("ETag") != tag
	}, patience, 2*time.Millisecond)
}

func TestBlockedNetworks(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.HostTTL = time.Millisecond }))
	w.search.set(func() { w.search.hosts[openHost].BlockedNetworks = []string{"192.0.2.0/24", "127.0.0.0/8"} })
	status, head, want := w.request(http.MethodGet, openHost, "/", nil)
	require.Equal(t, http.StatusForbidden, status)
	require.JSONEq(t, `{"error":"forbidden"}`, want)
	require.NotContains(t, head, "Access-Control-Allow-Origin")
	for _, path := range []string{"/nothing-here", "/query"} {
		status, _, body := w.request(http.MethodPost, openHost, path, nil)
		require.Equal(t, http.StatusForbidden, status)
		require.Equal(t, want, body)
	}
	_, resp, err := w.tryDial(openHost)
	require.Error(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	status, _, _ = w.request(http.MethodGet, openHost, "/", http.Header{"X-Forwarded-For": {"198.51.100.1"}})
	require.Equal(t, http.StatusForbidden, status, "nobody believes that")
	status, _, _ = w.request(http.MethodGet, closedHost, "/", nil)
	require.Equal(t, http.StatusOK, status, "another community's matter")

	w.search.set(func() { w.search.hosts[openHost].BlockedNetworks = nil })
	require.Eventually(t, func() bool {
		status, _, _ := w.request(http.MethodGet, openHost, "/", nil)
		return status == http.StatusOK
	}, patience, 2*time.Millisecond)
}

func TestBlockedNetworksBehindAProxy(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.TrustedProxies = []string{"127.0.0.1", "10.0.0.0/8"} }))
	w.search.set(func() { w.search.hosts[openHost].BlockedNetworks = []string{"192.0.2.0/24"} })
	for forwarded, want := range map[string]int{
		"198.51.100.1":                      http.StatusOK,
		"192.0.2.9":                         http.StatusForbidden,
		"198.51.100.1, 192.0.2.9, 10.1.1.1": http.StatusForbidden,
		"192.0.2.9, 198.51.100.1":           http.StatusOK,
	} {
		status, _, _ := w.request(http.MethodGet, openHost, "/", http.Header{"X-Forwarded-For": {forwarded}})
		require.Equal(t, want, status, forwarded)
	}
}

func TestPreflightAndPlainRequests(t *testing.T) {
	w := newWorld(t)
	status, head, body := w.request(http.MethodOptions, openHost, "/", nil)
	require.Equal(t, http.StatusNoContent, status)
	require.Equal(t, "*", head.Get("Access-Control-Allow-Origin"))
	require.Empty(t, body)
	status, _, body = w.request(http.MethodGet, openHost, "/", nil)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "Nostr relay")
	status, _, _ = w.request(http.MethodPost, openHost, "/", nil)
	require.Equal(t, http.StatusMethodNotAllowed, status)
}

func TestForwardedHostNeedsTrust(t *testing.T) {
	forwarded := http.Header{"X-Forwarded-Host": {"nobody.example, " + openHost}}
	status, _, _ := newWorld(t).request(http.MethodGet, "nobody.example", "/", forwarded)
	require.Equal(t, http.StatusNotFound, status)
	w := newWorld(t, with(func(c *gateway.Config) { c.TrustForwardedHost = true }))
	status, _, _ = w.request(http.MethodGet, "nobody.example", "/", forwarded)
	require.Equal(t, http.StatusOK, status)
}

func TestConnectionLimit(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.MaxConnections = 2 }))
	first := w.dial(openHost)
	w.dial(openHost)
	_, resp, err := w.tryDial(openHost)
	require.Error(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))

	first.ws.CloseNow()
	require.Eventually(t, func() bool {
		c, resp, err := w.tryDial(openHost)
		if err != nil {
			resp.Body.Close()
			return false
		}
		return c != nil
	}, patience, 10*time.Millisecond, "a place must be given back")
}

// A body is never waited for: a client that announces one and does not send it would hold its connection for
// ever.
func TestBodiesAreNotWaitedFor(t *testing.T) {
	w := newWorld(t)
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for _, tt := range []struct {
		name, head string
		status     int
	}{
		{"a post", "POST / HTTP/1.1\r\nHost: " + openHost + "\r\nContent-Length: 1000\r\n\r\n", http.StatusMethodNotAllowed},
		{"in chunks", "POST / HTTP/1.1\r\nHost: " + openHost + "\r\nTransfer-Encoding: chunked\r\n\r\n", http.StatusMethodNotAllowed},
		{"with a question before", "POST / HTTP/1.1\r\nHost: " + openHost + "\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n", http.StatusMethodNotAllowed},
		{"a get", "GET / HTTP/1.1\r\nHost: " + openHost + "\r\nContent-Length: 1000\r\n\r\n", http.StatusOK},
		{"to nobody", "POST /x HTTP/1.1\r\nHost: nobody.example\r\nContent-Length: 1000\r\n\r\n", http.StatusNotFound},
		{"a handshake", "GET / HTTP/1.1\r\nHost: " + openHost + "\r\n" + upgrade + "Content-Length: 1000\r\n\r\n", http.StatusBadRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", w.addr)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
			_, err = io.WriteString(c, tt.head)
			require.NoError(t, err)
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, nil)
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, tt.status, resp.StatusCode)
			require.True(t, resp.Close)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			_, err = r.ReadByte()
			require.ErrorIs(t, err, io.EOF)
		})
	}
}
