package edge

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHandshakes(t *testing.T) {
	good := map[string]string{
		"Connection": "keep-alive, UPGRADE", "Upgrade": "h2c, WebSocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	}
	request := func(method string, change ...string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
		for k, v := range good {
			r.Header.Set(k, v)
		}
		for i := 0; i < len(change); i += 2 {
			r.Header.Set(change[i], change[i+1])
		}
		return r
	}
	key, status := clientKey(request(http.MethodGet))
	require.Zero(t, status)
	require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", acceptKey(key), "the example of RFC 6455 §1.3")

	old := request(http.MethodGet)
	old.ProtoMinor = 0
	twice := request(http.MethodGet)
	twice.Header.Add("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	for name, test := range map[string]struct {
		r      *http.Request
		status int
	}{
		"HTTP/1.0":      {old, http.StatusUpgradeRequired},
		"no Connection": {request(http.MethodGet, "Connection", "close"), http.StatusUpgradeRequired},
		"no Upgrade":    {request(http.MethodGet, "Upgrade", "h2c"), http.StatusUpgradeRequired},
		"version 8":     {request(http.MethodGet, "Sec-WebSocket-Version", "8"), http.StatusUpgradeRequired},
		"HEAD":          {request(http.MethodHead), http.StatusMethodNotAllowed},
		"two keys":      {twice, http.StatusBadRequest},
		"no key":        {request(http.MethodGet, "Sec-WebSocket-Key", ""), http.StatusBadRequest},
		"short key":     {request(http.MethodGet, "Sec-WebSocket-Key", "dGhlIHNhbXBsZQ=="), http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			_, err := handshake(w, test.r)
			require.ErrorIs(t, err, errUpgrade)
			require.Equal(t, test.status, w.Code)
			require.Equal(t, "13", w.Header().Get("Sec-WebSocket-Version"))
		})
	}
}
