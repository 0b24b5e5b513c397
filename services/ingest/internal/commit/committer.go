package commit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// Store makes batches durable; *store.Store does.
type Store interface {
	Commit(ctx context.Context, batch []*policy.Candidate) (store.Result, error)
}

// Committer is the flush function of the queue of stored events.
type Committer struct {
	// Store makes batches durable.
	Store Store
	// Publish takes the outbox row of each commit. It must not block.
	Publish func(ctx context.Context, row *store.Row)
	// Left is told when a commit left something to Store's SweepVanished. It must not block; may be nil.
	Left func()
	// Timeout bounds one batch, retries included.
	Timeout time.Duration
	// Observe is told of each transaction: how many events, how long, and whether it failed; may be nil.
	Observe func(ctx context.Context, events int, took time.Duration, failed bool)
	// Tracer makes a span of a batch that holds sampled events, linked to theirs.
	Tracer trace.Tracer
	// Log is for faults; best a sampled one.
	Log *slog.Logger
}

// maxLinks bounds the links of one span.
const maxLinks = 32

// Flush commits a batch and answers its items, each only when its outcome is known. If one event makes the transaction
// fail, whatever the reason, the batch is split until that event is alone, and only it is refused. A batch that may
// succeed later is not split.
func (c *Committer) Flush(ctx context.Context, batch []Item) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var links []trace.Link
	for _, it := range batch {
		if link, ok := telemetry.Link(ctx, it.Candidate().Traceparent); ok && len(links) < maxLinks {
			links = append(links, link)
		}
	}
	if len(links) > 0 {
		var span trace.Span
		ctx, span = c.Tracer.Start(ctx, "ingest.commit", trace.WithNewRoot(), trace.WithLinks(links...),
			trace.WithAttributes(attribute.Int("events", len(batch))))
		defer span.End()
	}
	c.flush(ctx, batch)
}

func (c *Committer) flush(ctx context.Context, batch []Item) {
	candidates := make([]*policy.Candidate, len(batch))
	for i, it := range batch {
		candidates[i] = it.Candidate()
	}
	began := time.Now()
	result, err := c.Store.Commit(ctx, candidates)
	if c.Observe != nil {
		c.Observe(ctx, len(batch), time.Since(began), err != nil)
	}
	var refused *store.RefusedError
	switch {
	case err == nil:
		if result.Row != nil {
			c.Publish(ctx, result.Row)
		}
		if result.Left && c.Left != nil {
			c.Left()
		}
		for i, it := range batch {
			it.Answer(it.Candidate().Answer(result.Verdicts[i]))
		}
	case store.IsTransient(err) || ctx.Err() != nil:
		c.Log.LogAttrs(ctx, slog.LevelWarn, "batch not committed", slog.Int("events", len(batch)), slog.Any("error", err))
		answer(batch, policy.Overloaded)
	case len(batch) > 1:
		c.flush(ctx, batch[:len(batch)/2])
		c.flush(ctx, batch[len(batch)/2:])
	case errors.As(err, &refused):
		answer(batch, refused.Verdict)
	default:
		internal := fault.Internal(err)
		c.Log.LogAttrs(ctx, slog.LevelError, "event refused by the database", slog.Any("error", internal))
		answer(batch, policy.Verdict{Reason: internal.Reason, Message: internal.Message})
	}
}

func answer(batch []Item, v policy.Verdict) {
	for _, it := range batch {
		it.Answer(v)
	}
}
