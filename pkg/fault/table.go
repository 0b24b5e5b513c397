package fault

import (
	"net/http"

	"google.golang.org/grpc/codes"

	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// Reason says why something was refused or failed. It is the enum of the protocol, so that a verdict
// needs no translation.
type Reason = commonv1.Reason

// The reasons, under shorter names than the generated ones. Their meaning is documented in
// reason.proto.
const (
	// Accepted is the reason of a verdict that refuses nothing, and of a nil error.
	Accepted = commonv1.Reason_REASON_UNSPECIFIED
	// Duplicate is a success for the writer of an event.
	Duplicate = commonv1.Reason_REASON_DUPLICATE
	// Invalid input never becomes valid by trying again.
	Invalid = commonv1.Reason_REASON_INVALID
	// Pow asks for more proof of work (NIP-13).
	Pow = commonv1.Reason_REASON_POW
	// AuthRequired asks for NIP-42 authentication.
	AuthRequired = commonv1.Reason_REASON_AUTH_REQUIRED
	// Restricted refuses an authenticated caller.
	Restricted = commonv1.Reason_REASON_RESTRICTED
	// Blocked refuses what was banned, or deleted before.
	Blocked = commonv1.Reason_REASON_BLOCKED
	// RateLimited asks the caller to come back later.
	RateLimited = commonv1.Reason_REASON_RATE_LIMITED
	// Mute says that nobody listens to an ephemeral event.
	Mute = commonv1.Reason_REASON_MUTE
	// Unsupported is for what this relay does not do.
	Unsupported = commonv1.Reason_REASON_UNSUPPORTED
	// NotFound covers what is missing and what is hidden; the two are not told apart.
	NotFound = commonv1.Reason_REASON_NOT_FOUND
	// Conflict is a concurrent change that won after all retries.
	Conflict = commonv1.Reason_REASON_CONFLICT
	// Overloaded is shed load, a dependency that is down, or draining.
	Overloaded = commonv1.Reason_REASON_OVERLOADED
	// Timeout is a deadline that passed.
	Timeout = commonv1.Reason_REASON_TIMEOUT
	// Cancelled means that the caller left; nothing is sent to it.
	Cancelled = commonv1.Reason_REASON_CANCELLED
	// InternalFault is a fault of the relay. Make it with Internal, which adds the log reference.
	InternalFault = commonv1.Reason_REASON_INTERNAL
	// Exists refuses an event because another one has done what it is for. It has the prefix of Duplicate
	// (NIP-01), but is no success.
	Exists = commonv1.Reason_REASON_EXISTS
)

// row is what the outside sees of one reason.
type row struct {
	prefix    string // NIP-01 or NIP-42 prefix without the colon; empty: nothing is sent
	fallback  string // public message when the error has none
	code      codes.Code
	status    int
	retryable bool
}

// statusClientClosed is nginx's status for a client that left before the answer; net/http has no
// name for it.
const statusClientClosed = 499

// table is indexed by Reason. A test fails when the enum grows and the table does not.
var table = [...]row{
	Accepted:      {"", "", codes.OK, http.StatusOK, false},
	Duplicate:     {"duplicate", "already have this", codes.AlreadyExists, http.StatusConflict, false},
	Invalid:       {"invalid", "malformed request", codes.InvalidArgument, http.StatusBadRequest, false},
	Pow:           {"pow", "more proof of work is needed", codes.FailedPrecondition, http.StatusBadRequest, false},
	AuthRequired:  {"auth-required", "authenticate first", codes.Unauthenticated, http.StatusUnauthorized, false},
	Restricted:    {"restricted", "not allowed", codes.PermissionDenied, http.StatusForbidden, false},
	Blocked:       {"blocked", "not accepted here", codes.PermissionDenied, http.StatusForbidden, false},
	RateLimited:   {"rate-limited", "slow down", codes.ResourceExhausted, http.StatusTooManyRequests, true},
	Mute:          {"mute", "no one was listening", codes.FailedPrecondition, http.StatusConflict, false},
	Unsupported:   {"unsupported", "not supported", codes.Unimplemented, http.StatusNotImplemented, false},
	NotFound:      {"error", "not found", codes.NotFound, http.StatusNotFound, false},
	Conflict:      {"error", "conflicting change, try again", codes.Aborted, http.StatusConflict, true},
	Overloaded:    {"error", "temporarily unavailable, try again", codes.Unavailable, http.StatusServiceUnavailable, true},
	Timeout:       {"error", "timed out, try again", codes.DeadlineExceeded, http.StatusGatewayTimeout, true},
	Cancelled:     {"", "", codes.Canceled, statusClientClosed, false},
	InternalFault: {"error", "internal", codes.Internal, http.StatusInternalServerError, false},
	Exists:        {"duplicate", "this exists already", codes.AlreadyExists, http.StatusConflict, false},
}

// lookup returns the row of r. A reason from a newer release is treated as an internal fault.
func lookup(r Reason) row {
	if r < 0 || int(r) >= len(table) {
		return table[InternalFault]
	}
	return table[r]
}

// Code returns the gRPC code of r; codes.OK for Accepted.
func Code(r Reason) codes.Code { return lookup(r).code }

// HTTPStatus returns the HTTP status of a failure with reason r. A Duplicate verdict on an event is a
// success and is answered 200 by whoever holds the verdict; as a failure it is a conflict.
func HTTPStatus(r Reason) int { return lookup(r).status }

// Retryable reports whether the same request may succeed when it is simply sent again.
func Retryable(r Reason) bool { return lookup(r).retryable }

// Succeeded reports whether a verdict with reason r is `OK true` to the writer of an event.
func Succeeded(r Reason) bool { return r == Accepted || r == Duplicate }

// Prefix returns the NIP-01 or NIP-42 prefix of r without the colon; it is empty for Accepted and
// Cancelled.
func Prefix(r Reason) string { return lookup(r).prefix }

// FrameText returns the text of an OK or CLOSED frame: "prefix: msg". An empty msg is replaced by the
// standard text of the reason. Accepted gives msg alone, Cancelled gives the empty string.
func FrameText(r Reason, msg string) string {
	t := lookup(r)
	switch {
	case r == Cancelled:
		return ""
	case t.prefix == "":
		return msg
	case msg == "":
		return t.prefix + ": " + t.fallback
	default:
		return t.prefix + ": " + msg
	}
}
