package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/tenant"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// policyKept is for how long what ingest said of the join policy is given out again: strangers ask for it.
const policyKept = 10 * time.Second

// noJoinPolicy answers who asks for a page of a policy, or accepts one, where there is none.
const noJoinPolicy = "join_policy_not_configured"

// notAccepted answers who accepts another policy, or does not confirm their age where that is asked for. Ingest says after it
// which of the two.
const notAccepted = "join_policy_not_accepted"

// joinPolicies keeps the join policy for a moment, and asks for it once at a time.
type joinPolicies struct {
	asking chan struct{} // has an element while somebody asks
	kept   atomic.Pointer[keptPolicy]
}

type keptPolicy struct {
	policy *ingestv1.JoinPolicy // nil for none
	at     time.Time
}

// get returns the join policy, nil for none.
func (j *joinPolicies) get(ctx context.Context, ask session.Invites) (*ingestv1.JoinPolicy, error) {
	fresh := func() *keptPolicy {
		if k := j.kept.Load(); k != nil && time.Since(k.at) < policyKept {
			return k
		}
		return nil
	}
	if k := fresh(); k != nil {
		return k.policy, nil
	}
	select {
	case j.asking <- struct{}{}:
		defer func() { <-j.asking }()
	case <-ctx.Done():
		return nil, fault.Wrap(fault.Overloaded, "", context.Cause(ctx))
	}
	if k := fresh(); k != nil { // somebody else has asked meanwhile
		return k.policy, nil
	}
	resp, err := ask.GetJoinPolicy(ctx, &ingestv1.GetJoinPolicyRequest{})
	if err != nil {
		return nil, err
	}
	j.kept.Store(&keptPolicy{resp.GetPolicy(), time.Now()})
	return resp.GetPolicy(), nil
}

// joinPolicy is get for a request.
func (b *Bridge) joinPolicy(r *http.Request) (*ingestv1.JoinPolicy, error) {
	ctx, cancel := context.WithTimeout(r.Context(), b.cfg.Timeout)
	defer cancel()
	return b.joins.get(ctx, b.Invites)
}

// JoinPolicy answers a GET with what whoever joins with an invite has to accept first: {"policy": {"terms_markdown",
// "privacy_markdown", "age_attestation_required", "version"}}, or {} where that is nothing. Anybody may ask.
func (b *Bridge) JoinPolicy(w http.ResponseWriter, r *http.Request) {
	type policy struct {
		Terms   string `json:"terms_markdown"`
		Privacy string `json:"privacy_markdown"`
		Age     bool   `json:"age_attestation_required"`
		Version string `json:"version"`
	}
	var answer struct {
		Policy *policy `json:"policy,omitempty"`
	}
	p, err := b.joinPolicy(r)
	if err == nil && p != nil {
		answer.Policy = &policy{p.GetTermsMarkdown(), p.GetPrivacyMarkdown(), p.GetAgeAttestationRequired(), p.GetVersion()}
	}
	b.reply(w, r, answer, err)
}

// reply answers whoever has not signed.
func (b *Bridge) reply(w http.ResponseWriter, r *http.Request, answer any, err error) {
	var body []byte
	if err == nil {
		body, err = json.Marshal(answer)
	}
	if err != nil {
		b.refuse(w, r, err)
		return
	}
	b.Metrics.Called(r.Context(), metrics.OutcomeAccepted)
	write(w, http.StatusOK, body)
}

// Terms and Privacy answer a GET with the page of a text of the join policy, for people: its Markdown as it was written.
func (b *Bridge) Terms(w http.ResponseWriter, r *http.Request) {
	b.page(w, r, "Terms", (*ingestv1.JoinPolicy).GetTermsMarkdown)
}

// Privacy is documented with Terms.
func (b *Bridge) Privacy(w http.ResponseWriter, r *http.Request) {
	b.page(w, r, "Privacy", (*ingestv1.JoinPolicy).GetPrivacyMarkdown)
}

func (b *Bridge) page(w http.ResponseWriter, r *http.Request, title string, text func(*ingestv1.JoinPolicy) string) {
	p, err := b.joinPolicy(r)
	if err == nil && text(p) == "" {
		err = fault.New(fault.NotFound, noJoinPolicy)
	}
	if err != nil {
		b.refuse(w, r, err)
		return
	}
	b.Metrics.Called(r.Context(), metrics.OutcomeAccepted)
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	h.Set("Cache-Control", "no-cache")
	// An error means that the client has left.
	_, _ = fmt.Fprintf(w, `<!doctype html>
<meta charset="utf-8">
<title>%s</title>
<pre style="white-space: pre-wrap">%s</pre>
`, title, html.EscapeString(text(p)))
}

// AcceptPolicy answers a POST of {"code", "policy_version", "age_confirmed"} with {"receipt"}, which is shown with the claim of
// the code. It needs no signature, and does not say whether the code is good. What is wrong with an acceptance is a field of
// its own: {"error", "reason"}.
func (b *Bridge) AcceptPolicy(w http.ResponseWriter, r *http.Request, c session.Community) {
	receipt, err := b.accept(w, r, c)
	if why, ok := strings.CutPrefix(fault.Message(err), notAccepted+": "); ok {
		b.refuseWith(w, r, err, func(string) any {
			return struct {
				Error  string `json:"error"`
				Reason string `json:"reason"`
			}{notAccepted, why}
		})
		return
	}
	b.reply(w, r, struct {
		Receipt string `json:"receipt"`
	}{receipt}, err)
}

func (b *Bridge) accept(w http.ResponseWriter, r *http.Request, c session.Community) (receipt string, err error) {
	now := time.Now()
	if !b.Gate.Client(b.Addr(r), now).Claim(now) {
		return "", fault.New(fault.RateLimited, session.TooManyAttempts)
	}
	if !take(b.readers) {
		return "", fault.New(fault.Overloaded, "")
	}
	body, err := b.read(w, r, maxInviteBody)
	<-b.readers
	if err != nil {
		return "", err
	}
	var says struct {
		Code    string `json:"code"`
		Version string `json:"policy_version"`
		Age     bool   `json:"age_confirmed"`
	}
	if err := decode(body, &says); err != nil {
		return "", err
	}
	if !take(b.slots) {
		return "", fault.New(fault.Overloaded, "")
	}
	defer func() { <-b.slots }()
	ctx, cancel := context.WithTimeout(tenant.With(r.Context(), tenant.ID(c.ID)), b.cfg.Timeout)
	defer cancel()
	resp, err := b.Invites.AcceptJoinPolicy(ctx, &ingestv1.AcceptJoinPolicyRequest{
		Community: c.ID, Code: says.Code, Version: says.Version, AgeConfirmed: says.Age,
	})
	return resp.GetReceipt(), err
}
