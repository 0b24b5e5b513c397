package session

import (
	"bytes"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/gateway/internal/submit"
)

// event submits an EVENT. It blocks while this connection, or the process, has too much in flight;
// then the socket is not read and TCP holds the client back.
//
//nolint:spancheck // Done is called exactly once and ends the span
func (s *Session) event(f *wire.Frame, start time.Time) {
	p, joined := s.joining(f)
	if p == nil {
		err := s.stranger()
		s.answer(f.EventID, err.Reason, err.Message, start)
		return
	}
	if joined != nil {
		if !s.srv.attempts.allow(nostr.PubKey(p.GetPubkeys()[0])) {
			s.answer(f.EventID, fault.RateLimited, tooManyAttempts, start)
			return
		}
	}
	select {
	case s.slots <- struct{}{}:
	case <-s.ctx.Done():
		return // nobody is left to answer
	}
	size := min(int64(len(f.RawEvent)), s.srv.cfg.MaxEventBytes)
	if err := s.srv.bytes.Acquire(s.ctx, size); err != nil {
		<-s.slots
		return
	}
	ctx, span := s.srv.Tracer.Start(s.ctx, "gateway.event", trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.Int64(telemetry.KeyCommunity, s.community.ID),
			attribute.String(telemetry.KeyEventID, f.EventID.String()),
		))
	id := f.EventID
	s.srv.Submit.Submit(submit.Submission{
		Affinity: s.id,
		Event: &ingestv1.Submission{
			Community:   s.community.ID,
			Raw:         bytes.Clone(f.RawEvent), // the frame's buffer is used again
			Principal:   p,
			Traceparent: telemetry.TraceParent(ctx),
		},
		Done: func(v submit.Verdict) {
			if joined != nil {
				joined(v.Reason)
			}
			if v.Reason == fault.Invalid {
				s.client.Offend(time.Now())
			}
			s.answer(id, v.Reason, v.Message, start)
			<-s.slots
			s.srv.bytes.Release(size)
			endSpan(span, v.Reason)
		},
	})
}

func endSpan(span trace.Span, reason fault.Reason) {
	if span.IsRecording() && !fault.Succeeded(reason) {
		span.SetAttributes(attribute.String(telemetry.KeyReason, reason.String()))
		span.SetStatus(codes.Error, reason.String())
	}
	span.End()
}
