package auth_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// FuzzAuthEvent: whatever the tags of an answer are, it is taken for one challenge of one relay at one time.
// The answer is signed, so that the signature does not hide what comes before it.
func FuzzAuthEvent(f *testing.F) {
	f.Add("relay", relayURL, "challenge", challenge, int64(0), uint16(nostr.KindAuth), "")
	f.Add("challenge", challenge, "relay", "ws://LOCALHOST.:3000", int64(-60), uint16(nostr.KindAuth), "hi")
	f.Add("relay", "wss://team.example.com:443/?", "relay", relayURL, int64(61), uint16(nostr.KindText), "\x00")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string, age int64, kind uint16, content string) {
		ev := nostrtest.Event(t, "alice", nostrtest.Kind(nostr.Kind(kind)), nostrtest.CreatedAt(nostrtest.Epoch+age),
			nostrtest.Tag(name1, value1), nostrtest.Tag(name2, value2), nostrtest.Content(content))
		err := check(ev)
		if err != nil {
			requireAuthError(t, err)
			return
		}
		require.Equal(t, nostr.KindAuth, ev.Kind)
		require.LessOrEqual(t, max(age, -age), int64(window/time.Second))
		tags := map[string]string{name1: value1, name2: value2}
		require.Len(t, tags, 2)
		require.Equal(t, challenge, tags["challenge"])
		host, ok := auth.RelayHost(tags["relay"])
		require.True(t, ok)
		require.Contains(t, hosts, host)
		require.Contains(t, []string{"", "/"}, mustURL(t, tags["relay"]).Path)

		require.ErrorIs(t, auth.CheckAuthEvent(ev, challenge+"0", hosts, now, window), auth.ErrChallenge)
		require.ErrorIs(t, auth.CheckAuthEvent(ev, challenge, []string{"other.example.com"}, now, window), auth.ErrRelay)
		require.ErrorIs(t, auth.CheckAuthEvent(ev, challenge, hosts, now.Add(3*window), window), auth.ErrTime)
		ev.Content += "x"
		require.ErrorIs(t, check(ev), nostr.ErrBadID)
		ev.ID = ev.ComputeID()
		require.ErrorIs(t, check(ev), nostr.ErrBadSignature)
	})
}

// FuzzHTTPAuth: whatever a signed event says, it is taken for one request: the method, the target, the body
// and a host of the community.
func FuzzHTTPAuth(f *testing.F) {
	f.Add(requestURL, "POST", "", []byte(nil), target, "POST", int64(0))
	f.Add("http://localhost:3000/query?", "post", "x", []byte("[{}]"), "/query?", "POST", int64(60))
	f.Add("https://TEAM.example.com", "GET", "", []byte("a"), "/", "get", int64(-61))
	f.Add("https://team.example.com/a%2Fb/../c", "GET", "", []byte(nil), "https://x/a%2Fb/../c", "GET", int64(1))
	f.Fuzz(func(t *testing.T, u, signedMethod, payload string, body []byte, target, method string, age int64) {
		opts := []nostrtest.Option{
			nostrtest.Kind(nostr.KindHTTPAuth), nostrtest.CreatedAt(nostrtest.Epoch + age),
			nostrtest.Tag("u", u), nostrtest.Tag("method", signedMethod),
		}
		sum := sha256.Sum256(body)
		switch payload {
		case "":
		case "x":
			opts = append(opts, nostrtest.Tag("payload", hex.EncodeToString(sum[:])))
		default:
			opts = append(opts, nostrtest.Tag("payload", payload))
		}
		ev := nostrtest.Event(t, "alice", opts...)
		got, err := auth.CheckHTTPAuth(header(ev), method, target, sum[:], hosts, now)
		if err != nil {
			requireAuthError(t, err)
			return
		}
		require.Equal(t, ev, got)
		require.True(t, strings.EqualFold(method, signedMethod))
		require.LessOrEqual(t, max(age, -age), int64(auth.HTTPWindow/time.Second))
		signed := mustURL(t, u)
		require.Contains(t, []string{"http", "https"}, signed.Scheme)
		require.Nil(t, signed.User)
		if strings.HasPrefix(target, "/") {
			require.Equal(t, target, signed.RequestURI(), "and so no other target")
		}

		again := func(method, target string, hosts []string, now time.Time) error {
			_, err := auth.CheckHTTPAuth(header(ev), method, target, sum[:], hosts, now)
			return err
		}
		require.ErrorIs(t, again(method+"x", target, hosts, now), auth.ErrMethod)
		require.ErrorIs(t, again(method, target, []string{"other.example.com"}, now), auth.ErrURL)
		require.ErrorIs(t, again(method, target, hosts, now.Add(3*auth.HTTPWindow)), auth.ErrTime)
		if auth.SignsBody(got) {
			sum[0] ^= 1
			require.ErrorIs(t, again(method, target, hosts, now), auth.ErrPayload)
		}
	})
}

// FuzzHTTPAuthHeader: of whatever stands in an Authorization header, only the base64 of an event is looked at,
// and nothing unsigned passes.
func FuzzHTTPAuthHeader(f *testing.F) {
	ev := nostrtest.Event(f, "alice", nostrtest.Kind(nostr.KindHTTPAuth), nostrtest.Tag("u", requestURL), nostrtest.Tag("method", "GET"))
	f.Add(header(ev))
	f.Add("nostr " + base64.RawStdEncoding.EncodeToString(nostrtest.Raw(ev)))
	f.Add("Nostr ====")
	f.Add("Basic dXNlcjpwYXNz")
	f.Fuzz(func(t *testing.T, h string) {
		got, err := auth.CheckHTTPAuth(h, "GET", target, nil, hosts, now)
		if errors.Is(err, auth.ErrHeader) {
			require.Nil(t, got)
			return
		}
		scheme, encoded, _ := strings.Cut(h, " ")
		require.True(t, strings.EqualFold("nostr", scheme))
		require.LessOrEqual(t, len(h), 16<<10)
		raw, decodeErr := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.Trim(encoded, " "), "="))
		require.NoError(t, decodeErr)
		if err != nil {
			requireAuthError(t, err)
			return
		}
		require.True(t, json.Valid(raw))
		require.NoError(t, got.Verify())
		require.Equal(t, ev.ID, got.ID, "only alice's event is signed")
	})
}

// requireAuthError requires one of the errors that the package names.
func requireAuthError(t *testing.T, err error) {
	t.Helper()
	var malformed *wire.DecodeError
	if errors.As(err, &malformed) {
		return
	}
	for _, known := range []error{
		auth.ErrKind, auth.ErrTime, auth.ErrChallenge, auth.ErrRelay, auth.ErrURL, auth.ErrMethod, auth.ErrPayload,
		nostr.ErrBadID, nostr.ErrBadSignature,
	} {
		if errors.Is(err, known) {
			return
		}
	}
	require.NoError(t, err, "an error that nobody knows")
}

func mustURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	require.NoError(t, err)
	return u
}
