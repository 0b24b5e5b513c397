// Package outbox passes committed events on to JetStream. It owns the way from an outbox row to its
// acknowledgement: the Publisher for rows that were just committed here, the Sweeper for rows that nobody
// has published yet, whoever committed them. It must never change what is in a row, and never make a commit
// wait.
//
// A row is deleted only after JetStream has acknowledged all of its messages. Until then it may be
// published any number of times, by any replica, always under the same message ids, so that JetStream stores each
// message once.
//
// Order: the messages of the rows that one Publisher takes are sent in the order of the commits, so each
// partition sees them in that order. When something fails the row is left to the Sweeper, and comes late.
package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/bus"
	"github.com/apiary-relay/apiary/pkg/bus/subject"
	"github.com/apiary-relay/apiary/pkg/lifecycle"
	busv1 "github.com/apiary-relay/apiary/proto/gen/apiary/bus/v1"
	"github.com/apiary-relay/apiary/services/ingest/internal/store"
)

// Bus publishes; *bus.Bus does.
type Bus interface {
	Connected() bool
	PublishAsync(ctx context.Context, subject, msgID string, payload []byte) (*bus.Future, error)
}

// Rows deletes published rows; *store.Store does.
type Rows interface {
	DeleteRows(ctx context.Context, ids []int64) error
}

// Bounds of a Publisher. What exceeds them is left to the Sweeper.
const (
	maxQueued      = 1024
	maxQueuedBytes = 64 << 20
	maxInFlight    = 256
	maxUndeleted   = 64 << 10
	deleteBatch    = 1024
	ackTimeout     = 5 * time.Second
	deleteTimeout  = 5 * time.Second
	deletePause    = 500 * time.Millisecond
)

// Publisher publishes rows as soon as they are committed. Three goroutines pass a row on: one sends, one
// waits for acknowledgements, one deletes.
type Publisher struct {
	bus     Bus
	rows    Rows
	log     *slog.Logger
	observe func(ctx context.Context, took time.Duration, ok bool)

	queue    chan *queued
	inFlight chan *sent
	deletes  chan int64

	mu      sync.Mutex
	pending int           // rows taken and not finished; guarded by mu
	bytes   int           // of rows that wait to be sent or acknowledged; guarded by mu
	idle    chan struct{} // closed while pending is 0; guarded by mu
}

type queued struct {
	row   *store.Row
	taken time.Time
}

// sent is a row whose messages are all on their way.
type sent struct {
	*queued
	futures []*bus.Future
}

// NewPublisher allocates a publisher. observe is told how long each row took from its commit to its last
// acknowledgement, or that it was left to the sweeper; it may be nil.
func NewPublisher(b Bus, rows Rows, log *slog.Logger, observe func(ctx context.Context, took time.Duration, ok bool)) *Publisher {
	if observe == nil {
		observe = func(context.Context, time.Duration, bool) {}
	}
	idle := make(chan struct{})
	close(idle)
	return &Publisher{
		bus: b, rows: rows, log: log, observe: observe, idle: idle,
		queue: make(chan *queued, maxQueued), inFlight: make(chan *sent, maxInFlight), deletes: make(chan int64, maxUndeleted),
	}
}

// Publish takes a committed row. It never blocks: when there is no room the row is left to the sweeper.
func (p *Publisher) Publish(ctx context.Context, row *store.Row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes+row.Size() <= maxQueuedBytes {
		select {
		case p.queue <- &queued{row, time.Now()}:
			if p.pending == 0 {
				p.idle = make(chan struct{})
			}
			p.pending++
			p.bytes += row.Size()
			return
		default:
		}
	}
	p.observe(ctx, 0, false)
}

// Pending returns how many rows are taken and not yet published and deleted, or left.
func (p *Publisher) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending
}

// Run publishes until ctx is done; rows that are not finished by then are left to the sweeper. It implements
// lifecycle.Service.
func (p *Publisher) Run(ctx context.Context, ready func()) error {
	var parts sync.WaitGroup
	parts.Go(func() { p.send(ctx) })
	parts.Go(func() { p.await(ctx) })
	parts.Go(func() { p.delete(ctx) })
	ready()
	parts.Wait()
	return nil
}

// Drain waits until every row that was taken is finished, by ctx's deadline. It implements lifecycle.Drainer.
func (p *Publisher) Drain(ctx context.Context) error {
	p.mu.Lock()
	idle := p.idle
	p.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("publish %d outbox rows: %w", p.Pending(), ctx.Err())
	}
}

func (p *Publisher) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-p.queue:
			futures, err := publish(ctx, p.bus, q.row)
			if err != nil {
				p.leave(ctx, q, err)
				continue
			}
			select {
			case p.inFlight <- &sent{q, futures}:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (p *Publisher) await(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-p.inFlight:
			if err := wait(ctx, s.futures); err != nil {
				p.leave(ctx, s.queued, err)
				continue
			}
			p.observe(ctx, time.Since(s.taken), true)
			p.release(s.row)
			select {
			case p.deletes <- s.row.ID:
			default:
				p.finish(1) // the database cannot delete as fast as we publish; the sweeper will
			}
		}
	}
}

// delete removes published rows, as many at once as there are. While the database is away they wait: to
// forget them would mean to publish them all again.
func (p *Publisher) delete(ctx context.Context) {
	for {
		var ids []int64
		select {
		case <-ctx.Done():
			return
		case id := <-p.deletes:
			ids = append(ids, id)
		}
	gather:
		for len(ids) < deleteBatch {
			select {
			case id := <-p.deletes:
				ids = append(ids, id)
			default:
				break gather
			}
		}
		for !p.deleteOnce(ctx, ids) {
			if !lifecycle.Pause(ctx, deletePause) {
				return
			}
		}
		p.finish(len(ids))
	}
}

func (p *Publisher) deleteOnce(ctx context.Context, ids []int64) bool {
	within, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	err := p.rows.DeleteRows(within, ids)
	if err != nil && ctx.Err() == nil {
		p.log.LogAttrs(ctx, slog.LevelWarn, "published outbox rows not deleted", slog.Int("rows", len(ids)), slog.Any("error", err))
	}
	return err == nil
}

// leave gives a row up for the sweeper.
func (p *Publisher) leave(ctx context.Context, q *queued, err error) {
	if ctx.Err() == nil {
		p.log.LogAttrs(ctx, slog.LevelWarn, "outbox row left to the sweeper", slog.Any("error", err))
	}
	p.observe(ctx, time.Since(q.taken), false)
	p.release(q.row)
	p.finish(1)
}

func (p *Publisher) release(row *store.Row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= row.Size()
}

func (p *Publisher) finish(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending -= n; p.pending == 0 {
		close(p.idle)
	}
}

// publish sends all messages of a row without waiting for acknowledgements.
func publish(ctx context.Context, b Bus, row *store.Row) ([]*bus.Future, error) {
	if row.Err != nil {
		return nil, fmt.Errorf("read outbox row %d: %w", row.ID, row.Err)
	}
	if !b.Connected() {
		return nil, bus.ErrDisconnected
	}
	futures := make([]*bus.Future, 0, len(row.Partitions))
	for _, p := range row.Partitions {
		f, err := b.PublishAsync(ctx, subject.Events(p.GetPartition()), messageID(row, p), p.GetBatch())
		if err != nil {
			return nil, fmt.Errorf("publish outbox row %d: %w", row.ID, err)
		}
		futures = append(futures, f)
	}
	return futures, nil
}

// messageID is the same whenever a row is published. It ends in the time of the commit, because a database
// that is restored to an earlier moment gives ids again that JetStream still remembers, for other events.
func messageID(row *store.Row, p *busv1.PartitionBatch) string {
	id := make([]byte, 0, 48)
	id = strconv.AppendInt(id, row.ID, 10)
	id = append(id, '.')
	id = strconv.AppendUint(id, uint64(p.GetPartition()), 10)
	id = append(id, '.')
	return string(strconv.AppendInt(id, row.CreatedAt.UnixMicro(), 36))
}

// wait waits until all messages are acknowledged.
func wait(ctx context.Context, futures []*bus.Future) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	for _, f := range futures {
		if _, err := f.Wait(ctx); err != nil {
			return fmt.Errorf("await acknowledgement: %w", err)
		}
	}
	return nil
}
