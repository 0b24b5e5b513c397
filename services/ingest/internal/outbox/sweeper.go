package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// sweepPage is how many rows one transaction of a sweep holds, up to a megabyte each.
const sweepPage = 32

// sweepTimeout bounds one page. It must stay below the pool's idle-in-transaction timeout.
const sweepTimeout = 8 * time.Second

// Outbox is what a Sweeper works on; *store.Store does.
type Outbox interface {
	SweepOutbox(ctx context.Context, age time.Duration, limit int, publish func([]*store.Row) []int64) (int, error)
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
type Sweeper struct {
	cfg    SweeperConfig
	outbox Outbox
	bus    Bus
	log    *slog.Logger

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

// Run sweeps until ctx is done. It implements lifecycle.Service.
func (s *Sweeper) Run(ctx context.Context, ready func()) error {
	ready()
	for pause(ctx, s.cfg.Interval) {
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

// page publishes one page and reports whether it is worth going on at once.
func (s *Sweeper) page(ctx context.Context) bool {
	within, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	published := 0
	found, err := s.outbox.SweepOutbox(within, s.cfg.Age, sweepPage, func(rows []*store.Row) []int64 {
		ids := s.publish(within, rows)
		published = len(ids)
		return ids
	})
	if err != nil {
		s.warn(ctx, "outbox not swept", err)
		return false
	}
	if published > 0 {
		s.log.LogAttrs(ctx, slog.LevelInfo, "overdue outbox rows published", slog.Int("rows", published))
	}
	return found == sweepPage && published > 0
}

// publish sends the rows in order and returns the ids of those that were acknowledged. A row that cannot be
// sent does not hold up the others.
func (s *Sweeper) publish(ctx context.Context, rows []*store.Row) []int64 {
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
			s.warn(ctx, "overdue outbox row not published", errs[i])
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
