package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// Wish says what an invite code is to be good for; the zero Wish leaves it to the relay.
type Wish struct {
	// Life is how long, in whole seconds; 0 leaves it to the relay.
	Life time.Duration
	// Uses is how many keys may join with it; nil is as many as like.
	Uses *uint32
}

// terms is a wish as services/docs/http.md has it.
type terms struct {
	TTL     *int64  `json:"ttl_secs,omitempty"`
	MaxUses *uint32 `json:"max_uses,omitempty"`
}

func (w Wish) terms() terms {
	t := terms{MaxUses: w.Uses}
	if w.Life > 0 {
		t.TTL = new(int64(w.Life / time.Second))
	}
	return t
}

// Invite has an invite code for the community made (NIP-43), which relays do for its owners and admins. With a wish it is
// made by a signed HTTP request, also by a relay that is reached by WebSocket.
func Invite(ctx context.Context, cfg Config, wish Wish) (string, error) {
	if wish != (Wish{}) {
		cfg = cfg.web()
	}
	r, err := open(ctx, cfg)
	if err != nil {
		return "", describe(ctx, "invite", err)
	}
	defer r.Close()
	code, err := r.invite(ctx, wish)
	switch {
	case err != nil:
		return "", describe(ctx, "invite", err)
	case code == "":
		return "", fmt.Errorf("the relay makes no invite for %s: it does for owners and admins of the community, ten in a minute", cfg.Key.PubKey())
	}
	return Printable(code), nil
}

// Policy is what a relay has whoever joins with an invite accept first.
type Policy struct {
	// Version names what the policy says, and changes with it: one word of letters, digits, dots, dashes and underscores.
	Version string
	// Terms and Privacy are the URLs of the pages to read, empty for one that there is not.
	Terms, Privacy string
	// Age is set when they have to say as well that they are old enough.
	Age bool
}

// Acceptance is what whoever joins says to the relay's policy.
type Acceptance struct {
	// Version is that of the policy which was read and is accepted; empty accepts none.
	Version string
	// Age says that they are old enough.
	Age bool
}

// PolicyError says that a relay takes an invite from those only who accept its policy, and that what was said does not.
type PolicyError struct {
	// Policy is the relay's, as it is now.
	Policy Policy
	// Said is what was said to it.
	Said Acceptance
}

// Error says what is missing.
func (e *PolicyError) Error() string {
	switch e.Said.Version {
	case "":
		return "the relay has a policy that whoever joins accepts first"
	case e.Policy.Version:
		return "the relay has whoever joins confirm their age as well"
	}
	return "the relay's policy is another one now than the one that was accepted"
}

// Words of services/docs/http.md about policies.
const (
	policyRequired      = "join_policy_required"
	policyNotAccepted   = "join_policy_not_accepted"
	policyNotConfigured = "join_policy_not_configured"
)

// errPolicyChanged is a policy that changed between two requests.
var errPolicyChanged = errors.New("the relay's policy has changed in this moment: ask in some seconds what it says now")

// Join makes the key a member of the community with an invite code (NIP-43). The error is a *PolicyError when the relay
// asks for a policy to be accepted, and what was said does not accept it as it is now. notes receives why something is tried
// again.
func Join(ctx context.Context, cfg Config, code string, said Acceptance, notes io.Writer) error {
	request := &nostr.Event{Kind: nostr.KindRelayJoinRequest, Tags: nostr.Tags{{"-"}, {"claim", code}}}
	web := newBridge(cfg.web())
	accepted := false
	if said.Version != "" {
		receipt, err := web.accept(ctx, code, said)
		if err != nil {
			return describe(ctx, "accept the relay's policy", err)
		}
		if accepted = receipt != ""; accepted {
			request.Tags = append(request.Tags, nostr.Tag{"policy_receipt", receipt})
		}
	}
	_, err := Publish(ctx, cfg, request, notes)
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.HasSuffix(refused.Message, policyRequired) {
		return err
	}
	if accepted {
		return errPolicyChanged
	}
	policy, asked := web.policy(ctx)
	switch {
	case asked != nil:
		return describe(ctx, "ask for the relay's policy", asked)
	case policy == nil:
		return err // it says so, and does not say what
	}
	return &PolicyError{Policy: *policy, Said: said}
}

// policy returns the relay's policy, nil if it has none.
func (b *bridge) policy(ctx context.Context) (*Policy, error) {
	status, body, err := b.request(ctx, http.MethodGet, "/api/join-policy", nil, "")
	if err != nil || status == http.StatusNotFound {
		return nil, err // another relay than ours asks for none in this way
	}
	if status != http.StatusOK {
		return nil, refusedPolicy(status, body)
	}
	var answer struct {
		Policy *struct {
			Terms   string `json:"terms_markdown"`
			Privacy string `json:"privacy_markdown"`
			Age     bool   `json:"age_attestation_required"`
			Version string `json:"version"`
		} `json:"policy"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read the relay's policy: %w", err)
	}
	p := answer.Policy
	switch {
	case p == nil:
		return nil, nil //nolint:nilnil // none is an answer
	case !isVersion(p.Version): // people copy it into a command
		return nil, errors.New("the relay's policy has no version that can be accepted")
	}
	policy := &Policy{Version: p.Version, Age: p.Age}
	if p.Terms != "" {
		policy.Terms = b.url("/terms")
	}
	if p.Privacy != "" {
		policy.Privacy = b.url("/privacy")
	}
	return policy, nil
}

// maxVersion is how long the version of a policy may be in bytes.
const maxVersion = 128

// isVersion reports whether text can be the version of a policy: one word, to a shell too, and no flag.
func isVersion(text string) bool {
	return text != "" && len(text) <= maxVersion && text[0] != '-' && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '.' && r != '-' && r != '_'
	})
}

// accept says to the relay what was said to its policy, and returns the receipt that is shown with the code: none if there is
// nothing to be accepted. The error is a *PolicyError if that is not what the policy asks for.
func (b *bridge) accept(ctx context.Context, code string, said Acceptance) (receipt string, err error) {
	policy, err := b.policy(ctx)
	switch {
	case err != nil || policy == nil:
		return "", err
	case policy.Version != said.Version, policy.Age && !said.Age:
		return "", &PolicyError{Policy: *policy, Said: said}
	}
	says, err := json.Marshal(struct {
		Code    string `json:"code"`
		Version string `json:"policy_version"`
		Age     bool   `json:"age_confirmed"`
	}{code, said.Version, said.Age})
	if err != nil {
		return "", err
	}
	status, body, err := b.request(ctx, http.MethodPost, "/api/invites/accept-policy", says, "")
	if err != nil {
		return "", err
	}
	var answer struct {
		Receipt string `json:"receipt"`
		Error   string `json:"error"`
	}
	_ = json.Unmarshal(body, &answer) // without a receipt it is refused below
	switch {
	case status == http.StatusOK && answer.Receipt != "":
		return answer.Receipt, nil
	case answer.Error == policyNotConfigured:
		return "", nil
	case answer.Error == policyNotAccepted:
		return "", errPolicyChanged
	}
	return "", refusedPolicy(status, body)
}

// refusedPolicy is an answer about a policy that is no success.
func refusedPolicy(status int, body []byte) error {
	text, err := refusal(status, body)
	if err != nil {
		return err
	}
	return errors.New(Printable(text))
}
