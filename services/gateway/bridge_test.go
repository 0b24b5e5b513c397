package gateway_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

// nonce keeps two tokens for the same request in the same second apart, as a client has to.
var nonce atomic.Int64

// token signs a POST to a URL of the open community (NIP-98).
func token(tb testing.TB, name, path, body string, opts ...nostrtest.Option) http.Header {
	tb.Helper()
	return tokenAt(tb, openHost, name, path, body, opts...)
}

// tokenAt is token for a host.
func tokenAt(tb testing.TB, host, name, path, body string, opts ...nostrtest.Option) http.Header {
	tb.Helper()
	sum := sha256.Sum256([]byte(body))
	all := []nostrtest.Option{
		nostrtest.Kind(nostr.KindHTTPAuth), nostrtest.CreatedAt(time.Now().Unix()),
		nostrtest.Tag("u", "https://"+host+path), nostrtest.Tag("method", "POST"),
		nostrtest.Tag("payload", hex.EncodeToString(sum[:])),
		nostrtest.Tag("nonce", strconv.FormatInt(nonce.Add(1), 10)),
	}
	ev := nostrtest.Event(tb, name, append(all, opts...)...)
	return http.Header{"Authorization": {"Nostr " + base64.StdEncoding.EncodeToString(nostrtest.Raw(ev))}}
}

// post makes a signed POST and returns its status and answer.
func (w *world) post(name, path, body string) (status int, answer string) {
	w.tb.Helper()
	status, head, answer := w.requestBody(http.MethodPost, openHost, path, token(w.tb, name, path, body), body)
	require.Equal(w.tb, "application/json", head.Get("Content-Type"))
	require.Equal(w.tb, "no-store", head.Get("Cache-Control"))
	require.Equal(w.tb, "*", head.Get("Access-Control-Allow-Origin"))
	return status, answer
}

func TestSignedRequestsAreChecked(t *testing.T) {
	w := newWorld(t)
	const body = `[{}]`
	sum := sha256.Sum256([]byte(body))
	signed := func(u, method string, at time.Duration, tags ...nostrtest.Option) http.Header {
		all := append([]nostrtest.Option{
			nostrtest.Kind(nostr.KindHTTPAuth), nostrtest.CreatedAt(time.Now().Add(at).Unix()),
			nostrtest.Tag("u", u), nostrtest.Tag("method", method),
		}, tags...)
		return http.Header{"Authorization": {"Nostr " + base64.StdEncoding.EncodeToString(nostrtest.Raw(nostrtest.Event(t, "alice", all...)))}}
	}
	payload := nostrtest.Tag("payload", hex.EncodeToString(sum[:]))
	url := "http://" + openHost + "/count"
	for name, tt := range map[string]struct {
		head   http.Header
		status int
	}{
		"http as well as https":  {signed(url, "POST", 0, payload), http.StatusOK},
		"no header":              {nil, http.StatusUnauthorized},
		"another scheme":         {http.Header{"Authorization": {"Bearer x"}}, http.StatusUnauthorized},
		"no event":               {http.Header{"Authorization": {"Nostr e30="}}, http.StatusUnauthorized},
		"another host":           {signed("https://"+closedHost+"/count", "POST", 0, payload), http.StatusUnauthorized},
		"another path":           {signed("https://"+openHost+"/query", "POST", 0, payload), http.StatusUnauthorized},
		"another query":          {signed(url+"?x=1", "POST", 0, payload), http.StatusUnauthorized},
		"another method":         {signed(url, "GET", 0, payload), http.StatusUnauthorized},
		"too old":                {signed(url, "POST", -2*time.Minute, payload), http.StatusUnauthorized},
		"from the future":        {signed(url, "POST", 2*time.Minute, payload), http.StatusUnauthorized},
		"body that is unsigned":  {signed(url, "POST", 0), http.StatusUnauthorized},
		"body that is different": {signed(url, "POST", 0, nostrtest.Tag("payload", hex.EncodeToString(make([]byte, 32)))), http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			status, head, answer := w.requestBody(http.MethodPost, openHost, "/count", tt.head, body)
			require.Equal(t, tt.status, status, answer)
			if status == http.StatusUnauthorized {
				require.Equal(t, "Nostr", head.Get("WWW-Authenticate"))
				var e struct{ Error string }
				require.NoError(t, json.Unmarshal([]byte(answer), &e))
				require.NotEmpty(t, e.Error)
			}
		})
	}
}

func TestTokensAreUsedOnce(t *testing.T) {
	w := newWorld(t, ingests(2))
	head := token(t, "alice", "/count", `[{}]`)
	status, _, _ := w.requestBody(http.MethodPost, openHost, "/count", head, `[{}]`)
	require.Equal(t, http.StatusOK, status)
	status, _, answer := w.requestBody(http.MethodPost, openHost, "/count", head, `[{}]`)
	require.Equal(t, http.StatusUnauthorized, status)
	require.JSONEq(t, `{"error":"this authentication event was used before"}`, answer)
	w.moderation.set(func() {
		require.Len(t, w.moderation.tokens, 1)
		for _, token := range w.moderation.tokens {
			require.EqualValues(t, openCommunity, token.GetCommunity())
			require.Greater(t, time.Until(token.GetExpiresAt().AsTime()), time.Minute, "not before it is too old")
		}
	})

	w.moderation.set(func() { w.moderation.down = true })
	status, answer = w.post("alice", "/count", `[{}]`)
	require.Equal(t, http.StatusServiceUnavailable, status, "nothing is done on a token that may have been used")
	require.Contains(t, answer, `"error"`)
}

func TestKeysThatMayNotUseTheCommunity(t *testing.T) {
	w := newWorld(t)
	w.search.set(func() { w.search.onAccess = func([]byte) bool { return false } })
	status, answer := w.post("alice", "/query", `[{}]`)
	require.Equal(t, http.StatusForbidden, status)
	require.JSONEq(t, `{"error":"you are banned from this community"}`, answer)
	require.Empty(t, w.search.asked())
	w.search.set(func() { w.search.accessErr = fault.New(fault.Overloaded, "") })
	status, _ = w.post("alice", "/query", `[{}]`)
	require.Equal(t, http.StatusServiceUnavailable, status)
}

func TestQueriesOverHTTP(t *testing.T) {
	w := newWorld(t)
	one, two := nostrtest.Raw(nostrtest.Event(t, "bob")), nostrtest.Raw(nostrtest.Event(t, "bob", nostrtest.Content("two")))
	w.search.set(func() {
		w.search.onQuery = func(_ *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			if err := send(&searchv1.QueryResponse{Snapshot: &commonv1.Snapshot{}, Events: [][]byte{one}}); err != nil {
				return err
			}
			return send(&searchv1.QueryResponse{Events: [][]byte{two}})
		}
	})
	status, answer := w.post("alice", "/query", `[{"search":"bees","kinds":[1],"limit":9000},{"search":"wax","limit":3}]`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, "["+string(one)+","+string(two)+"]", answer)
	asked := w.search.asked()[0]
	alice := nostrtest.PubKey("alice")
	require.Equal(t, [][]byte{alice[:]}, asked.GetPrincipal().GetPubkeys())
	require.EqualValues(t, 500, asked.GetFilters()[0].GetLimit(), "as a REQ's")
	require.Equal(t, "wax", asked.GetFilters()[1].GetSearch())

	status, answer = w.post("alice", "/query", `[{"ids":[]}]`)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "[]", answer)

	for body, part := range map[string]string{
		``:                     "array",
		`{}`:                   "array",
		`[]`:                   "a filter",
		`[{"kinds":["x"]}]`:    "integer",
		`[{"colour":"red"}]`:   "invalid filters: filter contains unknown elements",
		`[{"#h":["no good"]}]`: "channel id",
	} {
		status, answer = w.post("alice", "/query", body)
		require.Equal(t, http.StatusBadRequest, status, body)
		require.Contains(t, answer, part, body)
	}
}

func TestAnswersOverHTTPAreBounded(t *testing.T) {
	w := newWorld(t)
	large := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	w.search.set(func() {
		w.search.onQuery = func(_ *searchv1.QueryRequest, send func(*searchv1.QueryResponse) error) error {
			for range 5 {
				if err := send(&searchv1.QueryResponse{Events: [][]byte{large}}); err != nil {
					return err
				}
			}
			return nil
		}
	})
	status, answer := w.post("alice", "/query", `[{}]`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, answer, "larger than 4194304 bytes")
}

func TestCountsOverHTTP(t *testing.T) {
	w := newWorld(t)
	w.search.set(func() { w.search.onCount = func(*searchv1.CountRequest) (uint64, error) { return 3, nil } })
	status, answer := w.post("alice", "/count", `[{"kinds":[1]}]`)
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"count":3}`, answer)
	w.search.set(func() { w.search.hll = []byte{1, 2} })
	_, answer = w.post("alice", "/count", `[{"kinds":[1]}]`)
	require.JSONEq(t, `{"count":3,"hll":"0102"}`, answer)
	w.search.set(func() {
		w.search.onCount = func(*searchv1.CountRequest) (uint64, error) {
			return 0, fault.New(fault.Restricted, "count filter requires narrower constraints")
		}
	})
	status, answer = w.post("alice", "/count", `[{}]`)
	require.Equal(t, http.StatusBadRequest, status)
	require.JSONEq(t, `{"error":"count filter requires narrower constraints"}`, answer)
}

func TestCallsAreBounded(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.MaxCalls, c.MaxFrame = 1, 100 }))
	status, answer := w.post("alice", "/count", `[{"search":"`+strings.Repeat("x", 100)+`"}]`)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.JSONEq(t, `{"error":"the body is too large"}`, answer)

	entered, leave := make(chan struct{}), make(chan struct{})
	w.search.set(func() {
		w.search.onCount = func(*searchv1.CountRequest) (uint64, error) {
			close(entered)
			<-leave
			return 1, nil
		}
	})
	first := make(chan int, 1)
	go func() {
		status, _ := w.post("alice", "/count", `[{"kinds":[1]}]`)
		first <- status
	}()
	take(t, entered)
	status, answer = w.post("alice", "/count", `[{"kinds":[2]}]`)
	close(leave)
	require.Equal(t, http.StatusServiceUnavailable, status, answer)
	require.Equal(t, http.StatusOK, take(t, first))
}

// Clients that send their bodies slowly take no call from others, and are not waited for long.
func TestSlowBodiesTakeNoCalls(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.MaxCalls = 2 }))
	var slow []net.Conn
	for range 10 {
		c, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", w.addr)
		require.NoError(t, err)
		defer c.Close()
		_, err = io.WriteString(c, "POST /query HTTP/1.1\r\nHost: "+openHost+"\r\nAuthorization: Nostr x\r\nContent-Length: 100\r\n\r\n[")
		require.NoError(t, err)
		slow = append(slow, c)
	}
	for range 3 {
		status, answer := w.post("alice", "/count", `[{"kinds":[2]}]`)
		require.Equal(t, http.StatusOK, status, answer)
	}
	for _, c := range slow {
		_, err := io.WriteString(c, strings.Repeat(" ", 98)+"]")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
		require.False(t, resp.Close, "the body was read: the connection may be used again")
	}
}

func TestCallsArePosts(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/query", "/count"} {
		status, head, body := w.request(http.MethodGet, openHost, path, nil)
		require.Equal(t, http.StatusMethodNotAllowed, status)
		require.Equal(t, "application/json", head.Get("Content-Type"))
		require.JSONEq(t, `{"error":"method not allowed"}`, body)
		require.Equal(t, "POST, OPTIONS", head.Get("Allow"))
		status, head, _ = w.request(http.MethodOptions, openHost, path, nil)
		require.Equal(t, http.StatusNoContent, status)
		require.Contains(t, head.Get("Access-Control-Allow-Headers"), "Authorization")
	}
}
