package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// sweepPage is how many rows one transaction of a sweep holds, up to a megabyte each.
const sweepPage = 32

// sweepTimeout bounds one page. It must stay below the pool's idle-in-transaction timeout. publishTimeout is the part
// of it in which messages are to be acknowledged, so that those that were can still be deleted.
const (
	sweepTimeout   = 8 * time.Second
	publishTimeout = 6 * time.Second
)

// Outbox is what a Sweeper works on; *store.Store does.
type Outbox interface {
	SweepOutbox(ctx context.Context, age time.Duration, after int64, limit int, publish func([]*store.Row) []int64) (int, error)
	OutboxState(ctx context.Context) (rows int64, oldest time.Duration, err error)
}

// SweeperConfig says when rows are overdue.
type SweeperConfig struct {
	// Age is how old a row must be: older than what a Publisher needs in good times.
	Age time.Duration
	// Interval is the time between two looks.
	Interval time.Duration
}

// Sweeper publishes rows that are overdue: left over by a Publisher, or by a replica that died between
// commit and publish. Every replica runs one; they share the rows by row locks. It is one goroutine.
//
// It goes through the overdue rows in rounds, in their order. A row that cannot be published stays where it is and is
// tried again in the next round: it takes a place in a page, and a page of nothing else ends the look, but the next
// look goes on behind it. So such rows delay the ones behind them by a moment, and never hold them up.
type Sweeper struct {
	cfg    SweeperConfig
	outbox Outbox
	bus    Bus
	log    *slog.Logger

	// Only the goroutine of Run touches these.
	after  int64 // where the round has come to: all ids up to it were tried
	failed int64 // rows that this round could not publish

	stuck  atomic.Int64 // failed, as of the last complete round
	rows   atomic.Int64 // as of the last look
	oldest atomic.Int64 // nanoseconds, as of the last look
}

// NewSweeper allocates a sweeper.
func NewSweeper(cfg SweeperConfig, outbox Outbox, b Bus, log *slog.Logger) *Sweeper {
	return &Sweeper{cfg: cfg, outbox: outbox, bus: b, log: log}
}

// Backlog returns how many rows waited in the whole cluster at the last look, counting at most 10,000, and the
// age of the oldest.
func (s *Sweeper) Backlog() (rows int64, oldest time.Duration) {
	return s.rows.Load(), time.Duration(s.oldest.Load())
}

// Stuck returns how many rows could not be published in the last round that this replica has completed.
func (s *Sweeper) Stuck() int64 { return s.stuck.Load() }

// Run sweeps until ctx is done. It implements lifecycle.Service.
func (s *Sweeper) Run(ctx context.Context, ready func()) error {
	ready()
	for lifecycle.Pause(ctx, s.cfg.Interval) {
		s.look(ctx)
		// While the bus is away there is nothing to be done about the rows.
		for s.bus.Connected() && s.page(ctx) {
		}
	}
	return nil
}

func (s *Sweeper) look(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	rows, oldest, err := s.outbox.OutboxState(within)
	if err != nil {
		s.warn(ctx, "outbox not looked at", err)
		return
	}
	s.rows.Store(rows)
	s.oldest.Store(int64(oldest))
}

// page publishes the next page of the round and reports whether it is worth going on at once.
func (s *Sweeper) page(ctx context.Context) bool {
	within, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	published := 0
	found, err := s.outbox.SweepOutbox(within, s.cfg.Age, s.after, sweepPage, func(rows []*store.Row) []int64 {
		s.after = rows[len(rows)-1].ID
		ids := s.publish(within, rows)
		published = len(ids)
		s.failed += int64(len(rows) - published)
		return ids
	})
	if err != nil {
		s.warn(ctx, "outbox not swept", err)
		return false
	}
	if published > 0 {
		s.log.LogAttrs(ctx, slog.LevelInfo, "overdue outbox rows published", slog.Int("rows", published))
	}
	if found < sweepPage {
		s.stuck.Store(s.failed)
		s.after, s.failed = 0, 0
		return false
	}
	return published > 0
}

// publish sends the rows in order and returns the ids of those that were acknowledged.
func (s *Sweeper) publish(ctx context.Context, rows []*store.Row) []int64 {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	futures := make([][]*bus.Future, len(rows))
	errs := make([]error, len(rows))
	for i, row := range rows {
		futures[i], errs[i] = publish(ctx, s.bus, row)
	}
	var published []int64
	for i, row := range rows {
		if errs[i] == nil {
			errs[i] = wait(ctx, futures[i])
		}
		if errs[i] != nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "overdue outbox row not published", slog.Int64("row", row.ID),
				slog.Int("bytes", row.Size()), slog.Any("error", errs[i]))
			continue
		}
		published = append(published, row.ID)
	}
	return published
}

func (s *Sweeper) warn(ctx context.Context, msg string, err error) {
	if ctx.Err() == nil {
		//nolint:sloglint // the messages are the constants of the callers
		s.log.LogAttrs(ctx, slog.LevelWarn, msg, slog.Any("error", err))
	}
}
