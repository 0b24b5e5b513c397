package fault

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// Domain is the ErrorInfo domain of our own statuses. A status without it comes from the transport
// or from a foreign server, and its text is not shown to clients.
const Domain = "apiary"

const (
	reasonPrefix = "REASON_"
	refKey       = "ref"
)

// GRPCStatus makes *Error a gRPC status error: the code of the reason, the public message, an
// ErrorInfo with the reason, and a RetryInfo when there is something to wait for. The cause is left
// out.
func (e *Error) GRPCStatus() *status.Status {
	msg := e.Message
	if msg == "" {
		msg = lookup(e.Reason).fallback
	}
	s := status.New(Code(e.Reason), msg)
	info := &errdetails.ErrorInfo{Reason: strings.TrimPrefix(e.Reason.String(), reasonPrefix), Domain: Domain}
	if e.Ref != "" {
		info.Metadata = map[string]string{refKey: e.Ref}
	}
	withInfo, err := s.WithDetails(info)
	if err != nil { // only for codes.OK, which is not an error
		return s
	}
	if e.RetryAfter <= 0 {
		return withInfo
	}
	withRetry, err := withInfo.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	if err != nil {
		return withInfo
	}
	return withRetry
}

// fromStatus reads what GRPCStatus wrote. A status of another origin is mapped by its code and gets
// the standard message.
func fromStatus(s *status.Status, err error) *Error {
	e := &Error{Cause: err}
	known := false
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() != Domain {
				continue
			}
			if n, ok := commonv1.Reason_value[reasonPrefix+d.GetReason()]; ok {
				e.Reason, e.Message, e.Ref, known = Reason(n), s.Message(), d.GetMetadata()[refKey], true
				e.remote = true
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	if !known {
		e.Reason = reasonOfCode(s.Code())
		e.Message = lookup(e.Reason).fallback
	}
	return e
}

// reasonOfCode maps the codes that gRPC itself and foreign servers produce. Codes that would blame
// the caller for what it did not send become InternalFault.
func reasonOfCode(c codes.Code) Reason {
	switch c {
	case codes.OK:
		return Accepted
	case codes.Canceled:
		return Cancelled
	case codes.DeadlineExceeded:
		return Timeout
	case codes.Unavailable, codes.ResourceExhausted:
		return Overloaded
	case codes.Aborted:
		return Conflict
	case codes.Unimplemented:
		return Unsupported
	case codes.NotFound:
		return NotFound
	default:
		return InternalFault
	}
}
