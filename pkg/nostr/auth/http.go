package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// What an HTTP proof can lack besides.
var (
	ErrHeader  = errors.New("authorization header must be Nostr and a base64 event")
	ErrURL     = errors.New("authentication event must have exactly one u tag, with the URL of this request")
	ErrMethod  = errors.New("authentication event must have exactly one method tag, with the method of this request")
	ErrPayload = errors.New("the payload tag must be the SHA-256 of the body")
)

const (
	// HTTPWindow is how far created_at of a NIP-98 event may be from now; NIP-98 suggests it.
	HTTPWindow = 60 * time.Second
	// maxHTTPHeader bounds the Authorization header, in bytes.
	maxHTTPHeader = 16 << 10
)

// CheckHTTPAuth checks a NIP-98 Authorization header and returns its event: the kind, created_at within
// HTTPWindow of now, exactly one u and one method tag for this request, the payload if there is one,
// the id and the signature.
//
// target is the request's path and query as the client sent them (http.Request.RequestURI); it must
// be equal byte by byte, except that an absent path is "/". hosts are the authorities that may stand in
// the URL, as in CheckAuthEvent; http and https are the same here, since TLS may end before us. The
// method is compared without case.
//
// bodyHash is the SHA-256 of the body, nil for a request without a body. A payload tag must equal it
// when there is one. It need not be there (NIP-98 leaves that to the server): a caller that demands it
// asks SignsBody.
func CheckHTTPAuth(header, method, target string, bodyHash []byte, hosts []string, now time.Time) (*nostr.Event, error) {
	ev, err := parseHeader(header)
	if err != nil {
		return nil, err
	}
	if ev.Kind != nostr.KindHTTPAuth {
		return nil, ErrKind
	}
	if !within(ev.CreatedAt, now, HTTPWindow) {
		return nil, ErrTime
	}
	if u, ok := one(ev, "u"); !ok || !isRequest(u, target, hosts) {
		return nil, ErrURL
	}
	if m, ok := one(ev, "method"); !ok || !strings.EqualFold(m, method) {
		return nil, ErrMethod
	}
	if !isPayload(ev, bodyHash) {
		return nil, ErrPayload
	}
	if err := ev.Verify(); err != nil {
		return nil, err
	}
	return ev, nil
}

// SignsBody reports whether an event that CheckHTTPAuth has returned covers the request's body.
func SignsBody(ev *nostr.Event) bool { return ev.Tags.Count("payload") == 1 }

// parseHeader takes "Nostr <base64>", the scheme in any case (RFC 9110), the padding optional.
func parseHeader(header string) (*nostr.Event, error) {
	scheme, encoded, ok := strings.Cut(header, " ")
	if !ok || len(header) > maxHTTPHeader || !strings.EqualFold(scheme, "Nostr") {
		return nil, ErrHeader
	}
	encoded = strings.TrimRight(strings.Trim(encoded, " "), "=")
	raw, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, ErrHeader
	}
	return wire.DecodeEvent(raw, wire.DefaultLimits())
}

func isRequest(u, target string, hosts []string) bool {
	signed, ok := parseURL(u, "http", "https")
	if !ok || !isHost(signed.Host, hosts) {
		return false
	}
	if !strings.HasPrefix(target, "/") {
		// The absolute form of a request line, or a caller's URL: its host says nothing.
		t, err := url.Parse(target)
		if err != nil {
			return false
		}
		target = t.RequestURI()
	}
	return signed.RequestURI() == target
}

func isPayload(ev *nostr.Event, bodyHash []byte) bool {
	if ev.Tags.Count("payload") == 0 {
		return true
	}
	payload, ok := one(ev, "payload")
	if bodyHash == nil {
		empty := sha256.Sum256(nil)
		bodyHash = empty[:]
	}
	return ok && strings.EqualFold(payload, hex.EncodeToString(bodyHash))
}
