package partition

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	commonv1 "github.com/apiary-relay/apiary/proto/gen/apiary/common/v1"
	"github.com/apiary-relay/apiary/services/fanout/internal/deliver"
	"github.com/apiary-relay/apiary/services/fanout/internal/index"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

// ErrStopped is returned by Send when Run has ended.
var ErrStopped = errors.New("partition is stopped")

// Command is one instruction to a partition; exactly one field is set.
type Command struct {
	// Subscribe files a subscription.
	Subscribe *Subscribe
	// Forget drops the subscription of a handle that its link has forgotten.
	Forget *deliver.Handle
	// detach drops every subscription of a link that has ended.
	detach *deliver.Link
}

// Subscribe is a subscription to be filed. Its slices must not change afterwards.
type Subscribe struct {
	// Handle says whose it is.
	Handle *deliver.Handle
	// Community and Channel are its topic; Channel is empty for the global one.
	Community int64
	Channel   string
	// Plan is of its filters.
	Plan index.Plan
	// Keys are the principal's, at least one.
	Keys []nostr.PubKey
	// ResumeAfter asks for everything after a cursor; nil for what comes from now on.
	ResumeAfter *commonv1.Cursor
}

// Stats is what a partition says of itself.
type Stats struct {
	// Open is set while the streams are consumed.
	Open bool
	// Subscriptions is how many there are.
	Subscriptions int
	// Lag is how many messages were waiting behind the last one consumed.
	Lag uint64
}

// topicKey names a topic.
type topicKey struct {
	community int64
	channel   string
}

// Partition serves one partition. New makes one; Run must be called once.
type Partition struct {
	number uint32
	cfg    Config
	deps   Deps

	inbox  chan []Command
	done   chan struct{}
	helper sync.WaitGroup

	// What Run owns.
	feed     *feed // nil while closed
	cursor   position.Cursor
	recent   *position.Recent
	topics   map[topicKey]*topic
	peers    map[*deliver.Link]*peer
	waiting  []*subscription // while the feed opens
	subs     int             // all of them, waiting included
	idle     time.Time       // since when there are none
	work     *work           // the message being processed, nil between messages
	replayed chan input
	touched  []*batch // reused by dispatch
	access   flights

	stats stats
}

// stats are read by other goroutines.
type stats struct {
	open atomic.Bool
	subs atomic.Int64
	lag  [position.Streams]atomic.Uint64
}

// inboxBatches is how many batches of commands may wait. A sender beyond that waits for Run, which never
// blocks.
const inboxBatches = 64

// New returns the partition of that number.
func New(number uint32, cfg Config, deps Deps) *Partition {
	return &Partition{
		number:   number,
		cfg:      cfg,
		deps:     deps,
		inbox:    make(chan []Command, inboxBatches),
		done:     make(chan struct{}),
		topics:   make(map[topicKey]*topic),
		peers:    make(map[*deliver.Link]*peer),
		replayed: make(chan input),
		access:   newFlights(),
	}
}

// Send hands over commands, to be executed in order. It waits while Run is busy and returns ctx's error,
// or ErrStopped. Safe for concurrent use.
func (p *Partition) Send(ctx context.Context, commands ...Command) error {
	select {
	case p.inbox <- commands:
		return nil
	case <-p.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Detach drops every subscription of a link that has ended. It waits while Run is busy; after Run has
// ended there is nothing to drop. Safe for concurrent use.
func (p *Partition) Detach(link *deliver.Link) {
	select {
	case p.inbox <- []Command{{detach: link}}:
	case <-p.done:
	}
}

// Stats is safe for concurrent use.
func (p *Partition) Stats() Stats {
	return Stats{
		Open:          p.stats.open.Load(),
		Subscriptions: int(p.stats.subs.Load()),
		Lag:           p.stats.lag[position.Events].Load() + p.stats.lag[position.Ephemeral].Load(),
	}
}

// Run serves until ctx is done and waits for its helpers.
func (p *Partition) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer p.helper.Wait()
	defer cancel()
	defer close(p.done)
	tick := time.NewTicker(p.cfg.WatermarkInterval)
	defer tick.Stop()
	defer p.access.retry.Stop()
	for {
		var live [position.Streams]chan input
		var replayed chan input
		var opened chan heads
		if p.feed != nil {
			opened = p.feed.opened
			if p.work == nil {
				live, replayed = p.feed.inputs, p.replayed
			}
		}
		select {
		case commands := <-p.inbox:
			p.execute(ctx, commands)
		case in := <-live[position.Events]:
			p.take(ctx, position.Events, in)
		case in := <-live[position.Ephemeral]:
			p.take(ctx, position.Ephemeral, in)
		case in := <-replayed:
			p.takeReplayed(ctx, in)
		case h := <-opened:
			p.opened(ctx, h)
		case l := <-p.access.landed:
			p.land(ctx, l)
		case <-p.access.retry.C:
			p.access.backingOff = false
		case now := <-tick.C:
			p.tick(ctx, now)
		case <-ctx.Done():
			p.stats.open.Store(false)
			return
		}
		p.pump(ctx)
		p.stats.subs.Store(int64(p.subs))
	}
}

func (p *Partition) execute(ctx context.Context, commands []Command) {
	for _, c := range commands {
		switch {
		case c.Subscribe != nil:
			p.subscribe(ctx, c.Subscribe)
		case c.Forget != nil:
			p.forget(c.Forget)
		case c.detach != nil:
			p.detach(c.detach)
		}
	}
}

// tick does what need not be done at once: watermarks, subscriptions that waited too long for the feed,
// and closing an idle feed.
func (p *Partition) tick(ctx context.Context, now time.Time) {
	for _, q := range p.peers {
		if q.cursor != p.cursor && q.replay == nil && q.queued == nil && len(q.subs) > 0 && p.isOpen() {
			if q.link.Watermark(p.number, p.cursor) {
				q.cursor = p.cursor
			}
		}
	}
	p.giveUpWaiting(ctx, now)
	if p.feed != nil && p.subs == 0 && p.work == nil && now.Sub(p.idle) >= p.cfg.IdleGrace {
		p.closeFeed()
	}
}
