// Package crowd is a crowd of subscribers of one server, and those who publish to them: it measures how fast, how soon
// and how completely messages reach everybody. It speaks Nostr and the protocol of Centrifugo, so that unlike servers
// are measured by the same client.
//
// A Crowd owns its sockets and a goroutine for each; Close ends and waits for them. Flood and Paced are not to be called
// at the same time.
package crowd

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Config is a crowd.
type Config struct {
	// Addr is the server's HOST:PORT and Path that of its WebSocket, "" for the root.
	Addr, Path string
	Dialect    Dialect
	// Subscribers is how many connections listen, each to Each of the Topics.
	Subscribers, Topics, Each int
	// Names are those of the topics; nil for names that nobody has used.
	Names []string
	// Publishers is how many connections publish.
	Publishers int
}

// fan is how many subscribers a topic has.
func (c Config) fan() int { return c.Subscribers * c.Each / c.Topics }

// Crowd is connected and subscribed.
type Crowd struct {
	// Began is called in every round when its messages are made, which may take longer than to send them, and the first is
	// about to be sent; nil if nobody wants to know. An error ends the round.
	Began func() error

	cfg        Config
	topics     []string
	listeners  []*listener
	publishers []*Socket
	readers    sync.WaitGroup
	failed     atomic.Pointer[error] // the first that a reader met
	cut        atomic.Int64          // subscribers that the server has parted with
	closing    atomic.Bool

	published int // messages, over all runs; each has a number
	round     atomic.Pointer[round]
}

// listener is one subscriber.
type listener struct {
	socket *Socket

	mu    sync.Mutex // guards what follows
	seen  []uint64   // a bit for each message of the round
	times []time.Duration
	got   int
	twice int
}

// round is one Flood or Paced.
type round struct {
	first  int            // number of the first message
	sent   []atomic.Int64 // when, in Unix nanoseconds; nil: nobody wants to know
	room   chan struct{}  // a place for each message that may be under way; nil: no bound
	fan    int64
	total  atomic.Int64 // deliveries
	last   atomic.Int64 // when the last came, in Unix nanoseconds
	wanted atomic.Int64 // deliveries that end the round; 0: not known yet
	done   chan struct{}
	over   sync.Once
}

// Meet connects and subscribes everybody.
func Meet(ctx context.Context, cfg Config) (_ *Crowd, err error) {
	if cfg.Subscribers*cfg.Each%cfg.Topics != 0 {
		return nil, fmt.Errorf("%d subscribers of %d topics each do not share %d topics evenly", cfg.Subscribers, cfg.Each, cfg.Topics)
	}
	c := &Crowd{cfg: cfg, topics: cfg.Names, listeners: make([]*listener, cfg.Subscribers), publishers: make([]*Socket, cfg.Publishers)}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	if c.topics == nil {
		for i := range cfg.Topics {
			c.topics = append(c.topics, fmt.Sprintf("topic-%d-%d", time.Now().UnixNano(), i))
		}
	}
	if err := c.found(ctx); err != nil {
		return nil, err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range c.listeners {
		group.Go(func() error {
			s, err := c.enter(gctx)
			if err != nil {
				return err
			}
			c.listeners[i] = &listener{socket: s}
			mine := make([]string, cfg.Each)
			for j := range mine {
				mine[j] = c.topics[(i*cfg.Each+j)%cfg.Topics]
			}
			if err := cfg.Dialect.Subscribe(s, mine); err != nil {
				return err
			}
			return s.Listening()
		})
	}
	for i := range c.publishers {
		group.Go(func() error {
			s, err := c.enter(gctx)
			if err != nil {
				return err
			}
			c.publishers[i] = s
			return s.Listening()
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, l := range c.listeners {
		c.readers.Go(func() { c.listen(l) })
	}
	for _, s := range c.publishers {
		c.readers.Go(func() { c.heed(s) })
	}
	return c, nil
}

// found makes the topics, through a connection of its own.
func (c *Crowd) found(ctx context.Context) error {
	s, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	return c.cfg.Dialect.Found(s, c.topics)
}

func (c *Crowd) enter(ctx context.Context) (*Socket, error) {
	s, err := Dial(ctx, c.cfg.Addr, c.cfg.Path)
	if err != nil {
		return nil, err
	}
	if err := c.cfg.Dialect.Enter(s); err != nil {
		s.Close()
		return nil, fmt.Errorf("enter: %w", err)
	}
	return s, nil
}

// Cut is how many subscribers the server has closed the connection of so far. What they do not get is lost.
func (c *Crowd) Cut() int { return int(c.cut.Load()) }

// Close ends all connections.
func (c *Crowd) Close() {
	c.closing.Store(true)
	for _, l := range c.listeners {
		if l != nil {
			l.socket.Close()
		}
	}
	for _, s := range c.publishers {
		if s != nil {
			s.Close()
		}
	}
	c.readers.Wait()
}

func (c *Crowd) fail(err error) {
	if c.closing.Load() {
		return
	}
	c.failed.CompareAndSwap(nil, &err)
	if r := c.round.Load(); r != nil {
		r.end()
	}
}

func (r *round) end() { r.over.Do(func() { close(r.done) }) }

// heed reads what publishers are told.
func (c *Crowd) heed(s *Socket) {
	for {
		payload, err := s.Next()
		if err == nil {
			if err = c.cfg.Dialect.Refused(payload); err == nil {
				err = c.cfg.Dialect.Idle(s, payload)
			}
		}
		if err != nil {
			c.fail(fmt.Errorf("publisher: %w", err))
			return
		}
	}
}

// listen reads deliveries.
func (c *Crowd) listen(l *listener) {
	head := []byte(markerHead)
	for {
		r, now, got := c.round.Load(), int64(0), int64(0)
		err := l.socket.Each(func(payload []byte) {
			if now == 0 {
				now = time.Now().UnixNano()
				r = c.round.Load()
			}
			if len(payload) < len(head)+markerDigits {
				if err := c.cfg.Dialect.Idle(l.socket, payload); err != nil {
					c.fail(err)
				}
				return
			}
			for {
				at := bytes.Index(payload, head)
				if at < 0 || len(payload) < at+len(head)+markerDigits {
					return
				}
				payload = payload[at+len(head):]
				if r != nil && l.take(r, number(payload[:markerDigits]), now) {
					got++
				}
			}
		})
		if got > 0 {
			r.delivered(got, now)
		}
		if err != nil {
			if !c.closing.Load() {
				c.cut.Add(1) // what it does not get is lost
			}
			return
		}
	}
}

func number(digits []byte) int {
	n := 0
	for _, d := range digits {
		n = 10*n + int(d-'0')
	}
	return n
}

// take notes a delivery and reports whether it is the first of its message.
func (l *listener) take(r *round, n int, now int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := n - r.first
	if i < 0 || i/64 >= len(l.seen) {
		return false // of the round before
	}
	bit := uint64(1) << (i % 64)
	if l.seen[i/64]&bit != 0 {
		l.twice++
		return false
	}
	l.seen[i/64] |= bit
	l.got++
	if r.sent != nil {
		l.times = append(l.times, time.Duration(now-r.sent[i].Load()))
	}
	return true
}

// delivered lets publishers go on when all subscribers have a message, and ends the round with the last delivery.
func (r *round) delivered(n, now int64) {
	total := r.total.Add(n)
	r.last.Store(now)
	if r.room != nil {
		for range total/r.fan - (total-n)/r.fan {
			select {
			case <-r.room:
			default:
			}
		}
	}
	if wanted := r.wanted.Load(); wanted > 0 && total >= wanted {
		r.end()
	}
}

// Result is what a round showed.
type Result struct {
	Messages   int
	Deliveries int
	Lost       int
	Twice      int
	Took       time.Duration   // from the first message to the last delivery
	Latencies  []time.Duration // of all deliveries, of Paced
}

// patience is how long nothing may arrive before what is missing counts as lost.
const patience = 10 * time.Second

// Flood publishes as many messages as the server takes in the given time, with at most so many deliveries outstanding,
// and waits for the last delivery. At most so many messages are published; they are made beforehand.
func (c *Crowd) Flood(ctx context.Context, length time.Duration, outstanding, most int) (Result, error) {
	r := &round{room: make(chan struct{}, max(outstanding/c.cfg.fan(), 2*c.cfg.Publishers))}
	end := time.Now()
	return c.run(ctx, r, most, func() { end = time.Now().Add(length) }, func(ctx context.Context, _ int) (bool, error) {
		if time.Now().After(end) {
			return false, nil
		}
		select {
		case r.room <- struct{}{}:
			return true, nil
		default:
		}
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case r.room <- struct{}{}:
			return true, nil
		case <-timer.C: // lost, as the result will say
			return false, nil
		case <-r.done:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	})
}

// Paced publishes so many messages at a fixed rate a second and tells the time of each delivery.
func (c *Crowd) Paced(ctx context.Context, messages int, perSecond float64) (Result, error) {
	r := &round{sent: make([]atomic.Int64, messages)}
	var begin time.Time
	return c.run(ctx, r, messages, func() { begin = time.Now() }, func(ctx context.Context, i int) (bool, error) {
		timer := time.NewTimer(time.Until(begin.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))))
		defer timer.Stop()
		select {
		case <-timer.C:
			r.sent[i].Store(time.Now().UnixNano())
			return true, nil
		case <-r.done:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	})
}

// run makes the messages, lets each publisher send its own when next says so, and gathers what arrived. The i-th message
// is of publisher i modulo their number.
func (c *Crowd) run(ctx context.Context, r *round, most int, begin func(), next func(ctx context.Context, i int) (bool, error)) (Result, error) {
	r.first, r.fan, r.done = c.published, int64(c.cfg.fan()), make(chan struct{})
	c.published += most
	frames := make([][]byte, most)
	for i := range frames {
		var err error
		n := r.first + i
		if frames[i], err = c.cfg.Dialect.Message(c.publishers[i%len(c.publishers)], n, c.topics[n%len(c.topics)]); err != nil {
			return Result{}, err
		}
	}
	for _, l := range c.listeners {
		l.mu.Lock()
		l.seen, l.times, l.got, l.twice = make([]uint64, (most+63)/64), nil, 0, 0
		l.mu.Unlock()
	}
	c.round.Store(r)
	defer c.round.Store(nil)
	if err := c.failed.Load(); err != nil {
		return Result{}, *err
	}

	if c.Began != nil {
		if err := c.Began(); err != nil {
			return Result{}, err
		}
	}
	begin()
	began := time.Now()
	var sent atomic.Int64
	group, gctx := errgroup.WithContext(ctx)
	for p, s := range c.publishers {
		group.Go(func() error {
			for i := p; i < most; i += len(c.publishers) {
				if on, err := next(gctx, i); !on || err != nil {
					return err
				}
				if err := s.Write(frames[i]); err != nil {
					return err
				}
				sent.Add(1)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Result{}, err
	}
	res := Result{Messages: int(sent.Load())}
	if err := r.wait(ctx, sent.Load()*r.fan); err != nil {
		return Result{}, err
	}
	if err := c.failed.Load(); err != nil {
		return Result{}, *err
	}
	res.Took = time.Duration(max(r.last.Load()-began.UnixNano(), 0))
	for _, l := range c.listeners {
		l.mu.Lock()
		res.Deliveries += l.got
		res.Twice += l.twice
		res.Latencies = append(res.Latencies, l.times...)
		l.mu.Unlock()
	}
	res.Lost = res.Messages*int(r.fan) - res.Deliveries
	return res, nil
}

// wait waits until all is delivered or nothing comes any more.
func (r *round) wait(ctx context.Context, wanted int64) error {
	r.wanted.Store(wanted)
	if r.total.Load() >= wanted {
		return nil
	}
	for before := r.total.Load(); ; {
		timer := time.NewTimer(patience)
		select {
		case <-r.done:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		if now := r.total.Load(); now != before {
			before = now
			continue
		}
		return nil
	}
}
