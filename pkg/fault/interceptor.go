package fault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
)

// UnaryServerInterceptor sends every error of a handler as a status with a reason, logs those a
// person or a graph should see, and turns a panic into an internal fault. log must not be nil; give
// it a sampled handler, because a dependency that is down fails every call.
func UnaryServerInterceptor(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if r := recover(); r != nil {
				resp, err = nil, panicked(r)
			}
			err = report(ctx, log, info.FullMethod, err)
		}()
		return handler(ctx, req)
	}
}

// StreamServerInterceptor is UnaryServerInterceptor for streams.
func StreamServerInterceptor(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = panicked(r)
			}
			err = report(ss.Context(), log, info.FullMethod, err)
		}()
		return handler(srv, ss)
	}
}

// panicked makes the error of a recovered panic, with the stack for the log.
func panicked(r any) error {
	return Internal(fmt.Errorf("recover from panic: %v\n%s", r, debug.Stack()))
}

// report logs err once, at the process where it began, and returns what is sent. An internal fault
// that has no reference yet gets one here.
func report(ctx context.Context, log *slog.Logger, method string, err error) error {
	if err == nil {
		return nil
	}
	e := From(err)
	if e.Reason == InternalFault && e.Ref == "" {
		e = Internal(err)
	}
	switch {
	case e.Reason == InternalFault && !e.remote:
		log.LogAttrs(ctx, slog.LevelError, "call failed", slog.String("method", method), slog.Any("error", e))
	case Retryable(e.Reason) && e.Cause != nil && !e.remote && !left(ctx):
		log.LogAttrs(ctx, slog.LevelWarn, "call refused", slog.String("method", method), slog.Any("error", e))
	default:
		log.LogAttrs(ctx, slog.LevelDebug, "call refused", slog.String("method", method), slog.Any("error", e))
	}
	return e.GRPCStatus().Err()
}

// left reports whether the caller has left. What is said to it then is for nobody, and a cause such as a wait that was broken off
// is no dependency's fault.
func left(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
