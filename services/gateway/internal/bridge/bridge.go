package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/auth"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/pkg/tenant"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	searchv1 "github.com/apiary-relay/apiary/proto/gen/apiary/search/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/admit"
	"github.com/apiary-relay/apiary/services/gateway/internal/metrics"
	"github.com/apiary-relay/apiary/services/gateway/internal/session"
)

// Lists is what the package asks of the reader about moderation; the generated client has it.
type Lists interface {
	ListModeration(ctx context.Context, in *searchv1.ListModerationRequest, opts ...grpc.CallOption) (
		*searchv1.ListModerationResponse, error)
}

// Config bounds calls.
type Config struct {
	// Wire bounds the filters of a query or count; its Frame bounds their body.
	Wire wire.Limits
	// Calls is how many calls are in hand at a time; further ones are refused. As many times readersPerCall
	// may be sending their bodies.
	Calls int
	// ReadTimeout is how long a client may take to send a body.
	ReadTimeout time.Duration
	// Timeout bounds a call once its body is read.
	Timeout time.Duration
	// Limit is the largest limit of a filter, and that of one without.
	Limit int
	// Answer is the size of the largest answer in bytes.
	Answer int
	// OperatorHosts are the authorities of the operators' origin (normalised), and Operators the keys that may use it.
	OperatorHosts []string
	Operators     map[nostr.PubKey]bool
}

// maxCommand is the size of the largest NIP-86 body: a description of 4,096 bytes, escaped.
const maxCommand = 32 << 10

// Deps is what a bridge uses.
type Deps struct {
	Log        *slog.Logger
	Metrics    *metrics.Metrics
	Moderation ingestv1.ModerationServiceClient
	Invites    session.Invites
	Directory  ingestv1.DirectoryServiceClient
	Lists      Lists
	Queue      searchv1.ModerationServiceClient
	Sessions   *session.Server
	// Gate has the rates of the keys that call.
	Gate *admit.Gate
	// Addr tells the address of a request's client.
	Addr func(*http.Request) netip.Addr
}

// readersPerCall is how many clients may be sending a body for each call in hand. Who sends slowly takes no
// place from those who are done.
const readersPerCall = 8

// Bridge serves calls.
type Bridge struct {
	cfg Config
	Deps
	readers chan struct{} // a place for each body that is being read
	slots   chan struct{} // a place for each call in hand
	joins   joinPolicies
}

// New returns a bridge.
func New(cfg Config, deps Deps) *Bridge {
	return &Bridge{
		cfg: cfg, Deps: deps,
		readers: make(chan struct{}, readersPerCall*cfg.Calls), slots: make(chan struct{}, cfg.Calls),
		joins: joinPolicies{asking: make(chan struct{}, 1)},
	}
}

// call is a request whose key is known and may act.
type call struct {
	community session.Community
	key       nostr.PubKey
	// attestation is whose agent the key has shown to be, nil if it has shown nothing that holds.
	attestation *auth.Attestation
	client      *admit.Client
	origin      string // of the URL that the proof names: http or https, and the host
	body        []byte
}

// serve reads and authenticates a request of a key that may use the community, does what it asks for, and answers in
// JSON.
func (b *Bridge) serve(
	w http.ResponseWriter, r *http.Request, c session.Community, limit int, do func(context.Context, call) ([]byte, error),
) {
	b.serveIf(w, r, c, limit, b.member, do)
}

// door is how a request is let in and refused.
type door struct {
	may    gate
	refuse func(w http.ResponseWriter, r *http.Request, err error)
}

// gate decides whether a call may be made, before its proof is used up.
type gate func(ctx context.Context, call *call) error

// member is the gate of most calls: for keys that may use the community, not too often.
func (b *Bridge) member(ctx context.Context, call *call) error {
	if wait, ok := b.Gate.CallRequest(call.caller(), time.Now()); !ok {
		return session.QuotaExceeded(wait)
	}
	owner, err := b.Sessions.AdmitAttested(ctx, call.community, call.client, call.key, call.attestation)
	if err != nil || owner.IsZero() {
		return err
	}
	if wait, ok := b.Gate.AgentCall(admit.Agent{Community: call.community.ID, Key: call.key, Owner: owner}, time.Now()); !ok {
		return session.QuotaExceeded(wait)
	}
	return nil
}

// caller is who is counted for a call.
func (c *call) caller() admit.Caller { return admit.Caller{Community: c.community.ID, Key: c.key} }

// serveIf is serve with another gate.
func (b *Bridge) serveIf(
	w http.ResponseWriter, r *http.Request, c session.Community, limit int, may gate, do func(context.Context, call) ([]byte, error),
) {
	b.serveAt(w, r, c, limit, door{may, b.refuse}, do)
}

// serveAt is serve with another gate and other refusals.
func (b *Bridge) serveAt(
	w http.ResponseWriter, r *http.Request, c session.Community, limit int, at door, do func(context.Context, call) ([]byte, error),
) {
	if r.Header.Get("Authorization") == "" {
		at.refuse(w, r, fault.New(fault.AuthRequired, "this needs an Authorization header (NIP-98)"))
		return // nothing is read for strangers
	}
	if !take(b.readers) {
		at.refuse(w, r, fault.New(fault.Overloaded, ""))
		return
	}
	body, err := b.read(w, r, limit)
	<-b.readers
	if err != nil {
		at.refuse(w, r, err)
		return
	}
	if !take(b.slots) {
		at.refuse(w, r, fault.New(fault.Overloaded, ""))
		return
	}
	defer func() { <-b.slots }()
	ctx := r.Context()
	if c.ID != 0 { // operators' requests are of no community
		ctx = tenant.With(ctx, tenant.ID(c.ID))
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	call, err := b.authenticate(ctx, r, c, body, at.may)
	if err != nil {
		at.refuse(w, r, err)
		return
	}
	answer, err := do(ctx, call)
	if err != nil {
		at.refuse(w, r, err)
		return
	}
	b.Metrics.Called(r.Context(), metrics.OutcomeAccepted)
	write(w, http.StatusOK, answer)
}

// take takes a place if there is one.
func take(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		return false
	}
}

// read reads the body, within the limit and in time.
func (b *Bridge) read(w http.ResponseWriter, r *http.Request, limit int) ([]byte, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(b.cfg.ReadTimeout)); err != nil {
		return nil, fault.Internal(err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return nil, large
		}
		return nil, fault.Wrap(fault.Invalid, "the body could not be read", err)
	}
	w.Header().Del("Connection") // the edge closes connections whose bodies are not read
	// Without this the server would take the deadline's passing for the client's leaving.
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return nil, fault.Internal(err)
	}
	return body, nil
}

// refuse answers with what went wrong.
func (b *Bridge) refuse(w http.ResponseWriter, r *http.Request, err error) {
	b.refuseWith(w, r, err, func(message string) any {
		return struct {
			Error string `json:"error"`
		}{message}
	})
}

// refuseWith is refuse with another form of the answer.
func (b *Bridge) refuseWith(w http.ResponseWriter, r *http.Request, err error, form func(message string) any) {
	reason, message := fault.ReasonOf(err), fault.Message(err)
	status := fault.HTTPStatus(reason)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		reason, status, message = fault.Invalid, http.StatusRequestEntityTooLarge, "the body is too large"
	}
	switch reason {
	case fault.AuthRequired:
		w.Header().Set("WWW-Authenticate", "Nostr")
	case fault.Overloaded:
		w.Header().Set("Retry-After", strconv.Itoa(1+rand.N(5))) //nolint:gosec // jitter
	case fault.RateLimited:
		if wait := fault.From(err).RetryAfter; wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
		}
	case fault.InternalFault:
		b.Log.LogAttrs(r.Context(), slog.LevelError, "call failed", slog.Any(telemetry.KeyError, err))
	default:
	}
	b.Metrics.Called(r.Context(), outcome(reason))
	body, err := json.Marshal(form(message))
	if err != nil {
		body = []byte(`{"error":"internal"}`) // a string always marshals
	}
	write(w, status, body)
}

// outcome is the metric's label for a refusal.
func outcome(r fault.Reason) string {
	switch r {
	case fault.AuthRequired:
		return metrics.OutcomeAuth
	case fault.Restricted, fault.Blocked, fault.RateLimited:
		return metrics.OutcomePolicy
	case fault.Overloaded, fault.Timeout, fault.InternalFault, fault.Conflict:
		return metrics.OutcomeUnavailable
	case fault.Cancelled:
		return metrics.OutcomePeer
	default:
		return metrics.OutcomeInvalid
	}
}

func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has left
}
