package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	ingestv1 "github.com/apiary-relay/apiary/proto/gen/apiary/ingest/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/verify"
)

const (
	// maxSubmissions is the promise of the contract for one PublishRequest.
	maxSubmissions = 256
	// maxVerdicts is how many verdicts go in one PublishResponse.
	maxVerdicts = 1024
)

// stream is one Publish call.
//
//	goroutine   does                                            ends
//	reader      Recv, starts submissions                        when the stream ends, in whatever way, and everything
//	                                                            that it started is verified
//	sequencer   takes submissions, when verified and in the     when the reader has ended and everything
//	            order of their client, to their queue           it started is handed on
//	handler     sends verdicts                                  when everything is answered, or the stream died
//
// A submission holds one of the window's slots from being read until its verdict is sent, so lines, verified and
// verdicts never hold more than the window. What a client has sent waits for what it sent before; it does not wait for
// others, whose events may be large.
type stream struct {
	svc    *Service
	ctx    context.Context // the call's values without its end, for what outlives it
	slots  chan struct{}   // one element per submission under way
	wake   chan struct{}   // tells the handler that there are verdicts
	ended  chan struct{}   // closed when the reader has ended
	endErr error           // why; set before ended is closed

	verified  chan *submission // to the sequencer; never full, because of slots
	verifying sync.WaitGroup   // submissions that are on the way there

	mu       sync.Mutex
	lines    map[policy.Client][]*submission // read and not handed on, in order; guarded by mu
	verdicts []*ingestv1.Verdict             // not sent yet; guarded by mu
	open     int                             // read and not answered; guarded by mu
}

// submission is one event of a stream on its way; it is the commit.Item of its event.
type submission struct {
	stream *stream
	ref    uint64
	size   int64
	began  time.Time
	span   trace.Span
	job    verify.Job
	ready  bool // verified; guarded by the stream's mu
}

// Candidate implements commit.Item.
func (s *submission) Candidate() *policy.Candidate { return s.job.Candidate }

// Publish implements ingestv1.IngestServiceServer.
func (s *Service) Publish(srv ingestv1.IngestService_PublishServer) error {
	st := &stream{
		svc:      s,
		ctx:      context.WithoutCancel(srv.Context()),
		slots:    make(chan struct{}, s.cfg.StreamWindow),
		verified: make(chan *submission, s.cfg.StreamWindow),
		lines:    make(map[policy.Client][]*submission),
		wake:     make(chan struct{}, 1),
		ended:    make(chan struct{}),
	}
	ctx := srv.Context()
	s.metrics.streams.Add(ctx, 1)
	defer s.metrics.streams.Add(ctx, -1)
	// The handler does not wait for the other two: the reader leaves Recv only after the handler has returned,
	// when it is the handler that ends the stream, and what was read outlives the stream.
	if !s.track(2) {
		return errDraining
	}
	go func() {
		defer s.streams.Done()
		st.read(srv)
		st.verifying.Wait()
		close(st.verified)
	}()
	go func() {
		defer s.streams.Done()
		st.sequence()
	}()
	return st.write(ctx, srv)
}

var errDraining = fault.New(fault.Overloaded, "shutting down, try another replica")

// read starts submissions until the stream ends.
func (st *stream) read(srv ingestv1.IngestService_PublishServer) {
	defer close(st.ended)
	for {
		req, err := srv.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil && len(req.GetSubmissions()) > maxSubmissions {
			err = fault.New(fault.Invalid, fmt.Sprintf("at most %d submissions in a request, not %d", maxSubmissions, len(req.GetSubmissions())))
		}
		if err == nil && req.GetGateway() != "" {
			if _, malformed := subject.ParseGateway(req.GetGateway()); malformed != nil {
				err = fault.Wrap(fault.Invalid, "malformed gateway", malformed)
			}
		}
		if err != nil {
			st.endErr = err
			return
		}
		for _, sub := range req.GetSubmissions() {
			if err := st.start(srv.Context(), sub, req.GetGateway()); err != nil {
				st.endErr = err
				return
			}
		}
	}
}

// start takes one submission. It waits for a slot, for bytes and for the verifiers: backpressure. An error
// means that the stream died meanwhile.
func (st *stream) start(ctx context.Context, in *ingestv1.Submission, gateway string) error {
	svc := st.svc
	select {
	case st.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	sub := &submission{stream: st, ref: in.GetRef(), began: time.Now()}
	offered, verdict := svc.offer(in)
	offered.Gateway = gateway
	sub.job.Submission = offered
	st.mu.Lock()
	st.open++
	st.mu.Unlock()
	if verdict.Accepted() && svc.isDraining() {
		verdict = policy.Draining
	}
	if !verdict.Accepted() {
		sub.Answer(verdict)
		return nil
	}
	if spanned, span := svc.startSpan(ctx, in.GetTraceparent()); span != nil {
		sub.span = span
		sub.job.Submission.Traceparent = telemetry.TraceParent(spanned) // the event carries it from here on
	}
	if err := svc.inFlight.Acquire(ctx, int64(len(offered.Raw))); err != nil {
		sub.Answer(policy.Overloaded)
		return err
	}
	sub.size = int64(len(offered.Raw))
	st.mu.Lock()
	st.lines[offered.Client()] = append(st.lines[offered.Client()], sub)
	st.mu.Unlock()
	st.verifying.Add(1)
	sub.job.Done = func() {
		st.verified <- sub
		st.verifying.Done()
	}
	if err := svc.verifier.Submit(ctx, &sub.job); err != nil {
		// It stays in its line, where nothing comes after it: the stream has ended.
		st.verifying.Done()
		sub.Answer(policy.Overloaded)
		return err
	}
	return nil
}

// offer checks the frame of a submission: what the caller, not the client, is responsible for.
func (s *Service) offer(in *ingestv1.Submission) (policy.Submission, policy.Verdict) {
	maxEvent := s.maxEvent()
	out := policy.Submission{Community: in.GetCommunity(), Raw: in.GetRaw()}
	keys := in.GetPrincipal().GetPubkeys()
	switch {
	case out.Community == 0:
		return out, policy.Verdict{Reason: fault.Invalid, Message: "no community"}
	case len(out.Raw) > maxEvent:
		return out, policy.Verdict{Reason: fault.Invalid, Message: fmt.Sprintf("event exceeds maximum size of %d bytes (got %d)", maxEvent, len(out.Raw))}
	case len(keys) == 0:
		return out, policy.Verdict{Reason: fault.AuthRequired, Message: "not authenticated"}
	case len(keys) > policy.MaxPrincipal:
		return out, policy.Verdict{Reason: fault.Invalid, Message: "too many authenticated keys"}
	}
	out.Principal = make([]nostr.PubKey, len(keys))
	for i, k := range keys {
		if len(k) != len(nostr.PubKey{}) {
			return out, policy.Verdict{Reason: fault.Invalid, Message: "malformed principal"}
		}
		out.Principal[i] = nostr.PubKey(k)
	}
	return out, policy.Verdict{}
}

// startSpan begins the span of a sampled submission, which Answer ends. The span is nil when the submission is
// not sampled.
func (s *Service) startSpan(ctx context.Context, traceparent string) (context.Context, trace.Span) {
	if traceparent == "" {
		return ctx, nil
	}
	ctx = telemetry.WithTraceParent(ctx, traceparent)
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, nil
	}
	return s.tracer.Start(ctx, "ingest.publish", trace.WithSpanKind(trace.SpanKindServer)) //nolint:spancheck // Answer ends it
}

// sequence hands verified submissions on, those of each client in the order in which they were read. It goes on when the
// stream has died: only its verdicts are lost with it.
func (st *stream) sequence() {
	for sub := range st.verified {
		for _, next := range st.next(sub) {
			st.hand(next)
		}
	}
}

// next notes that a submission is verified, and takes out of its line what need not wait any more.
func (st *stream) next(sub *submission) []*submission {
	st.mu.Lock()
	defer st.mu.Unlock()
	sub.ready = true
	client := sub.job.Submission.Client()
	line, n := st.lines[client], 0
	for n < len(line) && line[n].ready {
		n++
	}
	if n == len(line) {
		delete(st.lines, client)
		return line
	}
	st.lines[client] = line[n:]
	ready := slices.Clone(line[:n])
	clear(line[:n]) // what is answered is not kept by the line
	return ready
}

// hand gives a verified submission to the queue that it belongs to.
func (st *stream) hand(sub *submission) {
	if !sub.job.Verdict.Accepted() {
		sub.Answer(sub.job.Verdict)
		return
	}
	if v := st.svc.checkRoom(sub.job.Candidate); !v.Accepted() {
		sub.Answer(v)
		return
	}
	queue := st.svc.commits
	if sub.job.Candidate.IsEphemeral() {
		queue = st.svc.ephemerals
	}
	// This context never ends: the queues outlive the streams, and are always emptied.
	if err := queue.Submit(st.ctx, sub); err != nil {
		sub.Answer(policy.Overloaded)
	}
}

// Answer implements commit.Item. It never blocks.
func (s *submission) Answer(v policy.Verdict) {
	st := s.stream
	if s.size > 0 {
		st.svc.inFlight.Release(s.size)
	}
	st.svc.metrics.answered(st.ctx, classOf(s.job.Candidate), v, time.Since(s.began))
	s.endSpan(v)
	st.mu.Lock()
	st.open--
	st.verdicts = append(st.verdicts, &ingestv1.Verdict{Ref: s.ref, Reason: v.Reason, Message: v.Message})
	st.mu.Unlock()
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

func (s *submission) endSpan(v policy.Verdict) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(attribute.String(telemetry.KeyReason, reasonLabel(v.Reason)),
		attribute.Int64(telemetry.KeyCommunity, s.job.Submission.Community))
	if c := s.job.Candidate; c != nil {
		s.span.SetAttributes(attribute.Int(telemetry.KeyKind, int(c.Event.Kind)))
	}
	if v.Reason == fault.InternalFault || v.Reason == fault.Overloaded {
		s.span.SetStatus(codes.Error, v.Message)
	}
	s.span.End()
}

// write sends verdicts, as many at once as there are, until everything is answered and nothing more
// comes, or the stream has died.
func (st *stream) write(ctx context.Context, srv ingestv1.IngestService_PublishServer) error {
	ended, draining := st.ended, st.svc.draining
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-st.wake:
		case <-ended:
			ended = nil
		case <-draining:
			draining = nil
		}
		open, err := st.send(srv)
		switch {
		case err != nil:
			return err
		case open > 0:
		case ended == nil:
			return st.endErr
		case draining == nil:
			return errDraining
		}
	}
}

// send sends what is there and returns how many submissions are not answered yet.
func (st *stream) send(srv ingestv1.IngestService_PublishServer) (open int, err error) {
	for {
		st.mu.Lock()
		ready := st.verdicts[:min(len(st.verdicts), maxVerdicts)]
		st.verdicts = st.verdicts[len(ready):]
		open = st.open
		st.mu.Unlock()
		if len(ready) == 0 {
			return open, nil
		}
		if err := srv.Send(&ingestv1.PublishResponse{Verdicts: ready}); err != nil {
			return open, err
		}
		for range ready {
			<-st.slots
		}
	}
}
