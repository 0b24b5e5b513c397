package fault

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is a failure with a reason. Build it with New, Wrap or Internal; the fields are read only
// afterwards.
type Error struct {
	// Reason selects prefix, code and status.
	Reason Reason
	// Message is public, without prefix. It says nothing of what is hidden from the caller.
	Message string
	// Cause is for the log only and may be nil.
	Cause error
	// RetryAfter is how long the caller should wait before it tries again; 0 says nothing.
	RetryAfter time.Duration
	// Ref is the reference that the public text of an internal fault shares with the log, else empty.
	Ref string

	// remote: another process made this error, and logged it if it had to be.
	remote bool
}

// New returns an error with a reason and a public message (without prefix).
func New(reason Reason, publicMsg string) *Error {
	return &Error{Reason: reason, Message: publicMsg}
}

// Wrap is New with a cause, which is kept for the log and for errors.Is but is never sent.
func Wrap(reason Reason, publicMsg string, cause error) *Error {
	return &Error{Reason: reason, Message: publicMsg, Cause: cause}
}

// Internal turns err into an internal fault with a fresh reference: "internal (ref 1a2b3c4d)". The
// reference is random, not a hash of the text, so that it tells a client nothing about the cause.
func Internal(err error) *Error {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand aborts the program instead)
	ref := hex.EncodeToString(b[:])
	return &Error{Reason: InternalFault, Message: "internal (ref " + ref + ")", Cause: err, Ref: ref}
}

// After returns a copy of e that tells the caller to wait d before it tries again.
func (e *Error) After(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// Error returns the public text and the cause. It is for logs: send Frame or Message instead.
func (e *Error) Error() string {
	s := FrameText(e.Reason, e.Message)
	if s == "" {
		s = "cancelled"
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// LogValue makes a group of reason, reference, public message and cause.
func (e *Error) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("reason", e.Reason.String()), slog.String("message", e.Message)}
	if e.Ref != "" {
		attrs = append(attrs, slog.String("ref", e.Ref))
	}
	if e.Cause != nil {
		attrs = append(attrs, slog.String("cause", e.Cause.Error()))
	}
	return slog.GroupValue(attrs...)
}

// From turns any error into an *Error: one found in err's chain as it is, context errors and gRPC
// statuses by what they mean, everything else as InternalFault with err as the cause and no
// reference. A nil error gives nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return Wrap(Cancelled, "", err)
	case errors.Is(err, context.DeadlineExceeded):
		return Wrap(Timeout, table[Timeout].fallback, err)
	}
	// Not status.FromError: it would put the text of whatever wraps the status into the message.
	var carrier interface{ GRPCStatus() *status.Status }
	if errors.As(err, &carrier) {
		if s := carrier.GRPCStatus(); s.Code() != codes.OK {
			return fromStatus(s, err)
		}
	}
	return Wrap(InternalFault, table[InternalFault].fallback, err)
}

// ReasonOf returns the reason of a local error or of one that crossed gRPC: Accepted for nil,
// InternalFault for an error without a reason.
func ReasonOf(err error) Reason {
	if err == nil {
		return Accepted
	}
	return From(err).Reason
}

// Message returns the public message of err without prefix, never the text of a cause. It is empty
// for nil and for a caller that left.
func Message(err error) string {
	if err == nil {
		return ""
	}
	e := From(err)
	if e.Message == "" {
		return lookup(e.Reason).fallback
	}
	return e.Message
}

// Frame returns the NIP-01 text for err: "invalid: bad signature". It is empty when err is nil or the
// caller left, and then nothing is sent.
func Frame(err error) string {
	if err == nil {
		return ""
	}
	e := From(err)
	return FrameText(e.Reason, e.Message)
}
