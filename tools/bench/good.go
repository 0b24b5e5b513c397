package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/lifecycle"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// The well-behaved clients: pairs of a publisher and its subscriber, and readers. They are so few that two relays and their clients
// leave most of two cores idle: where they do not, latencies tell of the queue for the processor and of nothing else.
const (
	goodPairs    = 4
	goodReaders  = 4
	publishEvery = 200 * time.Millisecond
	queryEvery   = 200 * time.Millisecond
	// goodPatience is after how long what has not come counts as lost.
	goodPatience = time.Minute
)

// observed are the latencies of well-behaved clients, in one way of running them.
type observed struct {
	mu                 sync.Mutex // guards what follows while clients run
	deliver, ok, query times
}

func (o *observed) note(list *times, d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list.add(d)
}

// goodClients keep their connections and subscriptions from round to round.
type goodClients struct {
	pairs   []*pair
	readers []*client
	stored  nostr.Filter  // what readers ask for
	phase   time.Duration // how much later than the clients of another relay these act
	lost    int
	doubled int
}

// pair is a publisher with one subscriber that gets its events and nobody else's.
type pair struct {
	publisher, subscriber *client
	seen                  map[nostr.ID]bool // delivered, ever
	published             int
}

// storedEvents is how many events readers find.
const storedEvents = 100

func meetGood(ctx context.Context, s *server) (_ *goodClients, err error) {
	g := &goodClients{}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	for range goodPairs {
		p := &pair{seen: map[nostr.ID]bool{}}
		g.pairs = append(g.pairs, p)
		if p.publisher, err = connect(ctx, s.url()); err != nil {
			return nil, err
		}
		if p.subscriber, err = connect(ctx, s.url()); err != nil {
			return nil, err
		}
		since := time.Now().Unix() - 3600
		filter := nostr.Filter{Authors: []nostr.PubKey{p.publisher.secret.PubKey()}, Kinds: []nostr.Kind{nostr.KindText}, Since: &since}
		if _, err := p.subscriber.subscribe(ctx, "live", filter); err != nil {
			return nil, err
		}
	}
	writer, err := connect(ctx, s.url())
	if err != nil {
		return nil, err
	}
	defer writer.close()
	for i := range storedEvents {
		event := sample(i)
		if err := event.Sign(writer.secret); err != nil {
			return nil, err
		}
		if err := writer.write(ctx, wire.AppendClientEvent(nil, event.AppendJSON(nil))); err != nil {
			return nil, err
		}
		if ok, err := writer.expect(ctx, wire.LabelOK); err != nil || !ok.OK {
			return nil, errors.Join(err, fmt.Errorf("event refused: %s", ok.Message))
		}
	}
	g.stored = nostr.Filter{Authors: []nostr.PubKey{writer.secret.PubKey()}}
	for range goodReaders {
		reader, err := connect(ctx, s.url())
		if err != nil {
			return nil, err
		}
		g.readers = append(g.readers, reader)
	}
	return g, nil
}

func (g *goodClients) close() {
	for _, p := range g.pairs {
		for _, c := range []*client{p.publisher, p.subscriber} {
			if c != nil {
				c.close()
			}
		}
	}
	for _, r := range g.readers {
		r.close()
	}
}

// crowd has so many more clients come at once, ask for stored events and go.
func (g *goodClients) crowd(ctx context.Context, url string, clients int) error {
	group, ctx := errgroup.WithContext(ctx)
	for range clients {
		group.Go(func() error {
			c, err := connect(ctx, url)
			if err != nil {
				return err
			}
			defer c.close()
			_, err = c.subscribe(ctx, "stored", g.stored)
			return err
		})
	}
	return group.Wait()
}

// faults is what was lost and doubled so far.
func (g *goodClients) faults() (lost, doubled int) { return g.lost, g.doubled }

// run lets all clients work for the given time and then waits for what is under way. The latencies go to seen, which
// may be nil. An error is that a client was cut off or refused.
func (g *goodClients) run(ctx context.Context, length time.Duration, seen *observed) error {
	end := time.Now().Add(length)
	ctx, cancel := context.WithDeadline(ctx, end.Add(goodPatience))
	defer cancel()
	if seen == nil {
		seen = &observed{}
	}
	var mu sync.Mutex // guards lost and doubled
	group, gctx := errgroup.WithContext(ctx)
	// Clients that do not know of each other do not all act at the same moment.
	at := func(i, of int, every time.Duration) time.Duration {
		return g.phase + every*time.Duration(i)/time.Duration(of)
	}
	for i, p := range g.pairs {
		group.Go(func() error {
			if !lifecycle.Pause(gctx, at(2*i, 2*len(g.pairs), publishEvery)) {
				return gctx.Err()
			}
			lost, doubled, err := p.run(gctx, int(length/publishEvery), seen)
			mu.Lock()
			defer mu.Unlock()
			g.lost += lost
			g.doubled += doubled
			return err
		})
	}
	for i, r := range g.readers {
		group.Go(func() error {
			if !lifecycle.Pause(gctx, at(2*i+1, 2*len(g.readers), queryEvery)) {
				return gctx.Err()
			}
			return query(gctx, r, i, g.stored, end, seen)
		})
	}
	return group.Wait()
}

// run publishes so many events at a fixed pace and takes what is delivered.
func (p *pair) run(ctx context.Context, events int, seen *observed) (lost, doubled int, err error) {
	var mu sync.Mutex // guards sent
	sent := make(map[nostr.ID]time.Time, events)
	at := func(id nostr.ID) time.Time {
		mu.Lock()
		defer mu.Unlock()
		return sent[id]
	}
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		tick := time.NewTicker(publishEvery)
		defer tick.Stop()
		for range events {
			event := sample(p.published)
			p.published++
			event.CreatedAt = time.Now().Unix()
			if err := event.Sign(p.publisher.secret); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-gctx.Done():
				return gctx.Err()
			}
			mu.Lock()
			sent[event.ID] = time.Now()
			mu.Unlock()
			if err := p.publisher.write(gctx, wire.AppendClientEvent(nil, event.AppendJSON(nil))); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
		}
		return nil
	})
	group.Go(func() error {
		for range events {
			ok, err := p.publisher.expect(gctx, wire.LabelOK)
			if err != nil {
				return fmt.Errorf("acknowledgement: %w", err)
			}
			if !ok.OK {
				return fmt.Errorf("an event of a well-behaved client was refused: %s", ok.Message)
			}
			seen.note(&seen.ok, time.Since(at(ok.EventID)))
		}
		return nil
	})
	delivered := 0
	group.Go(func() error {
		for delivered < events {
			frame, err := p.subscriber.expect(gctx, wire.LabelEvent)
			if err != nil {
				return fmt.Errorf("delivery: %w", err)
			}
			if p.seen[frame.EventID] {
				doubled++
				continue
			}
			p.seen[frame.EventID] = true
			delivered++
			seen.note(&seen.deliver, time.Since(at(frame.EventID)))
		}
		return nil
	})
	err = group.Wait()
	return events - delivered, doubled, err
}

// query asks for stored events at a fixed pace.
func query(ctx context.Context, c *client, reader int, filter nostr.Filter, end time.Time, seen *observed) error {
	tick := time.NewTicker(queryEvery)
	defer tick.Stop()
	for i := 0; time.Now().Before(end); i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		id := fmt.Sprintf("%d-%d", reader, i)
		began := time.Now()
		n, err := c.subscribe(ctx, id, filter)
		if err != nil {
			return fmt.Errorf("query: %w", err)
		}
		if n != storedEvents {
			return fmt.Errorf("query: %d of %d stored events", n, storedEvents)
		}
		seen.note(&seen.query, time.Since(began))
		if err := c.write(ctx, wire.AppendClose(nil, id)); err != nil {
			return err
		}
	}
	return nil
}
