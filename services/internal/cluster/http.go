package cluster

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// tokens keeps two tokens for the same request in the same second apart.
var tokens atomic.Int64

// Token returns the Authorization header with which the nostrtest key of this name signs a POST of body to a
// path of host (NIP-98), in an event that says more.
func Token(tb testing.TB, host, name, path, body string, more ...nostrtest.Option) string {
	tb.Helper()
	sum := sha256.Sum256([]byte(body))
	return token(tb, host, name, http.MethodPost, path, append(more, nostrtest.Tag("payload", hex.EncodeToString(sum[:])))...)
}

// Get makes a GET of a path of host, signed by the nostrtest key of this name, to the gateway at url.
func Get(tb testing.TB, url, host, name, path string) (status int, answer string) {
	tb.Helper()
	return HTTP(tb, http.MethodGet, url, host, path, http.Header{"Authorization": {token(tb, host, name, http.MethodGet, path)}}, "")
}

// Operate makes a request to the operators' API of the gateway at url, signed by the operator.
func Operate(tb testing.TB, url, method, path, body string) (status int, answer string) {
	tb.Helper()
	return OperateAs(tb, url, OperatorKey, method, path, body)
}

// OperateAs is Operate by the nostrtest key of another name.
func OperateAs(tb testing.TB, url, name, method, path, body string) (status int, answer string) {
	tb.Helper()
	sum := sha256.Sum256([]byte(body))
	head := http.Header{"Authorization": {
		token(tb, OperatorHost, name, method, path, nostrtest.Tag("payload", hex.EncodeToString(sum[:]))),
	}}
	return HTTP(tb, method, url, OperatorHost, path, head, body)
}

func token(tb testing.TB, host, name, method, path string, more ...nostrtest.Option) string {
	tb.Helper()
	event := nostrtest.Event(tb, name, append(more,
		nostrtest.Kind(nostr.KindHTTPAuth), nostrtest.CreatedAt(time.Now().Unix()),
		nostrtest.Tag("u", "http://"+host+path), nostrtest.Tag("method", method),
		nostrtest.Tag("nonce", strconv.FormatInt(tokens.Add(1), 10)),
	)...)
	return "Nostr " + base64.StdEncoding.EncodeToString(nostrtest.Raw(event))
}

// HTTP makes a request to the gateway at url for the community of host.
func HTTP(tb testing.TB, method, url, host, path string, header http.Header, body string) (status int, answer string) {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), method, strings.Replace(url, "ws://", "http://", 1)+path, strings.NewReader(body))
	require.NoError(tb, err)
	request.Host, request.Header = host, header
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(tb, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	return response.StatusCode, string(content)
}

// Manage calls the management API (NIP-86) of host as the nostrtest key of this name. params is a JSON array.
func Manage(tb testing.TB, url, host, name, method, params string) (status int, answer string) {
	tb.Helper()
	body := `{"method":"` + method + `","params":` + params + `}`
	return HTTP(tb, http.MethodPost, url, host, "/", http.Header{
		"Authorization": {Token(tb, host, name, "/", body)}, "Content-Type": {"application/nostr+json+rpc"},
	}, body)
}
