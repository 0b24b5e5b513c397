package fault

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
)

// Handler is UnaryServerInterceptor for HTTP, as far as panics go: next's panic is logged with its stack under the
// reference that the client gets, in {"error": …} with status 500 unless an answer has begun. net/http would hang up
// and tell only its own error log. http.ErrAbortHandler is passed on, for it asks for that.
func Handler(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &begun{ResponseWriter: w}
		defer func() {
			if v := recover(); v != nil {
				answer.fail(r, log, v)
			}
		}()
		next.ServeHTTP(answer, r)
	})
}

// fail ends an answer whose handler panicked with v.
func (b *begun) fail(r *http.Request, log *slog.Logger, v any) {
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	err := panicked(v)
	log.LogAttrs(r.Context(), slog.LevelError, "call failed", slog.String("method", r.Method+" "+r.URL.Path), slog.Any("error", err))
	if b.is {
		panic(http.ErrAbortHandler) // half an answer must not look like a whole one
	}
	body, _ := json.Marshal(map[string]string{"error": Message(err)}) // strings always marshal
	b.Header().Set("Content-Type", "application/json")
	b.WriteHeader(http.StatusInternalServerError)
	_, _ = b.Write(body) // an error means that the client has left
}

// begun notes whether an answer has begun.
type begun struct {
	http.ResponseWriter
	is bool
}

func (b *begun) WriteHeader(status int) {
	b.is = true
	b.ResponseWriter.WriteHeader(status)
}

func (b *begun) Write(p []byte) (int, error) {
	b.is = true
	return b.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach what is below.
func (b *begun) Unwrap() http.ResponseWriter { return b.ResponseWriter }
