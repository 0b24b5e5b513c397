package auth_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

const (
	target     = "/api/events?limit=5&x=%2F"
	requestURL = "https://team.example.com" + target
)

func header(ev *nostr.Event) string {
	return "Nostr " + base64.StdEncoding.EncodeToString(nostrtest.Raw(ev))
}

func httpAuth(t *testing.T, url, method string, opts ...nostrtest.Option) *nostr.Event {
	t.Helper()
	all := []nostrtest.Option{nostrtest.Kind(nostr.KindHTTPAuth), nostrtest.Tag("u", url), nostrtest.Tag("method", method)}
	return nostrtest.Event(t, "alice", append(all, opts...)...)
}

func TestCheckHTTPAuth(t *testing.T) {
	t.Parallel()
	body := sha256.Sum256([]byte("body"))
	payload := hex.EncodeToString(body[:])
	empty := sha256.Sum256(nil)
	for name, c := range map[string]struct {
		ev   *nostr.Event
		body []byte
		want error
	}{
		"good":                      {httpAuth(t, requestURL, "GET"), nil, nil},
		"http instead of https":     {httpAuth(t, "http://team.example.com"+target, "GET"), nil, nil},
		"host in another spelling":  {httpAuth(t, "https://TEAM.example.com:443"+target, "GET"), nil, nil},
		"method in lower case":      {httpAuth(t, requestURL, "get"), nil, nil},
		"body without payload":      {httpAuth(t, requestURL, "GET"), body[:], nil},
		"payload":                   {httpAuth(t, requestURL, "GET", nostrtest.Tag("payload", payload)), body[:], nil},
		"payload in upper case":     {httpAuth(t, requestURL, "GET", nostrtest.Tag("payload", strings.ToUpper(payload))), body[:], nil},
		"payload of no body":        {httpAuth(t, requestURL, "GET", nostrtest.Tag("payload", hex.EncodeToString(empty[:]))), nil, nil},
		"payload but no body":       {httpAuth(t, requestURL, "GET", nostrtest.Tag("payload", payload)), nil, auth.ErrPayload},
		"payload of another body":   {httpAuth(t, requestURL, "GET", nostrtest.Tag("payload", payload)), empty[:], auth.ErrPayload},
		"empty payload":             {httpAuth(t, requestURL, "GET", nostrtest.Tag("payload", "")), body[:], auth.ErrPayload},
		"two payloads":              {httpAuth(t, requestURL, "GET", nostrtest.Tag("payload", payload), nostrtest.Tag("payload", payload)), body[:], auth.ErrPayload},
		"wrong kind":                {httpAuth(t, requestURL, "GET", nostrtest.Kind(nostr.KindAuth)), nil, auth.ErrKind},
		"too old":                   {httpAuth(t, requestURL, "GET", nostrtest.CreatedAt(nostrtest.Epoch-61)), nil, auth.ErrTime},
		"too new":                   {httpAuth(t, requestURL, "GET", nostrtest.CreatedAt(nostrtest.Epoch+61)), nil, auth.ErrTime},
		"other method":              {httpAuth(t, requestURL, "POST"), nil, auth.ErrMethod},
		"two methods":               {httpAuth(t, requestURL, "GET", nostrtest.Tag("method", "GET")), nil, auth.ErrMethod},
		"two URLs":                  {httpAuth(t, requestURL, "GET", nostrtest.Tag("u", requestURL)), nil, auth.ErrURL},
		"other host":                {httpAuth(t, "https://other.example.com"+target, "GET"), nil, auth.ErrURL},
		"other path":                {httpAuth(t, "https://team.example.com/api/event?limit=5&x=%2F", "GET"), nil, auth.ErrURL},
		"other query":               {httpAuth(t, "https://team.example.com/api/events?limit=6&x=%2F", "GET"), nil, auth.ErrURL},
		"query in another spelling": {httpAuth(t, "https://team.example.com/api/events?limit=5&x=/", "GET"), nil, auth.ErrURL},
		"no query":                  {httpAuth(t, "https://team.example.com/api/events", "GET"), nil, auth.ErrURL},
		"only a path":               {httpAuth(t, target, "GET"), nil, auth.ErrURL},
		"with a fragment":           {httpAuth(t, requestURL+"#x", "GET"), nil, auth.ErrURL},
		"with a user":               {httpAuth(t, "https://alice@team.example.com"+target, "GET"), nil, auth.ErrURL},
		"URL of a relay":            {httpAuth(t, "wss://team.example.com"+target, "GET"), nil, auth.ErrURL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ev, err := auth.CheckHTTPAuth(header(c.ev), "GET", target, c.body, hosts, now)
			require.ErrorIs(t, err, c.want)
			if c.want != nil {
				require.Nil(t, ev)
				return
			}
			require.Equal(t, c.ev, ev)
			require.Equal(t, ev.Tags.Count("payload") == 1, auth.SignsBody(ev))
		})
	}
}

func TestCheckHTTPAuthTargets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signed, target string
		ok             bool
	}{
		{"https://team.example.com", "/", true},
		{"https://team.example.com/", "/", true},
		{"https://team.example.com?x", "/?x", true},
		{"https://team.example.com/a", "https://team.example.com/a", true},
		{"https://team.example.com/a", "/a/", false},
		{"https://team.example.com/a/", "/a", false},
		{"https://team.example.com/a?", "/a", false},
		{"https://team.example.com/a/../b", "/b", false},
		{"https://team.example.com/%61", "/a", false},
		{"https://team.example.com/", "", true},
		{"https://team.example.com/", ":", false},
	} {
		_, err := auth.CheckHTTPAuth(header(httpAuth(t, c.signed, "GET")), "GET", c.target, nil, hosts, now)
		if c.ok {
			require.NoError(t, err, "%s for %s", c.signed, c.target)
		} else {
			require.ErrorIs(t, err, auth.ErrURL, "%s for %s", c.signed, c.target)
		}
	}
}

func TestCheckHTTPAuthHeader(t *testing.T) {
	t.Parallel()
	ev := httpAuth(t, requestURL, "GET")
	for _, h := range []string{
		header(ev),
		strings.TrimRight(header(ev), "="),
		"nostr" + strings.TrimPrefix(header(ev), "Nostr"),
		"Nostr  " + strings.TrimPrefix(header(ev), "Nostr ") + " ",
	} {
		_, err := auth.CheckHTTPAuth(h, "GET", target, nil, hosts, now)
		require.NoError(t, err, h)
	}
	for _, h := range []string{
		"", "Nostr", "Nostr!", "Bearer x", strings.TrimPrefix(header(ev), "Nostr "), "Nostr %%%%",
		"Nostr " + strings.Repeat("A", 1<<20),
	} {
		_, err := auth.CheckHTTPAuth(h, "GET", target, nil, hosts, now)
		require.ErrorIs(t, err, auth.ErrHeader, h[:min(len(h), 20)])
	}
	for _, raw := range []string{"", "null", "{}", "[" + string(nostrtest.Raw(ev)) + "]"} {
		_, err := auth.CheckHTTPAuth("Nostr "+base64.StdEncoding.EncodeToString([]byte(raw)), "GET", target, nil, hosts, now)
		require.Error(t, err, raw)
	}
}

func TestCheckHTTPAuthVerifies(t *testing.T) {
	t.Parallel()
	ev := httpAuth(t, requestURL, "GET")
	ev.Content = "changed"
	_, err := auth.CheckHTTPAuth(header(ev), "GET", target, nil, hosts, now)
	require.ErrorIs(t, err, nostr.ErrBadID)
	ev.ID = ev.ComputeID()
	_, err = auth.CheckHTTPAuth(header(ev), "GET", target, nil, hosts, now)
	require.ErrorIs(t, err, nostr.ErrBadSignature)
}
