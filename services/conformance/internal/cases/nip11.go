package cases

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// nip11 are the cases of the document. They concern every relay that serves one, claimed or not.
func nip11() []suite.Case {
	list := slices.Concat(documentCases, limitCases())
	for i := range list {
		run := list[i].Run
		list[i].NIP = 11
		list[i].Run = func(t *suite.T) {
			if t.Relay().Info == nil {
				t.NotClaimed("the relay serves no NIP-11 document")
			}
			run(t)
		}
	}
	return list
}

var hex64 = regexp.MustCompile(`^[0-9a-f]{64}$`)

var documentCases = []suite.Case{
	{ID: "document/served", Title: "the relay serves a NIP-11 document", Required: true, Run: func(t *suite.T) {
		t.Check(len(t.Relay().Info.Raw) > 0, "fields", "an empty object")
	}},
	{ID: "document/claims", Title: "supported_nips lists numbers, each once", Required: true, Run: func(t *suite.T) {
		raw, there := t.Relay().Info.Raw["supported_nips"]
		if !there {
			t.NotClaimed("there is no supported_nips")
		}
		var nips []int
		err := json.Unmarshal(raw, &nips)
		t.Check(err == nil, "a list of numbers", "%s", raw)
		unique := slices.Compact(slices.Sorted(slices.Values(nips)))
		t.Check(len(unique) == len(nips), "each number once", "%s", raw)
	}},
	{ID: "document/claims-itself", Title: "supported_nips lists 1 and 11", Run: func(t *suite.T) {
		info := t.Relay().Info
		t.Check(info.Claims(1) && info.Claims(11), "1 and 11", "%v", info.NIPs)
	}},
	{ID: "document/types", Title: "fields have the types of NIP-11", Required: true, Run: documentTypes},
	{ID: "document/media-type", Title: "the document's Content-Type is " + client.InfoType, Run: func(t *suite.T) {
		got := t.Relay().Info.Header.Get("Content-Type")
		t.Check(strings.HasPrefix(got, client.InfoType), client.InfoType, "%q", got)
	}},
	{ID: "document/cors", Title: "the document is served with Access-Control-Allow-Origin", Required: true, Run: func(t *suite.T) {
		got := t.Relay().Info.Header.Get("Access-Control-Allow-Origin")
		t.Check(got == "*" || got == "https://conformance.example", "* or the asking origin", "%q", got)
	}},
	{ID: "document/cors-headers", Title: "Access-Control-Allow-Headers and -Methods are served with the document or its preflight", Required: true, Run: func(t *suite.T) {
		preflight := request(t, http.MethodOptions, func(h http.Header) {
			h.Set("Origin", "https://conformance.example")
			h.Set("Access-Control-Request-Method", http.MethodGet)
			h.Set("Access-Control-Request-Headers", "accept")
		})
		for _, name := range []string{"Access-Control-Allow-Headers", "Access-Control-Allow-Methods"} {
			t.Check(t.Relay().Info.Header.Get(name) != "" || preflight.Get(name) != "", name, "neither")
		}
	}},
	{ID: "document/auth-required", Title: "auth_required is what a stranger meets", Required: true, Run: func(t *suite.T) {
		stated := t.Relay().Limits().AuthRequired
		if stated == nil {
			t.NotClaimed("auth_required is not stated")
		}
		guest := t.Guest()
		_, end := guest.Request(filter{Kinds: kindText1, Limit: new(1)})
		if !*stated {
			t.Check(end.Label == client.LabelEOSE, "EOSE, because auth_required is false", "%s", end)
			return
		}
		t.Check(end.Label == client.LabelClosed && strings.HasPrefix(end.Message, "auth-required:"), "CLOSED auth-required:, because auth_required is true", "%s", end)
		guest.Refuse(guest.Note("not authenticated"), "auth-required")
	}},
	{ID: "document/restricted-writes", Title: "an unknown key may write unless restricted_writes, payment_required or min_pow_difficulty is stated", Required: true, Run: func(t *suite.T) {
		limits := t.Relay().Limits()
		said := func(b *bool) bool { return b != nil && *b }
		if said(limits.RestrictedWrites) || said(limits.PaymentRequired) || (limits.MinPowDifficulty != nil && *limits.MinPowDifficulty > 0) {
			t.NotClaimed("writes are restricted, and the document says so")
		}
		alice := t.User()
		alice.Accept(alice.Note("from an unknown key"))
	}},
}

// request sends a request without a body to the relay's URL and returns the answer's header.
func request(t *suite.T, method string, set func(http.Header)) http.Header {
	ctx, cancel := t.Step()
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, client.HTTPURL(t.Relay().URL), http.NoBody)
	t.Check(err == nil, "a request", "%v", err)
	set(req.Header)
	resp, err := t.Relay().HTTP().Do(req)
	t.Check(err == nil, "an answer to "+method, "%v", err)
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.Header
}

// documentTypes looks at the fields that are there; any may be missing.
func documentTypes(t *suite.T) {
	raw := t.Relay().Info.Raw
	text := func(name string) string {
		var s string
		if value, there := raw[name]; there && string(value) != "null" {
			err := json.Unmarshal(value, &s)
			t.Check(err == nil, name+" that is a string", "%s", value)
		}
		return s
	}
	for _, name := range []string{"name", "description", "banner", "icon", "contact", "version", "terms_of_service"} {
		text(name)
	}
	for _, name := range []string{"pubkey", "self"} {
		key := text(name)
		t.Check(key == "" || hex64.MatchString(key), name+" of 64 lower-case hexadecimal digits", "%q", key)
	}
	if software := text("software"); software != "" {
		u, err := url.Parse(software)
		t.Check(err == nil && u.Scheme != "", "software that is a URL", "%q", software)
	}
	value, there := raw["limitation"]
	if !there {
		return
	}
	var limits map[string]json.RawMessage
	err := json.Unmarshal(value, &limits)
	t.Check(err == nil, "limitation that is an object", "%s", value)
	for name, value := range limits {
		var dst any = new(int64)
		switch name {
		case "auth_required", "payment_required", "restricted_writes":
			dst = new(bool)
		default:
			if !strings.HasPrefix(name, "max_") && !strings.HasPrefix(name, "min_") && !strings.HasPrefix(name, "created_at_") {
				continue
			}
		}
		err := json.Unmarshal(value, dst)
		t.Check(err == nil, name+" of its type", "%s", value)
	}
}
