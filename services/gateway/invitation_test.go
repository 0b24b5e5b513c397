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
	require.Contains(t, body, "    apiary client join --relay wss://"+openHost+" v2.abc-DEF_123\n")
	for _, path := range []string{"/api/invites/claim", "/terms", "/privacy", "/api/join-policy", "/api/invites/accept-policy"} {
		require.Contains(t, body, path)
		status, _, answer := w.request(http.MethodGet, openHost, path, nil)
		require.False(t, status == http.StatusNotFound && strings.Contains(answer, "not found"), "there is no %s", path)
	}
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
