package edge

import (
	"crypto/sha1" //nolint:gosec // RFC 6455 wants it; it protects nothing
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
)

// errUpgrade says that a request is no handshake; it has been answered.
var errUpgrade = errors.New("not a WebSocket handshake")

// handshake answers a request to become a WebSocket (RFC 6455 §4.2) and takes its connection off the HTTP server; behind
// is what the client has sent already, a copy. Clients come from any origin; NIP-42 binds their answer to the host. No
// extension and no subprotocol is agreed on.
func handshake(w http.ResponseWriter, r *http.Request) (behind []byte, err error) {
	head := w.Header()
	key, status := clientKey(r)
	if status != 0 {
		head.Set("Connection", "Upgrade")
		head.Set("Upgrade", "websocket")
		head.Set("Sec-WebSocket-Version", "13")
		refuse(w, status, "not a WebSocket handshake")
		return nil, errUpgrade
	}
	head.Set("Upgrade", "websocket")
	head.Set("Connection", "Upgrade")
	head.Set("Sec-WebSocket-Accept", acceptKey(key))
	w.WriteHeader(http.StatusSwitchingProtocols)
	_, rw, err := http.NewResponseController(w).Hijack() // which sends what was written
	if err != nil {
		return nil, err
	}
	if n := rw.Reader.Buffered(); n > 0 {
		b, err := rw.Peek(n)
		return append([]byte(nil), b...), err
	}
	return nil, nil
}

// clientKey returns the key of a handshake, and a status if it is none.
func clientKey(r *http.Request) (key string, status int) {
	switch keys := r.Header.Values("Sec-WebSocket-Key"); {
	case !r.ProtoAtLeast(1, 1), !hasToken(r.Header, "Connection", "upgrade"), !hasToken(r.Header, "Upgrade", "websocket"),
		r.Header.Get("Sec-WebSocket-Version") != "13":
		return "", http.StatusUpgradeRequired
	case r.Method != http.MethodGet:
		return "", http.StatusMethodNotAllowed
	case len(keys) != 1:
		return "", http.StatusBadRequest
	default:
		key = strings.TrimSpace(keys[0])
	}
	if nonce, err := base64.StdEncoding.DecodeString(key); err != nil || len(nonce) != 16 {
		return "", http.StatusBadRequest
	}
	return key, 0
}

// hasToken reports whether a header lists a token, in whatever case.
func hasToken(h http.Header, name, token string) bool {
	for _, value := range h.Values(name) {
		for one := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(one), token) {
				return true
			}
		}
	}
	return false
}

// acceptKey is what proves that a key was read (RFC 6455 §1.3).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	return base64.StdEncoding.EncodeToString(sum[:])
}
