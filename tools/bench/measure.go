package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// verified is how many events per second one goroutine decodes and verifies.
type verified struct{ single, batched float64 }

// verifyBatch and verifyAuthors are the batch of measureVerify: what waits at ingest under load.
const verifyBatch, verifyAuthors = 64, 16

// measureVerify verifies the same events one by one and in batches, about two seconds each, in turns so that
// both see the same machine.
func measureVerify(ctx context.Context) (verified, error) {
	secrets := make([]*nostr.SecretKey, verifyAuthors)
	for i := range secrets {
		var err error
		if secrets[i], err = nostr.GenerateSecretKey(); err != nil {
			return verified{}, err
		}
	}
	raws := make([][]byte, verifyBatch)
	for i := range raws {
		event := sample(i)
		if err := event.Sign(secrets[i%verifyAuthors]); err != nil {
			return verified{}, err
		}
		raws[i] = event.AppendJSON(nil)
	}
	limits := wire.DefaultLimits()
	events := make([]*nostr.Event, len(raws))
	decode := func() error {
		for i, raw := range raws {
			var err error
			if events[i], err = wire.DecodeEvent(raw, limits); err != nil {
				return err
			}
		}
		return nil
	}
	var single, batched time.Duration
	rounds := 0
	for ; single+batched < 4*time.Second; rounds++ {
		if err := ctx.Err(); err != nil {
			return verified{}, err
		}
		started := time.Now()
		if err := decode(); err != nil {
			return verified{}, err
		}
		for _, event := range events {
			if err := event.Verify(); err != nil {
				return verified{}, err
			}
		}
		between := time.Now()
		if err := decode(); err != nil {
			return verified{}, err
		}
		if errs := nostr.VerifyEach(events); errs != nil {
			return verified{}, errors.Join(errs...)
		}
		single += between.Sub(started)
		batched += time.Since(between)
	}
	n := float64(rounds * len(raws))
	return verified{single: n / single.Seconds(), batched: n / batched.Seconds()}, nil
}

// topics is how many distinct `t` values the stored events have.
const topics = 500

// sample is the i-th unsigned event: a text note as clients send them.
func sample(i int) nostr.Event {
	return nostr.Event{
		Kind:      nostr.KindText,
		CreatedAt: time.Now().Unix() - int64(i%600),
		Tags:      nostr.Tags{{"t", fmt.Sprintf("topic-%d", i%topics)}, {"client", "bench"}},
		Content:   fmt.Sprintf("message %d: the quick brown fox jumps over the lazy dog, and the dog does not mind at all", i),
	}
}

// loaded is what measureIngest leaves behind.
type loaded struct {
	perSecond   float64
	cpuPerEvent float64 // µs in the server's process, Postgres not included
	p50, p99    float64 // ms from sending to OK
	authors     []nostr.PubKey
	ids         []nostr.ID
}

// measureIngest publishes through several connections with a window of unacknowledged events each, and
// checks that what was acknowledged is stored.
func measureIngest(ctx context.Context, s *server, opts options) (*loaded, error) {
	clients := make([]*client, opts.publishers)
	frames := make([][][]byte, opts.publishers)
	ids := make([][]nostr.ID, opts.publishers)
	res := &loaded{}
	group, gctx := errgroup.WithContext(ctx)
	for p := range clients {
		group.Go(func() error {
			c, err := connect(gctx, s.url())
			if err != nil {
				return err
			}
			clients[p] = c
			for i := p; i < opts.events; i += opts.publishers {
				event := sample(i)
				if err := event.Sign(c.secret); err != nil {
					return err
				}
				frames[p] = append(frames[p], wire.AppendClientEvent(nil, event.AppendJSON(nil)))
				ids[p] = append(ids[p], event.ID)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}

	cpuBefore, err := s.cpu()
	if err != nil {
		return nil, err
	}
	latencies := make([]times, opts.publishers)
	started := time.Now()
	group, gctx = errgroup.WithContext(ctx)
	for p, c := range clients {
		defer c.close()
		group.Go(func() error { return publishAll(gctx, c, frames[p], ids[p], opts.window, &latencies[p]) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	elapsed := time.Since(started)
	cpuAfter, err := s.cpu()
	if err != nil {
		return nil, err
	}
	var all times
	for _, l := range latencies {
		all = append(all, l...)
	}
	res.perSecond = float64(opts.events) / elapsed.Seconds()
	res.cpuPerEvent = float64((cpuAfter - cpuBefore).Microseconds()) / float64(opts.events)
	res.p50, res.p99 = all.quantile(0.50), all.quantile(0.99)

	reader, err := connect(ctx, s.url())
	if err != nil {
		return nil, err
	}
	defer reader.close()
	for p, c := range clients {
		author := c.secret.PubKey()
		res.authors = append(res.authors, author)
		res.ids = append(res.ids, ids[p][:min(len(ids[p]), 200)]...)
		if err := reader.write(ctx, wire.AppendCountReq(nil, "count", nostr.Filter{Authors: []nostr.PubKey{author}})); err != nil {
			return nil, err
		}
		count, err := reader.expect(ctx, wire.LabelCount)
		if err != nil {
			return nil, err
		}
		if want := uint64(len(ids[p])); count.Count != want {
			return nil, fmt.Errorf("%d events of %s were acknowledged, %d are stored", want, author, count.Count)
		}
	}
	return res, nil
}

// publishAll sends all frames with at most window unanswered, and expects OK true for each.
func publishAll(ctx context.Context, c *client, frames [][]byte, ids []nostr.ID, window int, latencies *times) error {
	room := make(chan struct{}, window)
	var mu sync.Mutex // guards sent
	sent := make(map[nostr.ID]time.Time, window)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for i, frame := range frames {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			mu.Lock()
			sent[ids[i]] = time.Now()
			mu.Unlock()
			if err := c.write(ctx, frame); err != nil {
				return err
			}
		}
		return nil
	})
	group.Go(func() error {
		for range frames {
			ok, err := c.expect(ctx, wire.LabelOK)
			if err != nil {
				return err
			}
			if !ok.OK {
				return fmt.Errorf("event %s refused: %s", ok.EventID, ok.Message)
			}
			mu.Lock()
			at, known := sent[ok.EventID]
			delete(sent, ok.EventID)
			mu.Unlock()
			if !known {
				return fmt.Errorf("second OK for %s", ok.EventID)
			}
			latencies.add(time.Since(at))
			<-room
		}
		return nil
	})
	return group.Wait()
}

// shape is one sort of filter and its latencies.
type shape struct {
	name, filter string
	times        times
	make         func(i int) nostr.Filter
}

// measureQueries asks one query after the other and checks that each finds something.
func measureQueries(ctx context.Context, s *server, data *loaded, opts options) ([]*shape, times, error) {
	limit := func(n int) *int { return &n }
	at := func(n int64) *int64 { return &n }
	now := time.Now().Unix()
	shapes := []*shape{
		{name: "by ids", filter: "20 ids", make: func(i int) nostr.Filter {
			from := i * 20 % (len(data.ids) - 20)
			return nostr.Filter{IDs: data.ids[from : from+20]}
		}},
		{name: "by author", filter: "1 author, limit 50", make: func(i int) nostr.Filter {
			return nostr.Filter{Authors: data.authors[i%len(data.authors) : i%len(data.authors)+1], Limit: limit(50)}
		}},
		{name: "by authors and kind", filter: "8 authors, kind 1, limit 100", make: func(i int) nostr.Filter {
			return nostr.Filter{Authors: data.authors[:min(8, len(data.authors))], Kinds: []nostr.Kind{nostr.KindText}, Limit: limit(100)}
		}},
		{name: "by tag", filter: "#t, limit 50", make: func(i int) nostr.Filter {
			return nostr.Filter{Tags: []nostr.TagCondition{{Name: 't', Values: []string{fmt.Sprintf("topic-%d", i%topics)}}}, Limit: limit(50)}
		}},
		{name: "by kind in a window", filter: "kind 1, since, until, limit 100", make: func(i int) nostr.Filter {
			return nostr.Filter{Kinds: []nostr.Kind{nostr.KindText}, Since: at(now - 3600), Until: at(now - int64(i%300)), Limit: limit(100)}
		}},
		{name: "newest", filter: "no condition, limit 500", make: func(int) nostr.Filter { return nostr.Filter{Limit: limit(500)} }},
	}
	c, err := connect(ctx, s.url())
	if err != nil {
		return nil, nil, err
	}
	defer c.close()
	var all times
	for _, sh := range shapes {
		for i := range opts.queries {
			id := fmt.Sprintf("q%d", i)
			started := time.Now()
			n, err := c.subscribe(ctx, id, sh.make(i))
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", sh.name, err)
			}
			if n == 0 {
				return nil, nil, fmt.Errorf("%s: found nothing", sh.name)
			}
			sh.times.add(time.Since(started))
			if err := c.write(ctx, wire.AppendClose(nil, id)); err != nil {
				return nil, nil, err
			}
		}
		all = append(all, sh.times...)
	}
	return shapes, all, nil
}

// delivery is one paced run of live delivery.
type delivery struct {
	subscribers int
	events      int
	every       time.Duration
}

// measureDelivery publishes at a fixed pace and measures, at every subscriber, the time from the
// publisher's write to the arrival. Each subscriber must see each event exactly once.
func measureDelivery(ctx context.Context, s *server, d delivery) (times, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+time.Duration(d.events)*d.every)
	defer cancel()
	tag := fmt.Sprintf("live-%d-%d", d.subscribers, time.Now().UnixNano())
	filter := nostr.Filter{Tags: []nostr.TagCondition{{Name: 't', Values: []string{tag}}}}
	subscribers := make([]*client, d.subscribers)
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i := range subscribers {
		group.Go(func() error {
			c, err := connect(gctx, s.url())
			if err != nil {
				return err
			}
			subscribers[i] = c
			_, err = c.subscribe(gctx, "live", filter)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	publisher, err := connect(ctx, s.url())
	if err != nil {
		return nil, err
	}
	defer publisher.close()

	var mu sync.Mutex // guards sent
	sent := make(map[nostr.ID]time.Time, d.events)
	latencies := make([]times, d.subscribers)
	group, gctx = errgroup.WithContext(ctx)
	for i, c := range subscribers {
		defer c.close()
		group.Go(func() error {
			seen := make(map[nostr.ID]bool, d.events)
			for len(seen) < d.events {
				frame, err := c.expect(gctx, wire.LabelEvent)
				if err != nil {
					return fmt.Errorf("after %d of %d events: %w", len(seen), d.events, err)
				}
				arrived := time.Now()
				id := frame.EventID
				if seen[id] {
					return fmt.Errorf("event %s was delivered twice", id)
				}
				seen[id] = true
				mu.Lock()
				at := sent[id]
				mu.Unlock()
				latencies[i].add(arrived.Sub(at))
			}
			return nil
		})
	}
	group.Go(func() error {
		for range d.events {
			if _, err := publisher.expect(gctx, wire.LabelOK); err != nil {
				return err
			}
		}
		return nil
	})
	group.Go(func() error {
		tick := time.NewTicker(d.every)
		defer tick.Stop()
		for i := range d.events {
			event := sample(i)
			event.Tags = nostr.Tags{{"t", tag}}
			if err := event.Sign(publisher.secret); err != nil {
				return err
			}
			frame := wire.AppendClientEvent(nil, event.AppendJSON(nil))
			select {
			case <-tick.C:
			case <-gctx.Done():
				return gctx.Err()
			}
			mu.Lock()
			sent[event.ID] = time.Now()
			mu.Unlock()
			if err := publisher.write(gctx, frame); err != nil {
				return err
			}
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var all times
	for _, l := range latencies {
		all = append(all, l...)
	}
	return all, nil
}
