package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/apiary-relay/apiary/pkg/fault"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
)

// One line per reason: what each side of the relay makes of it.
func TestTable(t *testing.T) {
	for _, c := range []struct {
		reason fault.Reason
		frame  string
		code   codes.Code
		http   int
		retry  bool
	}{
		{fault.Accepted, "x", codes.OK, 200, false},
		{fault.Duplicate, "duplicate: x", codes.AlreadyExists, 409, false},
		{fault.Invalid, "invalid: x", codes.InvalidArgument, 400, false},
		{fault.Pow, "pow: x", codes.FailedPrecondition, 400, false},
		{fault.AuthRequired, "auth-required: x", codes.Unauthenticated, 401, false},
		{fault.Restricted, "restricted: x", codes.PermissionDenied, 403, false},
		{fault.Blocked, "blocked: x", codes.PermissionDenied, 403, false},
		{fault.RateLimited, "rate-limited: x", codes.ResourceExhausted, 429, true},
		{fault.Mute, "mute: x", codes.FailedPrecondition, 409, false},
		{fault.Unsupported, "unsupported: x", codes.Unimplemented, 501, false},
		{fault.NotFound, "error: x", codes.NotFound, 404, false},
		{fault.Conflict, "error: x", codes.Aborted, 409, true},
		{fault.Overloaded, "error: x", codes.Unavailable, 503, true},
		{fault.Timeout, "error: x", codes.DeadlineExceeded, 504, true},
		{fault.Cancelled, "", codes.Canceled, 499, false},
		{fault.InternalFault, "error: x", codes.Internal, 500, false},
		{fault.Exists, "duplicate: x", codes.AlreadyExists, 409, false},
	} {
		t.Run(c.reason.String(), func(t *testing.T) {
			require.Equal(t, c.frame, fault.FrameText(c.reason, "x"))
			require.Equal(t, c.code, fault.Code(c.reason))
			require.Equal(t, c.http, fault.HTTPStatus(c.reason))
			require.Equal(t, c.retry, fault.Retryable(c.reason))
			require.True(t, strings.HasPrefix(fault.FrameText(c.reason, ""), fault.Prefix(c.reason)))
		})
	}
}

func TestTableCoversTheEnum(t *testing.T) {
	for n := range commonv1.Reason_name {
		if r := fault.Reason(n); r != fault.Accepted && r != fault.Cancelled {
			require.NotEmpty(t, fault.FrameText(r, ""), r.String())
		}
	}
	unknown := fault.Reason(len(commonv1.Reason_name))
	require.Equal(t, codes.Internal, fault.Code(unknown), "a reason of a newer release")
	require.Equal(t, "error: internal", fault.FrameText(-1, ""))
}

func TestSucceeded(t *testing.T) {
	require.True(t, fault.Succeeded(fault.Accepted))
	require.True(t, fault.Succeeded(fault.Duplicate))
	require.False(t, fault.Succeeded(fault.Invalid))
	require.False(t, fault.Succeeded(fault.Exists))
}

var errDriver = errors.New("pq: password of 10.0.0.7 is hunter2")

func TestCauseIsForTheLogOnly(t *testing.T) {
	err := fmt.Errorf("publish batch: %w", fault.Wrap(fault.Overloaded, "try again", errDriver))
	require.ErrorIs(t, err, errDriver)
	require.ErrorContains(t, err, "hunter2")
	require.Equal(t, fault.Overloaded, fault.ReasonOf(err))
	require.Equal(t, "try again", fault.Message(err))
	require.Equal(t, "error: try again", fault.Frame(err))
	require.NotContains(t, fault.From(err).GRPCStatus().String(), "hunter2")
}

func TestForeignErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		reason fault.Reason
		frame  string
	}{
		{nil, fault.Accepted, ""},
		{errDriver, fault.InternalFault, "error: internal"},
		{context.Canceled, fault.Cancelled, ""},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), fault.Timeout, "error: timed out, try again"},
		{status.Error(codes.Unavailable, "dial tcp 10.0.0.7"), fault.Overloaded, "error: temporarily unavailable, try again"},
		{status.Error(codes.ResourceExhausted, "message too large"), fault.Overloaded, "error: temporarily unavailable, try again"},
		{status.Error(codes.PermissionDenied, "hunter2"), fault.InternalFault, "error: internal"},
		{status.Error(codes.Canceled, ""), fault.Cancelled, ""},
		{fmt.Errorf("ask: %w", status.Error(codes.DeadlineExceeded, "")), fault.Timeout, "error: timed out, try again"},
		{status.Error(codes.Unimplemented, "unknown method"), fault.Unsupported, "unsupported: not supported"},
		{status.Error(codes.NotFound, "row"), fault.NotFound, "error: not found"},
		{status.Error(codes.Aborted, "tx"), fault.Conflict, "error: conflicting change, try again"},
	} {
		require.Equal(t, c.reason, fault.ReasonOf(c.err), "%v", c.err)
		require.Equal(t, c.frame, fault.Frame(c.err), "%v", c.err)
	}
	require.Empty(t, fault.Message(nil))
	require.Nil(t, fault.From(nil))
}

func TestInternalHasAReference(t *testing.T) {
	e := fault.Internal(errDriver)
	require.Regexp(t, `^error: internal \(ref [0-9a-f]{8}\)$`, fault.Frame(e))
	require.NotEqual(t, e.Ref, fault.Internal(errDriver).Ref)
	require.ErrorIs(t, e, errDriver)
}

// A reason, its message, its reference and its delay survive a hop, and a second one.
func TestRoundTrip(t *testing.T) {
	for n := range commonv1.Reason_name {
		r := fault.Reason(n)
		if r == fault.Accepted {
			continue
		}
		e := fault.New(r, "said "+r.String()).After(1500 * time.Millisecond)
		hop := fault.From(fmt.Errorf("call: %w", fault.From(e.GRPCStatus().Err()).GRPCStatus().Err()))
		require.Equal(t, r, hop.Reason)
		require.Equal(t, e.Message, hop.Message)
		require.Equal(t, e.RetryAfter, hop.RetryAfter)
	}
	e := fault.Internal(errDriver)
	require.Equal(t, e.Ref, fault.From(e.GRPCStatus().Err()).Ref)
	require.Equal(t, "error: slow down", "error: "+fault.Message(fault.New(fault.RateLimited, "").GRPCStatus().Err()))
}

func TestLogValue(t *testing.T) {
	var out strings.Builder
	e := fault.Internal(errDriver)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", slog.Any("error", e))
	require.Contains(t, out.String(), "error.ref="+e.Ref)
	require.Contains(t, out.String(), "hunter2")
	require.Equal(t, "cancelled", fault.New(fault.Cancelled, "").Error())
}

// call runs the unary and the stream interceptor around fn and returns what each sends and logs.
func call(t *testing.T, fn func() error) (logged string, err error) {
	t.Helper()
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	_, err = fault.UnaryServerInterceptor(log)(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/x/Y"},
		func(context.Context, any) (any, error) { return 1, fn() })
	streamErr := fault.StreamServerInterceptor(slog.New(slog.DiscardHandler))(nil, stream{ctx: t.Context()},
		&grpc.StreamServerInfo{FullMethod: "/x/Y"}, func(any, grpc.ServerStream) error { return fn() })
	require.Equal(t, fault.ReasonOf(err), fault.ReasonOf(streamErr))
	return out.String(), err
}

type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }

func TestInterceptors(t *testing.T) {
	t.Run("success", func(t *testing.T) {
		logged, err := call(t, func() error { return nil })
		require.NoError(t, err)
		require.Empty(t, logged)
	})
	t.Run("no reason", func(t *testing.T) {
		logged, err := call(t, func() error { return errDriver })
		require.Equal(t, codes.Internal, status.Code(err))
		require.NotContains(t, err.Error(), "hunter2")
		require.Contains(t, logged, "level=ERROR")
		require.Contains(t, logged, "hunter2")
		require.Contains(t, logged, "error.ref="+fault.From(err).Ref)
	})
	t.Run("panic", func(t *testing.T) {
		logged, err := call(t, func() error { panic("boom") })
		require.Regexp(t, `internal \(ref [0-9a-f]{8}\)`, fault.Message(err))
		require.Contains(t, logged, "boom")
		require.Contains(t, logged, "fault_test.go", "the stack")
	})
	t.Run("refused", func(t *testing.T) {
		logged, err := call(t, func() error { return fault.New(fault.Restricted, "not a channel member") })
		require.Equal(t, "restricted: not a channel member", fault.Frame(err))
		require.Contains(t, logged, "level=DEBUG")
	})
	t.Run("dependency down", func(t *testing.T) {
		logged, err := call(t, func() error { return fault.Wrap(fault.Overloaded, "try again", errDriver) })
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.Contains(t, logged, "level=WARN")
	})
	t.Run("caller left", func(t *testing.T) {
		logged, err := call(t, func() error { return fmt.Errorf("send: %w", context.Canceled) })
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Contains(t, logged, "level=DEBUG")
	})
	t.Run("passed on from another service", func(t *testing.T) {
		far := fault.Internal(errDriver)
		logged, err := call(t, func() error { return fmt.Errorf("ask search: %w", far.GRPCStatus().Err()) })
		require.Equal(t, far.Ref, fault.From(err).Ref, "the reference of the log line over there")
		require.Contains(t, logged, "level=DEBUG", "it was logged there")
	})
	t.Run("foreign status", func(t *testing.T) {
		logged, err := call(t, func() error { return status.Error(codes.Internal, "hunter2") })
		require.NotContains(t, err.Error(), "hunter2")
		require.Contains(t, logged, "level=ERROR")
	})
	t.Run("end of input", func(t *testing.T) {
		_, err := call(t, func() error { return io.EOF })
		require.Equal(t, codes.Internal, status.Code(err))
	})
}

// A wait that is broken off because its caller has left is no dependency's fault, and nobody hears the answer.
func TestWhoHasLeftNeedsNoAttention(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		var out strings.Builder
		log := slog.New(slog.NewTextHandler(&out, nil))
		ctx, leave := context.WithCancel(t.Context())
		if gone {
			leave()
		}
		_, err := fault.UnaryServerInterceptor(log)(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/x/Y"},
			func(context.Context, any) (any, error) {
				return nil, fault.Wrap(fault.Overloaded, "", io.ErrClosedPipe)
			})
		leave()
		require.Equal(t, fault.Overloaded, fault.ReasonOf(err))
		require.Equal(t, !gone, strings.Contains(out.String(), "level=WARN"), out.String())
	}
}
