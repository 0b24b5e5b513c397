package auth

import (
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/tenant"
)

// What a proof can lack. A bad id or signature is nostr.ErrBadID or nostr.ErrBadSignature.
var (
	ErrKind      = errors.New("wrong kind of authentication event")
	ErrTime      = errors.New("authentication event is too old or from the future")
	ErrChallenge = errors.New("authentication event must have exactly one challenge tag, with the challenge of this connection")
	ErrRelay     = errors.New("authentication event must have exactly one relay tag, with the URL of this relay")
)

// CheckAuthEvent checks a client's answer to a NIP-42 challenge: the kind, created_at within window of
// now, exactly one challenge tag equal to challenge, exactly one relay tag that names one of hosts, the
// id and the signature, in this order. An empty challenge is never met.
//
// hosts are the authorities that may stand in the relay tag: those of the community, and the one that
// the client connected to. They are compared as tenant.NormalizeHost has them and must be exact, so that
// an answer given to one relay is worth nothing at another. Besides, the URL is ws or wss, whichever,
// since TLS may end before us, and has no path but a trailing slash.
func CheckAuthEvent(ev *nostr.Event, challenge string, hosts []string, now time.Time, window time.Duration) error {
	switch got, ok := one(ev, "challenge"); {
	case ev.Kind != nostr.KindAuth:
		return ErrKind
	case !within(ev.CreatedAt, now, window):
		return ErrTime
	case !ok || got == "" || got != challenge:
		return ErrChallenge
	}
	if relay, ok := one(ev, "relay"); !ok || !isRelay(relay, hosts) {
		return ErrRelay
	}
	return ev.Verify()
}

func isRelay(relay string, hosts []string) bool {
	host, ok := RelayHost(relay)
	return ok && isHost(host, hosts)
}

// RelayHost returns the authority that a relay URL names, as tenant.NormalizeHost has it; false for what is no
// ws or wss URL of a host alone.
func RelayHost(relay string) (string, bool) {
	u, ok := parseURL(relay, "ws", "wss")
	if !ok || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.ForceQuery {
		return "", false
	}
	host, err := tenant.NormalizeHost(u.Host)
	return host, err == nil
}

// parseURL parses an absolute URL with one of two schemes and without user and fragment.
func parseURL(s, scheme, orScheme string) (*url.URL, bool) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != scheme && u.Scheme != orScheme) || u.Opaque != "" || u.User != nil || u.Fragment != "" {
		return nil, false
	}
	return u, true
}

// isHost reports whether host is one of hosts once all are normalised. What cannot be normalised is
// nobody's.
func isHost(host string, hosts []string) bool {
	host, err := tenant.NormalizeHost(host)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(hosts, func(h string) bool {
		h, err := tenant.NormalizeHost(h)
		return err == nil && h == host
	})
}

// one returns the value of the tag with this name if there is exactly one.
func one(ev *nostr.Event, name string) (string, bool) {
	if ev.Tags.Count(name) != 1 {
		return "", false
	}
	return ev.Tags.First(name)
}

// within reports whether at, in Unix seconds, is at most window away from now. It is exact in whole
// seconds and does not overflow for any at.
func within(at int64, now time.Time, window time.Duration) bool {
	seconds := int64(window / time.Second)
	return at >= now.Unix()-seconds && at <= now.Unix()+seconds
}
