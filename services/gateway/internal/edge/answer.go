package edge

import (
	"math/rand/v2"
	"net/http"
	"strconv"
)

// text answers people.
func text(w http.ResponseWriter, status int, body string) {
	write(w, status, "text/plain; charset=utf-8", body)
}

// refuse answers with an error in the form that those of the bridge have. The message is plain words without quotes: it
// says nothing of the request.
func refuse(w http.ResponseWriter, status int, message string) {
	write(w, status, "application/json", `{"error":"`+message+`"}`)
}

func write(w http.ResponseWriter, status int, contentType, body string) {
	head := w.Header()
	head.Set("Content-Type", contentType)
	head.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) //nolint:gosec // not HTML, and said not to be; an error means that the client has left
}

// notFound is the one answer for hosts without community and for paths that do not exist.
func notFound(w http.ResponseWriter) { refuse(w, http.StatusNotFound, "not found") }

// notAllowed refuses a method and tells which ones there are.
func notAllowed(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	refuse(w, http.StatusMethodNotAllowed, "method not allowed")
}

// unavailable asks the client to come back, not all at the same moment.
func unavailable(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(1+rand.N(5))) //nolint:gosec // jitter
	refuse(w, http.StatusServiceUnavailable, "temporarily unavailable")
}
