package bridge

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr/nip19"
	"github.com/apiary-relay/apiary/pkg/tenant"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// operatorRoot is where the operators' API is.
const operatorRoot = "/operator/communities"

// maxOperatorBody is the size of the largest body in bytes: 63 aliases of 261 bytes, and a description.
const maxOperatorBody = 64 << 10

// errNotOperator refuses a key that is not an operator's.
var errNotOperator = fault.New(fault.Restricted, "actor not authorized: not a relay operator")

// operation does what one request of an operator asks for and returns what is answered in JSON.
type operation func(ctx context.Context, b *Bridge, r *http.Request, body []byte) (any, error)

// operations are the requests that there are, by path below operatorRoot and method.
var operations = map[string]map[string]operation{
	"":              {http.MethodGet: listOwned, http.MethodPost: createCommunity},
	"/availability": {http.MethodGet: availability},
	"/archive":      {http.MethodPost: archiveCommunity},
	"/unarchive":    {http.MethodPost: unarchiveCommunity},
	"/transfer":     {http.MethodPost: transferCommunity},
	"/delete":       {http.MethodPost: deleteCommunity},
	"/aliases":      {http.MethodPost: addAlias, http.MethodDelete: removeAlias},
	"/release":      {http.MethodPost: releaseHost},
}

// OperatorHosts are the authorities (normalised) at which Operate is to be called.
func (b *Bridge) OperatorHosts() []string { return b.cfg.OperatorHosts }

// Operate answers a request at the operators' origin, signed by an operator's key (NIP-98), in JSON; errors are
// {"error", "code"}. It reports false, and answers nothing, when there is no such path.
func (b *Bridge) Operate(w http.ResponseWriter, r *http.Request) bool {
	path, ok := strings.CutPrefix(r.URL.Path, operatorRoot)
	methods, known := operations[path]
	if !ok || !known {
		return false
	}
	do, known := methods[r.Method]
	if !known {
		allow := make([]string, 0, len(methods))
		for method := range methods {
			allow = append(allow, method)
		}
		slices.Sort(allow)
		w.Header().Set("Allow", strings.Join(allow, ", "))
		writeJSON(w, http.StatusMethodNotAllowed, problem{Error: "method not allowed", Code: "method_not_allowed"})
		return true
	}
	// The proof names this origin, never the host of a community, and is used up apart from those of communities.
	origin := session.Community{Hosts: b.cfg.OperatorHosts}
	b.serveAt(w, r, origin, maxOperatorBody, door{b.operator, b.refuseOperator}, func(ctx context.Context, call call) ([]byte, error) {
		answer, err := do(ctx, b, r, call.body)
		if err != nil {
			return nil, err
		}
		return json.Marshal(answer)
	})
	return true
}

// operator is the gate of operators.
func (b *Bridge) operator(_ context.Context, call *call) error {
	if !b.cfg.Operators[call.key] {
		return errNotOperator
	}
	return nil
}

// problem is an error in JSON. Code is for programs, Error for people.
type problem struct {
	Error string `json:"error"`
	Code  string `json:"code"`
	// MaxCommunities is set when an owner has as many as it may.
	MaxCommunities uint32 `json:"max_communities_per_owner,omitempty"`
	*pendingArchive
}

// pendingArchive is an archival that is committed and that gateways may not know of yet.
type pendingArchive struct {
	Propagation string `json:"propagation"`
	archived
}

// problemError is an error with more to say than its text.
type problemError struct {
	cause   *fault.Error
	problem problem
}

// Error returns the text of the cause.
func (e *problemError) Error() string { return e.cause.Error() }

// Unwrap lets the reason be found.
func (e *problemError) Unwrap() error { return e.cause }

// refuseOperator answers with what went wrong. Operators may know every community, so they are told what it was.
func (b *Bridge) refuseOperator(w http.ResponseWriter, r *http.Request, err error) {
	b.refuseWith(w, r, err, func(message string) any {
		p := problem{}
		if more, ok := errors.AsType[*problemError](err); ok {
			p = more.problem
		}
		p.Error, p.Code = message, codeOf(fault.ReasonOf(err), message)
		return p
	})
}

// codeOf is the code of an error: what its text begins with, as of conflicts, or else its reason.
func codeOf(reason fault.Reason, message string) string {
	if code, _, ok := strings.Cut(message, ": "); ok && reason == fault.Exists {
		return code
	}
	switch reason {
	case fault.Exists:
		return "already_exists"
	case fault.Invalid:
		return "invalid"
	case fault.AuthRequired:
		return "unauthorized"
	case fault.Restricted:
		return "forbidden"
	case fault.NotFound:
		return "not_found"
	case fault.Overloaded, fault.Timeout, fault.Conflict:
		return "unavailable"
	default:
		return "internal"
	}
}

func writeJSON(w http.ResponseWriter, status int, answer any) {
	body, err := json.Marshal(answer)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"internal","code":"internal"}`)
	}
	write(w, status, body)
}

// parseOwner reads a public key, in hexadecimal or as npub.
func parseOwner(text, field string) ([]byte, error) {
	key, err := nip19.ParsePubKey(text)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, field+" must be a public key", err)
	}
	return key[:], nil
}

// refOf chooses a community by its id if there is one, else by its host.
func refOf(id, host string) *ingestv1.CommunityRef {
	if id != "" {
		return &ingestv1.CommunityRef{By: &ingestv1.CommunityRef_Uuid{Uuid: id}}
	}
	return &ingestv1.CommunityRef{By: &ingestv1.CommunityRef_Host{Host: host}}
}

// isReserved reports whether a host is, or would be found under, the operators' own.
func (b *Bridge) isReserved(host string) bool {
	normal, err := tenant.NormalizeHost(host)
	return err == nil && slices.ContainsFunc(tenant.Candidates(normal), func(name string) bool {
		return slices.Contains(b.cfg.OperatorHosts, name)
	})
}

// mayHave refuses hosts that no community can have, and those that are written otherwise than they would be found: what is
// answered names hosts as they were asked for.
func (b *Bridge) mayHave(hosts ...string) error {
	for _, host := range hosts {
		if b.isReserved(host) {
			return errReserved
		}
		if err := tenant.ValidateHost(host); err != nil {
			return fault.Wrap(fault.Invalid, "malformed host: it has to be as availability has it (normalized_host)", err)
		}
	}
	return nil
}

// errReserved refuses the operators' own hosts to communities.
var errReserved = fault.New(fault.Exists, "host_taken: the host is that of the operators' API")

// keyText is a key in hexadecimal, empty for none.
func keyText(key []byte) string { return hex.EncodeToString(key) }
