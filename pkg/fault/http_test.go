package fault_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
)

// A handler's panic is seen by the operator and told to the client, and the next request is served.
func TestHandlerPanics(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	mux := http.NewServeMux()
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("secret detail") })
	mux.HandleFunc("/half", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic("too late")
	})
	mux.HandleFunc("/abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/deadline", func(w http.ResponseWriter, _ *http.Request) {
		if http.NewResponseController(w).Flush() == nil {
			_, _ = io.WriteString(w, "reached")
		}
	})
	server := httptest.NewUnstartedServer(fault.Handler(slog.New(slog.NewTextHandler(&log, nil)), mux))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	defer server.Close()
	get := func(path string) (status int, body string, err error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
		require.NoError(t, err)
		resp, err := server.Client().Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b), err
	}

	status, body, err := get("/panic")
	require.NoError(t, err)
	require.Equal(t, http.StatusInternalServerError, status)
	require.Regexp(t, `^\{"error":"internal \(ref [^)]+\)"\}$`, body)
	_, _, err = get("/half")
	require.Error(t, err, "half an answer is none")
	_, _, err = get("/abort")
	require.Error(t, err)
	status, body, err = get("/deadline")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "reached", body)

	server.Close() // nothing writes to the log any more
	require.Contains(t, log.String(), "GET /panic")
	require.Contains(t, log.String(), "secret detail")
	require.Contains(t, log.String(), "http_test.go", "with the stack")
	require.Contains(t, log.String(), "too late")
	require.NotContains(t, log.String(), "GET /abort", "that is no fault")
}
