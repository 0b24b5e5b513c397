package session

import (
	"bytes"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/submit"
)

// event submits an EVENT. It blocks while this connection, or the process, has too much in flight;
// then the socket is not read and TCP holds the client back.
func (s *Session) event(f *wire.Frame, start time.Time) {
	p, joined := s.joining(f)
	if p == nil {
		err := s.stranger()
		s.answer(f.EventID, err.Reason, err.Message, start)
		return
	}
	if joined != nil {
		if !s.srv.attempts.allow(nostr.PubKey(p.GetPubkeys()[0])) || !s.client.Claim(start) {
			s.answer(f.EventID, fault.RateLimited, TooManyAttempts, start)
			return
		}
	}
	if wait, ok := s.agentMay(f, start); !ok {
		s.answer(f.EventID, fault.RateLimited, quota(wait), start)
		return
	}
	free, ok := s.slot()
	if !ok {
		return // nobody is left to answer
	}
	id := f.EventID
	err := s.srv.submit(s.ctx, s.id, s.community.ID, p, id, f.RawEvent, func(v submit.Verdict) {
		if joined != nil {
			joined(v.Reason)
		}
		s.judged(v.Reason)
		s.answer(id, v.Reason, v.Message, start)
		free()
	})
	if err != nil {
		free() // the connection has ended: nobody is left to answer
	}
}

// submit passes an event on to ingest once there is room for it in the process; an error says that ctx ended before.
// raw is copied. done is called exactly once unless there is an error, and must not block. Submissions with the same
// affinity stay in order.
//
//nolint:spancheck // done is called exactly once and ends the span
func (srv *Server) submit(
	ctx context.Context, affinity uint64, community int64, p *commonv1.Principal, id nostr.ID, raw []byte, done func(submit.Verdict),
) error {
	size := min(int64(len(raw)), srv.cfg.MaxEventBytes)
	if err := srv.bytes.Acquire(ctx, size); err != nil {
		return context.Cause(ctx)
	}
	ctx, span := srv.Tracer.Start(ctx, "gateway.event", trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.Int64(telemetry.KeyCommunity, community),
			attribute.String(telemetry.KeyEventID, id.String()),
		))
	srv.Submit.Submit(submit.Submission{
		Affinity: affinity,
		Event: &ingestv1.Submission{
			Community:   community,
			Raw:         bytes.Clone(raw), // the buffer of a frame is used again
			Principal:   p,
			Traceparent: telemetry.TraceParent(ctx),
		},
		Done: func(v submit.Verdict) {
			done(v)
			srv.bytes.Release(size)
			endSpan(span, v.Reason)
		},
	})
	return nil
}

func endSpan(span trace.Span, reason fault.Reason) {
	if span.IsRecording() && !fault.Succeeded(reason) {
		span.SetAttributes(attribute.String(telemetry.KeyReason, reason.String()))
		span.SetStatus(codes.Error, reason.String())
	}
	span.End()
}
