package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheLinkOfAnInviteSaysWhatToDo(t *testing.T) {
	w := newWorld(t)
	status, head, body := w.request(http.MethodGet, openHost, "/invite/v2.abc-DEF_123", http.Header{"X-Forwarded-Proto": {"https"}})
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "text/plain; charset=utf-8", head.Get("Content-Type"))
	require.Equal(t, "no-store", head.Get("Cache-Control"))
	require.Contains(t, body, "relay at wss://"+openHost+"\n")
	require.Contains(t, body, "code: v2.abc-DEF_123\n")
	for _, code := range []string{"", "%3Cscript%3E", "a/b", "a%0Ab", strings.Repeat("x", 129)} {
		status, _, body = w.request(http.MethodGet, openHost, "/invite/"+code, nil)
		require.Equal(t, http.StatusNotFound, status, code)
		require.JSONEq(t, `{"error":"not found"}`, body)
	}
	status, _, _ = w.request(http.MethodPost, openHost, "/invite/v2.abc", nil)
	require.Equal(t, http.StatusMethodNotAllowed, status)
	status, _, _ = w.request(http.MethodGet, "nobody.example", "/invite/v2.abc", nil)
	require.Equal(t, http.StatusNotFound, status)
}
