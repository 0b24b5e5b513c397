package cases

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// manage sends a management call with an Authorization, if any, and returns the status.
func manage(t *suite.T, authorization string) int {
	ctx, cancel := t.Step()
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, client.HTTPURL(t.Relay().URL), strings.NewReader(`{"method":"banpubkey","params":[]}`))
	t.Check(err == nil, "a request", "%v", err)
	req.Header.Set("Content-Type", "application/nostr+json+rpc")
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := t.Relay().HTTP().Do(req)
	t.Check(err == nil, "an answer", "%v", err)
	defer resp.Body.Close()
	return resp.StatusCode
}

// authorize signs a NIP-98 header without the payload that NIP-86 demands.
func authorize(t *suite.T, u *suite.User) string {
	e := u.Event(t.Now(), nostr.KindHTTPAuth, "", tag("u", client.HTTPURL(t.Relay().URL)), tag("method", http.MethodPost))
	return "Nostr " + base64.StdEncoding.EncodeToString(e.AppendJSON(nil))
}

var nip86 = []suite.Case{
	{ID: "no-authorization", Title: "a management call without Authorization is answered 401", Required: true, Run: func(t *suite.T) {
		status := manage(t, "")
		t.Check(status == http.StatusUnauthorized, "401", "%d", status)
	}},
	{ID: "bad-authorization", Title: "a management call with an Authorization that is none is answered 401", Required: true, Run: func(t *suite.T) {
		status := manage(t, "Nostr bm90IGFuIGV2ZW50")
		t.Check(status == http.StatusUnauthorized, "401", "%d", status)
	}},
	{ID: "no-payload", Title: "a management call whose Authorization does not cover the body is answered 401", Required: true, Run: func(t *suite.T) {
		status := manage(t, authorize(t, t.User()))
		t.Check(status == http.StatusUnauthorized, "401", "%d", status)
	}},
}
