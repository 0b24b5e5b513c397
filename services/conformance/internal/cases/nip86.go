package cases

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// manage sends a management call with an Authorization, if any, and returns the status and whether the
// answer is an error.
func manage(t *suite.T, authorization string) (status int, refused bool) {
	ctx, cancel := t.Step()
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, client.HTTPURL(t.Relay().URL), strings.NewReader(`{"method":"listbannedpubkeys","params":[]}`))
	t.Check(err == nil, "a request", "%v", err)
	req.Header.Set("Content-Type", "application/nostr+json+rpc")
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := t.Relay().HTTP().Do(req)
	t.Check(err == nil, "an answer", "%v", err)
	defer resp.Body.Close()
	var answer struct {
		Error string `json:"error"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer)
	return resp.StatusCode, resp.StatusCode >= http.StatusBadRequest || answer.Error != ""
}

// authorize signs a NIP-98 header without the payload that NIP-86 demands.
func authorize(t *suite.T, u *suite.User) string {
	e := u.Event(t.Now(), nostr.KindHTTPAuth, "", tag("u", client.HTTPURL(t.Relay().URL)), tag("method", http.MethodPost))
	return "Nostr " + base64.StdEncoding.EncodeToString(e.AppendJSON(nil))
}

// notManaged is a case of a call that must not be carried out.
func notManaged(id, title string, authorization func(t *suite.T) string) suite.Case {
	return suite.Case{ID: id, Title: "a management call " + title + " is refused", Required: true, Run: func(t *suite.T) {
		status, refused := manage(t, authorization(t))
		t.Check(refused, "an error", "status %d", status)
	}}
}

var nip86 = []suite.Case{
	notManaged("no-authorization", "without Authorization", func(*suite.T) string { return "" }),
	notManaged("bad-authorization", "with an Authorization that is none", func(*suite.T) string { return "Nostr bm90IGFuIGV2ZW50" }),
	notManaged("no-payload", "whose Authorization does not cover the body", func(t *suite.T) string { return authorize(t, t.User()) }),
	{ID: "status", Title: "a management call without Authorization is answered 401", Run: func(t *suite.T) {
		status, _ := manage(t, "")
		t.Check(status == http.StatusUnauthorized, "401", "%d", status)
	}},
}
