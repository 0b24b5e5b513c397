package client

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

func TestInvites(t *testing.T) {
	h, cfg := newHive(t, answer{200, `{"code":"v2.abc","max_uses":null}`}, answer{403, `{"error":"only relay owners and admins can create invites"}`})
	code, err := Invite(t.Context(), cfg, Wish{})
	require.NoError(t, err)
	require.Equal(t, "v2.abc", code)
	require.Equal(t, []string{"/api/invites {}"}, h.asked)
	_, err = Invite(t.Context(), cfg, Wish{})
	require.EqualError(t, err, "the relay makes no invite: only relay owners and admins can create invites")

	invite := &nostr.Event{Kind: nostr.KindRelayInvite, Tags: nostr.Tags{{"claim", "v2.def"}}}
	require.NoError(t, invite.Sign(nostrtest.Key("relay")))
	var url string
	url = relay(t,
		func(r relaySide) { r.authenticate(url); r.stored(invite); r.read() },
		func(r relaySide) { r.authenticate(url); r.stored(); r.read() },
	)
	cfg = Config{URL: url, Key: nostrtest.Key("alice")}
	code, err = Invite(t.Context(), cfg, Wish{})
	require.NoError(t, err)
	require.Equal(t, "v2.def", code)
	_, err = Invite(t.Context(), cfg, Wish{})
	require.ErrorContains(t, err, "the relay makes no invite for "+nostrtest.PubKey("alice").String())
}

// What a code is good for is said by HTTP, also to a relay that is reached by WebSocket.
func TestWishesForInvites(t *testing.T) {
	for _, scheme := range []string{"http", "ws"} {
		h, cfg := newHive(t, answer{200, `{"code":"v2.abc"}`})
		cfg.URL = scheme + strings.TrimPrefix(cfg.URL, "http")
		for wish, want := range map[Wish]string{
			{Life: 36 * time.Hour}:                    `{"ttl_secs":129600}`,
			{Uses: new(uint32(3))}:                    `{"max_uses":3}`,
			{Life: time.Minute, Uses: new(uint32(0))}: `{"ttl_secs":60,"max_uses":0}`, // which the relay refuses
			{Life: time.Millisecond}:                  `{"ttl_secs":0}`,
		} {
			h.asked = nil
			code, err := Invite(t.Context(), cfg, wish)
			require.NoError(t, err)
			require.Equal(t, "v2.abc", code)
			require.Equal(t, []string{"/api/invites " + want}, h.asked)
		}
	}
}

// hall is a relay, by WebSocket and by HTTP, that takes an invite with a receipt only.
type hall struct {
	t *testing.T
	// policy is what /api/join-policy answers; version is the one that is accepted.
	policy, version string
	// url is that of its WebSocket.
	url string
	// asked are the paths that were asked for, but for the WebSocket.
	asked []string
}

func newHall(t *testing.T, policy, version string) *hall {
	t.Helper()
	h := &hall{t: t, policy: policy, version: version}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.url = "ws" + strings.TrimPrefix(server.URL, "http")
	return h
}

func (h *hall) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		h.socket(w, r)
		return
	}
	h.asked = append(h.asked, r.Method+" "+r.URL.Path)
	if r.URL.Path != "/events" && r.Header.Get("Authorization") != "" {
		h.t.Errorf("%s is signed, and need not be", r.URL.Path)
	}
	answer := func(status int, body string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		h.t.Error(err)
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /api/join-policy":
		answer(200, h.policy)
	case "POST /api/invites/accept-policy":
		var said struct {
			Code    string `json:"code"`
			Version string `json:"policy_version"`
			Age     bool   `json:"age_confirmed"`
		}
		if json.Unmarshal(body, &said) != nil || said.Version != h.version || !said.Age {
			answer(400, `{"error":"join_policy_not_accepted","reason":"policy_version"}`)
			return
		}
		answer(200, `{"receipt":"receipt of `+said.Code+`"}`)
	case "POST /events":
		if ok, message := h.judge(body); !ok {
			answer(403, `{"error":"`+message+`"}`)
			return
		}
		answer(200, `{"accepted":true}`)
	default:
		answer(404, `{"error":"not found"}`)
	}
}

func (h *hall) judge(raw []byte) (ok bool, message string) {
	event, err := wire.DecodeEvent(raw, wire.DefaultLimits())
	if err != nil || event.Kind != nostr.KindRelayJoinRequest {
		h.t.Errorf("no request to join: %s", raw)
		return false, "invalid: not a request to join"
	}
	code, _ := event.Tags.First("claim")
	receipt, _ := event.Tags.First("policy_receipt")
	if receipt != "receipt of "+code {
		return false, "restricted: join_policy_required"
	}
	return true, ""
}

func (h *hall) socket(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	side := relaySide{t: h.t, ws: ws}
	side.authenticate(h.url)
	frame := side.read()
	ok, message := h.judge(frame.RawEvent)
	side.send(wire.AppendOK(nil, frame.EventID, ok, message))
	side.read()
}

const version = "5f3a"

// Whoever joins is told what there is to accept, and accepts what they were told of, over WebSocket and over HTTP.
func TestJoinByAPolicy(t *testing.T) {
	for _, scheme := range []string{"ws", "http"} {
		t.Run(scheme, func(t *testing.T) {
			h := newHall(t, `{"policy":{"terms_markdown":"Be kind.","privacy_markdown":"","age_attestation_required":true,"version":"`+version+`"}}`, version)
			web := "http" + strings.TrimPrefix(h.url, "ws")
			cfg := Config{URL: scheme + strings.TrimPrefix(h.url, "ws"), Key: nostrtest.Key("alice")}
			join := func(said Acceptance) error { return Join(t.Context(), cfg, "v2.abc", said, io.Discard) }
			policy := Policy{Version: version, Terms: web + "/terms", Age: true}
			for said, text := range map[Acceptance]string{
				{}:                            "the relay has a policy that whoever joins accepts first",
				{Version: version}:            "the relay has whoever joins confirm their age as well",
				{Version: "0000", Age: true}:  "the relay's policy is another one now than the one that was accepted",
				{Version: "0000", Age: false}: "the relay's policy is another one now than the one that was accepted",
			} {
				err := join(said)
				require.EqualError(t, err, text)
				var refused *PolicyError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, PolicyError{Policy: policy, Said: said}, *refused)
			}
			h.asked = nil
			require.NoError(t, join(Acceptance{Version: version, Age: true}))
			require.Equal(t, []string{"GET /api/join-policy", "POST /api/invites/accept-policy"}, h.asked[:2])

			h.version = "0001" // of which the relay has not heard everywhere
			require.ErrorIs(t, join(Acceptance{Version: version, Age: true}), errPolicyChanged)
		})
	}
}

// A relay that asks for nothing, or in no way that is known, is given nothing to read by the client.
func TestJoinWithoutAPolicy(t *testing.T) {
	for body, text := range map[string]string{
		`{}`: "restricted: join_policy_required",
		`[`:  "read the relay's policy",
		`{"policy":{"terms_markdown":"x","version":""}}`:                     "no version that can be accepted",
		`{"policy":{"terms_markdown":"x","version":"x; rm -r ~"}}`:           "no version that can be accepted",
		`{"policy":{"terms_markdown":"x","version":"--key"}}`:                "no version that can be accepted",
		`{"policy":{"version":"` + strings.Repeat("x", maxVersion+1) + `"}}`: "no version that can be accepted",
	} {
		h := newHall(t, body, version)
		err := Join(t.Context(), Config{URL: h.url, Key: nostrtest.Key("alice")}, "v2.abc", Acceptance{}, io.Discard)
		require.ErrorContains(t, err, text)
	}
	// Who accepts what is not asked for any more joins without.
	var url string
	url = relay(t, func(r relaySide) {
		r.authenticate(url)
		r.send(wire.AppendOK(nil, r.read().EventID, true, "info: welcome to this relay"))
		r.read()
	})
	nothing := httptest.NewServer(http.NotFoundHandler())
	defer nothing.Close()
	receipt, err := newBridge(Config{URL: nothing.URL}).accept(t.Context(), "v2.abc", Acceptance{Version: version})
	require.NoError(t, err)
	require.Empty(t, receipt)
	require.NoError(t, Join(t.Context(), Config{URL: url, Key: nostrtest.Key("alice")}, "v2.abc", Acceptance{}, io.Discard))
}
