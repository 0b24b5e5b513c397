// Package index keeps the text index of search (NIP-50).
//
// It owns when a document is written: soon after the event's commit, by the durable consumer "index", whose
// messages all replicas share; and in the end, by a caretaker, one replica at a time, which walks through all
// stored events and adds what is missing (the index was empty, a stream was lost, the consumer was away for
// longer than the stream keeps, of which the consumer tells) and through all documents and removes those of deleted events. Neither is on
// the way of a commit or a query. A document that is missing, or of a deleted event, makes no query wrong in
// what it shows: results are read from the events.
//
// Everything it does can be done again: a walk has no memory, and starts over after a restart, where what is
// indexed already costs a look-up. Run works on two goroutines and waits for them.
package index

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/protobuf/proto"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/telemetry"
	"github.com/apiary-relay/apiary/pkg/tenant"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/search/internal/store"
	"github.com/apiary-relay/apiary/services/search/internal/words"
)

// Consumer is the name of the durable consumer.
const Consumer = "index"

// Bounds of one step.
const (
	batchMessages = 16
	ackWait       = time.Minute
	pageEvents    = 100
	pageDocuments = 1000
)

// The times between walks: after one that was finished, and after one that was not, or was not ours.
const (
	walkEvery = 6 * time.Hour
	walkAgain = 10 * time.Minute
)

// Bus is what is consumed.
type Bus interface {
	// ConsumeDurable is that of bus.Bus.
	ConsumeDurable(ctx context.Context, cfg bus.DurableConfig, handle func(context.Context, []bus.Msg) error) error
}

// Index keeps the index.
type Index struct {
	bus     Bus
	store   *store.Store
	log     *slog.Logger
	lag     metric.Float64Gauge
	pending metric.Int64Gauge
	added   metric.Int64Counter
	// missed holds a token when the stream has lost something that a walk has to find in Postgres.
	missed chan struct{}
}

// New makes an index that does nothing before Run.
func New(b Bus, s *store.Store, log *slog.Logger, meter metric.Meter) (*Index, error) {
	x := &Index{bus: b, store: s, log: log, missed: make(chan struct{}, 1)}
	var errs [3]error
	x.lag, errs[0] = meter.Float64Gauge("apiary_search_index_lag", metric.WithUnit("s"),
		metric.WithDescription("Age, since NATS stored it, of the message that was indexed last."))
	x.pending, errs[1] = meter.Int64Gauge("apiary_search_index_pending",
		metric.WithDescription("Messages that wait to be indexed."))
	x.added, errs[2] = meter.Int64Counter("apiary_search_indexed",
		metric.WithDescription("Documents that were offered to the text index; one that is there already counts."))
	return x, errors.Join(errs[:]...)
}

// Run consumes and walks until ctx ends.
func (x *Index) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() {
		// It ends with ctx; what fails comes again.
		_ = x.bus.ConsumeDurable(ctx, bus.DurableConfig{
			Stream: subject.StreamEvents, Subject: subject.AllEvents, Name: Consumer, Batch: batchMessages, AckWait: ackWait,
			OnGap: func(context.Context, bus.Gap) error {
				x.walkSoon()
				return nil
			},
		}, x.handle)
	})
	work.Go(func() { x.walkAll(ctx) })
	work.Wait()
}

// handle indexes a batch of messages.
func (x *Index) handle(ctx context.Context, batch []bus.Msg) error {
	var docs []store.Document
	for i := range batch {
		var m busv1.EnvelopeBatch
		if err := proto.Unmarshal(batch[i].Data, &m); err != nil {
			// It would not be readable the next time either.
			x.log.LogAttrs(ctx, slog.LevelError, "message cannot be indexed", slog.Uint64("sequence", batch[i].Sequence), slog.Any(telemetry.KeyError, err))
			continue
		}
		for _, envelope := range m.GetEnvelopes() {
			if d, ok := x.document(ctx, envelope); ok {
				docs = append(docs, d)
			}
		}
	}
	if err := x.store.Index(ctx, docs); err != nil {
		return err
	}
	x.added.Add(ctx, int64(len(docs)))
	if n := len(batch); n > 0 {
		x.lag.Record(ctx, time.Since(batch[n-1].Published).Seconds())
		x.pending.Record(ctx, int64(batch[n-1].Pending))
	}
	return nil
}

func (x *Index) document(ctx context.Context, envelope *commonv1.Envelope) (store.Document, bool) {
	h := envelope.GetHeader()
	kind := nostr.Kind(h.GetKind())
	if !words.IsIndexed(kind) || len(h.GetId()) != len(nostr.ID{}) {
		return store.Document{}, false
	}
	content, ok := x.text(ctx, envelope.GetRaw())
	return store.Document{
		Community: tenant.ID(h.GetCommunity()), ID: nostr.ID(h.GetId()), CreatedAt: h.GetCreatedAt(), Kind: kind, Text: content,
	}, ok
}

// text returns the text of an event.
func (x *Index) text(ctx context.Context, raw []byte) (string, bool) {
	e, err := wire.DecodeEvent(raw, wire.Limits{})
	if err != nil {
		x.log.LogAttrs(ctx, slog.LevelError, "event cannot be indexed", slog.Any(telemetry.KeyError, err))
		return "", false
	}
	return words.Of(e), true
}

// walkSoon makes the next walk begin at once, or after the one under way.
func (x *Index) walkSoon() {
	select {
	case x.missed <- struct{}{}:
	default:
	}
}

// walkAll walks again and again.
func (x *Index) walkAll(ctx context.Context) {
	for {
		mine, err := x.store.TakeCare(ctx, x.walk)
		if err != nil && ctx.Err() == nil {
			x.log.LogAttrs(ctx, slog.LevelWarn, "text index was not looked through", slog.Any(telemetry.KeyError, err))
		}
		wait := walkEvery
		if !mine || err != nil {
			wait = walkAgain
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-x.missed: // if another replica is at it just now, walkAgain
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// walk looks through all events and documents once.
func (x *Index) walk(ctx context.Context, c *store.Caretaker) error {
	for community := tenant.ID(0); ; {
		var err error
		if community, err = c.NextCommunity(ctx, community); err != nil || community == 0 {
			return err
		}
		for _, kind := range words.Kinds() {
			err := pages(ctx, pageEvents, func(after store.Place) (store.Place, int, error) {
				last, seen, added, err := c.Missing(ctx, community, kind, after, pageEvents, func(raw []byte) (string, bool) { return x.text(ctx, raw) })
				x.added.Add(ctx, int64(added))
				return last, seen, err
			})
			if err != nil {
				return err
			}
		}
		err = pages(ctx, pageDocuments, func(after store.Place) (store.Place, int, error) {
			return c.Sweep(ctx, community, after, pageDocuments)
		})
		if err != nil {
			return err
		}
	}
}

// pages calls page until one is not full, and rests for as long as each took.
func pages(ctx context.Context, full int, page func(store.Place) (store.Place, int, error)) error {
	for after := store.Newest(); ; {
		began := time.Now()
		last, seen, err := page(after)
		if err != nil || seen < full {
			return err
		}
		after = last
		if !lifecycle.Pause(ctx, time.Since(began)) {
			return context.Cause(ctx)
		}
	}
}
