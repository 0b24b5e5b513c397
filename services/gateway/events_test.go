package gateway_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway"
)

// verdict is the answer to an event that was posted.
type verdict struct {
	EventID  string `json:"event_id"`
	Accepted bool
	Message  string
	Error    string
}

func (w *world) postEvent(name string, ev *nostr.Event) (status int, v verdict) {
	w.tb.Helper()
	status, answer := w.post(name, "/events", string(nostrtest.Raw(ev)))
	require.NoError(w.tb, json.Unmarshal([]byte(answer), &v), answer)
	return status, v
}

// The verdict on an event is the same by both doors, in the same words; a door of HTTP has a status besides.
func TestVerdictsOverHTTPAreThoseOfTheSocket(t *testing.T) {
	w := newWorld(t)
	for name, tt := range map[string]struct {
		reason   fault.Reason
		msg      string
		status   int
		accepted bool
	}{
		"accepted":         {fault.Accepted, "", http.StatusOK, true},
		"with a message":   {fault.Accepted, "info: welcome to this relay", http.StatusOK, true},
		"duplicate":        {fault.Duplicate, "", http.StatusOK, true},
		"a newer one":      {fault.Duplicate, "a newer version is stored", http.StatusOK, true},
		"exists":           {fault.Exists, "reaction already exists", http.StatusOK, false},
		"invalid":          {fault.Invalid, "bad signature", http.StatusBadRequest, false},
		"work":             {fault.Pow, "20 bits are needed", http.StatusBadRequest, false},
		"auth-required":    {fault.AuthRequired, "this event is its author's to publish", http.StatusUnauthorized, false},
		"restricted":       {fault.Restricted, "not a channel member", http.StatusForbidden, false},
		"blocked":          {fault.Blocked, "you are banned from this community", http.StatusForbidden, false},
		"rate-limited":     {fault.RateLimited, "", http.StatusTooManyRequests, false},
		"overloaded":       {fault.Overloaded, "", http.StatusServiceUnavailable, false},
		"internal":         {fault.InternalFault, "internal (ref 1a2b3c4d)", http.StatusInternalServerError, false},
		"of a new release": {99, "", http.StatusInternalServerError, false},
	} {
		t.Run(name, func(t *testing.T) {
			w.ingests[0].answer(func(*ingestv1.Submission) *ingestv1.Verdict {
				return &ingestv1.Verdict{Reason: tt.reason, Message: tt.msg}
			})
			ev := nostrtest.Event(t, "alice", nostrtest.Content(name))
			c := w.login(openHost, "alice")
			c.publish(ev)
			ok := c.expect(wire.LabelOK)
			status, v := w.postEvent("alice", ev)
			require.Equal(t, tt.status, status)
			require.Equal(t, tt.accepted, ok.OK)
			require.Equal(t, tt.accepted, v.Accepted)
			require.Equal(t, ok.Message, v.Message+v.Error)
			if status == http.StatusOK {
				require.Equal(t, ev.ID.String(), v.EventID)
			} else {
				require.Equal(t, verdict{Error: ok.Message}, v, "an error has nothing else")
			}
			got := w.ingests[0].received()
			over, by := got[len(got)-2], got[len(got)-1]
			require.Equal(t, string(over.GetRaw()), string(by.GetRaw()))
			require.Equal(t, over.GetPrincipal().GetPubkeys(), by.GetPrincipal().GetPubkeys())
			require.Equal(t, over.GetCommunity(), by.GetCommunity())
		})
	}
}

func TestWhatAroundAnEventOverHTTPIsNotStored(t *testing.T) {
	w := newWorld(t)
	raw := string(nostrtest.Raw(nostrtest.Event(t, "alice")))
	status, answer := w.post("alice", "/events", " \n"+raw+"\t")
	require.Equal(t, http.StatusOK, status, answer)
	require.Equal(t, raw, string(w.ingests[0].received()[0].GetRaw()))
}

// What is wrong is said before the proof is used up, and goes no further.
func TestWhatIsNoEventIsRefusedOverHTTP(t *testing.T) {
	w := newWorld(t)
	raw := string(nostrtest.Raw(nostrtest.Event(t, "alice")))
	for _, body := range []string{"", "{}", "[]", "null", raw + raw, raw[:len(raw)-1], `["EVENT",` + raw + `]`} {
		status, answer := w.post("alice", "/events", body)
		require.Equal(t, http.StatusBadRequest, status, body)
		require.Contains(t, answer, `"invalid event JSON: `, body)
	}
	require.Empty(t, w.ingests[0].received())
	w.moderation.set(func() { require.Empty(t, w.moderation.tokens) })
}

func TestKindsForConnectionsOnly(t *testing.T) {
	w := newWorld(t)
	for kind, message := range map[nostr.Kind]string{
		nostr.KindGiftWrap: "invalid: kind 1059 is only accepted via WebSocket",
		nostr.KindPresence: "invalid: kind 20001 is only accepted via WebSocket",
		nostr.KindTyping:   "invalid: kind 20002 is only accepted via WebSocket",
	} {
		status, v := w.postEvent("alice", nostrtest.Event(t, "alice", nostrtest.Kind(kind)))
		require.Equal(t, http.StatusBadRequest, status)
		require.Equal(t, message, v.Error)
	}
	require.Empty(t, w.ingests[0].received())
}

// Who may not use a community may do no more by one door than by the other: ask to join where it is closed.
func TestStrangersOverHTTP(t *testing.T) {
	w := newWorld(t)
	w.search.set(func() { w.search.onAccess = func([]byte) bool { return false } })
	join := nostrtest.Event(t, "alice", nostrtest.Kind(nostr.KindRelayJoinRequest))
	status, v := w.postEvent("alice", join)
	require.Equal(t, http.StatusForbidden, status, "the community is open: there is nothing to join")
	require.Equal(t, "blocked: you are banned from this community", v.Error)

	post := func(ev *nostr.Event) (status int, v verdict) {
		body := string(nostrtest.Raw(ev))
		status, _, answer := w.requestBody(http.MethodPost, closedHost, "/events", tokenAt(t, closedHost, "alice", "/events", body), body)
		require.NoError(t, json.Unmarshal([]byte(answer), &v), answer)
		return status, v
	}
	for _, ev := range []*nostr.Event{
		nostrtest.Event(t, "alice"),
		nostrtest.Event(t, "alice", nostrtest.Kind(nostr.KindGiftWrap)),
		nostrtest.Event(t, "bob", nostrtest.Kind(nostr.KindRelayJoinRequest)),
	} {
		status, v = post(ev)
		require.Equal(t, http.StatusForbidden, status)
		require.Equal(t, "restricted: not a relay member", v.Error)
	}
	require.Empty(t, w.ingests[0].received())
	for range 10 {
		status, v = post(join)
		require.Equal(t, http.StatusOK, status, v.Error)
	}
	status, v = post(join)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Equal(t, "rate-limited: too many attempts with invites, try again in a minute", v.Error)
	require.Len(t, w.ingests[0].received(), 10)
}

// A key has the rates of a connection, however many requests it makes at a time.
func TestCallersHaveRates(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.EventRate, c.EventBurst, c.ReqRate, c.ReqBurst = 1, 2, 1, 3 }))
	for range 2 {
		status, v := w.postEvent("alice", nostrtest.Event(t, "alice"))
		require.Equal(t, http.StatusOK, status, v.Error)
	}
	body := string(nostrtest.Raw(nostrtest.Event(t, "alice")))
	status, head, answer := w.requestBody(http.MethodPost, openHost, "/events", token(t, "alice", "/events", body), body)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.JSONEq(t, `{"error":"rate-limited: quota exceeded; retry in 1s"}`, answer)
	require.Equal(t, "1", head.Get("Retry-After"))
	for range 3 {
		status, answer = w.post("alice", "/count", `[{}]`)
		require.Equal(t, http.StatusOK, status, answer)
	}
	status, answer = w.post("alice", "/query", `[{}]`)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.JSONEq(t, `{"error":"quota exceeded; retry in 1s"}`, answer)
	status, answer = w.post("bob", "/count", `[{}]`)
	require.Equal(t, http.StatusOK, status, answer)
	require.Len(t, w.ingests[0].received(), 2)
}

func TestVerdictsOverHTTPHaveADeadline(t *testing.T) {
	w := newWorld(t, with(func(c *gateway.Config) { c.SubmitTimeout = 200 * time.Millisecond }))
	w.ingests[0].answer(func(*ingestv1.Submission) *ingestv1.Verdict { return nil })
	status, v := w.postEvent("alice", nostrtest.Event(t, "alice"))
	require.Equal(t, http.StatusGatewayTimeout, status)
	require.Equal(t, "error: timed out, try again", v.Error)
}

func TestInformationHasAURLOfItsOwn(t *testing.T) {
	w := newWorld(t)
	_, _, want := w.request(http.MethodGet, openHost, "/", http.Header{"Accept": {"application/nostr+json"}})
	status, head, body := w.request(http.MethodGet, openHost, "/info", nil)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, want, body)
	require.Equal(t, "application/nostr+json", head.Get("Content-Type"))
	require.Equal(t, "*", head.Get("Access-Control-Allow-Origin"))
	status, head, _ = w.request(http.MethodPost, openHost, "/info", nil)
	require.Equal(t, http.StatusMethodNotAllowed, status)
	require.Equal(t, "GET, HEAD, OPTIONS", head.Get("Allow"))

	// Under a host without a community it says of this relay what it says under any, and of no community anything.
	status, _, nobody := w.request(http.MethodGet, "nobody.example", "/info", nil)
	require.Equal(t, http.StatusOK, status)
	var here, there map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &here))
	require.NoError(t, json.Unmarshal([]byte(nobody), &there))
	require.Empty(t, there["name"])
	for _, said := range []string{"name", "description", "icon"} {
		delete(here, said)
		delete(there, said)
	}
	require.Equal(t, here, there)
	status, _, _ = w.request(http.MethodPost, "nobody.example", "/info", nil)
	require.Equal(t, http.StatusNotFound, status)
}

// A key costs nothing, so who guesses invite codes with a new one each time is known by its address, by whichever door.
func TestGuessesOfAnAddress(t *testing.T) {
	w := newWorld(t)
	w.search.set(func() { w.search.onAccess = func([]byte) bool { return false } })
	post := func(i int) int {
		name := "stranger " + strconv.Itoa(i)
		body := string(nostrtest.Raw(nostrtest.Event(t, name, nostrtest.Kind(nostr.KindRelayJoinRequest))))
		status, _, _ := w.requestBody(http.MethodPost, closedHost, "/events", tokenAt(t, closedHost, name, "/events", body), body)
		return status
	}
	for i := range 60 {
		require.Equal(t, http.StatusOK, post(i))
	}
	next := 60
	require.Eventually(t, func() bool {
		next++
		return post(next) == http.StatusTooManyRequests
	}, patience, time.Millisecond, "one is granted anew each second")
}

// To accept the join policy takes no signature, so who does it again and again is known by its address.
func TestAcceptancesOfAnAddress(t *testing.T) {
	w := newWorld(t)
	post := func() int {
		status, _, _ := w.requestBody(http.MethodPost, closedHost, "/api/invites/accept-policy", nil, `{"code":"x","policy_version":"1"}`)
		return status
	}
	for range 60 {
		require.NotEqual(t, http.StatusTooManyRequests, post())
	}
	require.Eventually(t, func() bool { return post() == http.StatusTooManyRequests }, patience, time.Millisecond, "one is granted anew each second")
	status, _, body := w.request(http.MethodGet, closedHost, "/api/invites/accept-policy", nil)
	require.Equal(t, http.StatusMethodNotAllowed, status)
	require.JSONEq(t, `{"error":"method not allowed"}`, body)
}
