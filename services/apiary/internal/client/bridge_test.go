package client

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// hive is a relay behind HTTP, of the host team.example. Each request is answered with the next of the answers, after
// its signature was checked.
type hive struct {
	owner   nostr.PubKey // whom the last request attested
	t       *testing.T
	answers []answer
	asked   []string // path and body
	seen    map[nostr.ID]bool
}

type answer struct {
	status int
	body   string
}

func newHive(t *testing.T, answers ...answer) (*hive, Config) {
	t.Helper()
	h := &hive{t: t, answers: answers, seen: map[nostr.ID]bool{}}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return h, Config{URL: "http://team.example/", Connect: strings.TrimPrefix(server.URL, "http://"), Key: nostrtest.Key("alice")}
}

func (h *hive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		h.t.Error(err)
	}
	sum := sha256.Sum256(body)
	token, err := auth.CheckHTTPAuth(r.Header.Get("Authorization"), r.Method, r.RequestURI, sum[:], []string{"team.example"}, time.Now())
	if err != nil || !auth.SignsBody(token) || h.seen[token.ID] {
		h.t.Errorf("authorization of %s: %v", r.RequestURI, err)
		return
	}
	h.seen[token.ID] = true
	if a, err := auth.Attested(token); err == nil {
		h.owner = a.Owner
	}
	h.asked = append(h.asked, r.URL.Path+" "+string(body))
	next := h.answers[min(len(h.asked), len(h.answers))-1]
	w.WriteHeader(next.status)
	_, _ = io.WriteString(w, next.body)
}

func TestAnAgentShowsItsOwner(t *testing.T) {
	h, cfg := newHive(t, answer{200, `{"event_id":"","accepted":true,"message":""}`})
	tag, err := auth.Attest(nostrtest.Key("bob"), cfg.Key.PubKey(), "")
	require.NoError(t, err)
	cfg.Attestation = tag
	_, err = Publish(t.Context(), cfg, &nostr.Event{Kind: nostr.KindText}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, nostrtest.PubKey("bob"), h.owner)
}

func TestPublishOverHTTP(t *testing.T) {
	h, cfg := newHive(t,
		answer{503, `{"error":"error: shutting down, try again"}`},
		answer{429, `{"error":"slow down"}`},
		answer{502, `<html>`},
		answer{200, `{"event_id":"","accepted":true,"message":"info: welcome to this relay"}`},
	)
	event := &nostr.Event{Kind: nostr.KindText, Content: "hello"}
	remark, err := Publish(t.Context(), cfg, event, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "info: welcome to this relay", remark)
	require.NoError(t, event.Verify())
	once := "/events " + string(event.AppendJSON(nil))
	require.Equal(t, []string{once, once, once, once}, h.asked)
}

func TestRefusalsOverHTTP(t *testing.T) {
	for _, c := range []struct {
		answer
		publish, query string
	}{
		{answer{403, `{"error":"restricted: not a relay member"}`}, "restricted: not a relay member", "the relay refuses the query: restricted: not a relay member"},
		{answer{401, `{"error":"no"}`}, "the relay does not accept the key: no", "the relay does not accept the key: no"},
		{answer{200, `{"accepted":false,"message":"duplicate: reaction already exists"}`}, "duplicate: reaction already exists", "read the answer"},
	} {
		_, cfg := newHive(t, c.answer)
		_, err := Publish(t.Context(), cfg, &nostr.Event{Kind: nostr.KindText}, io.Discard)
		require.ErrorContains(t, err, c.publish)
		_, err = Stored(t.Context(), cfg, nostr.Filter{})
		require.ErrorContains(t, err, c.query)
	}
	_, cfg := newHive(t, answer{404, `{"error":"not found"}`})
	_, err := Stored(t.Context(), cfg, nostr.Filter{})
	require.ErrorContains(t, err, "the server has no relay for this host")
	cfg.Connect = "127.0.0.1:1"
	_, err = Stored(t.Context(), cfg, nostr.Filter{})
	require.EqualError(t, err, "connect to http://team.example/ at 127.0.0.1:1: nothing listens there: does the relay run, and at this port?")
}

func TestUnknownNames(t *testing.T) {
	err := dialError(nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "team.example", IsNotFound: true}})
	require.EqualError(t, err, "nobody knows a host team.example: --connect says where it is before it is in DNS")
}

// What is signed for one URL is not sent to another.
func TestNobodyIsFollowedElsewhere(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked") }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	_, err := Stored(t.Context(), Config{URL: server.URL, Key: nostrtest.Key("alice")}, nostr.Filter{})
	require.EqualError(t, err, "the server answers 307 Temporary Redirect")
}

func TestQueryOverHTTP(t *testing.T) {
	newer, older, forged := text(t, "newer", 2), text(t, "older", 1), text(t, "forged", 1)
	forged.Content = "other"
	body, err := json.Marshal([]json.RawMessage{newer.AppendJSON(nil), forged.AppendJSON(nil), older.AppendJSON(nil)})
	require.NoError(t, err)
	h, cfg := newHive(t, answer{200, string(body)}, answer{200, "[]"})
	var out, notes strings.Builder
	query := QueryConfig{Config: cfg, Filter: nostr.Filter{Kinds: []nostr.Kind{1}, Limit: new(2)}, Out: &out, Notes: &notes}
	require.NoError(t, Query(t.Context(), query))
	require.Regexp(t, `(?s)^[^\n]*older\n[^\n]*newer\n$`, out.String())
	require.Empty(t, notes.String())
	require.Equal(t, []string{`/query [{"kinds":[1],"limit":2}]`}, h.asked)

	require.NoError(t, Query(t.Context(), query))
	require.Equal(t, "nothing that matches is stored, or nothing that this key may read\n", notes.String())
	_, err = Find(t.Context(), cfg, nostr.ID{1})
	require.ErrorContains(t, err, "there is no event 01000000")
}

// A name that is not in DNS yet is reached at an address, and is still the one that is authenticated for.
func TestConnectElsewhere(t *testing.T) {
	url := relay(t, func(r relaySide) {
		r.authenticate("ws://team.example")
		r.stored(text(t, "here", 1))
		r.read()
	})
	cfg := Config{URL: "ws://team.example", Connect: strings.TrimPrefix(url, "ws://"), Key: nostrtest.Key("alice")}
	events, err := Stored(t.Context(), cfg, nostr.Filter{})
	require.NoError(t, err)
	require.Len(t, events, 1)
}
