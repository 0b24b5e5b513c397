package load

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/tools/chaos/internal/checker"
	"github.com/apiary-relay/apiary/tools/chaos/internal/client"
)

// overlap is how far before the newest event that it has a client asks again: events of a topic are not accepted in
// the order in which they were made, nor always delivered in the order in which they were accepted.
const overlap = 60 * time.Second

// subscriber is one user with one connection at a time. Only member is used by others than its goroutine.
type subscriber struct {
	load      *Load
	name      string
	key       *nostr.SecretKey
	next      int // gateway to try
	interests []*interest

	// member is what the owner has told it last; added wakes it when that becomes true.
	member atomic.Bool
	added  chan struct{}
}

// interest is one subscription, over all connections.
type interest struct {
	filter  nostr.Filter
	log     *checker.Subscription
	newest  int64 // created_at of the newest event that it has; 0 without any
	opened  func()
	private bool

	// On the connection of the moment.
	id      string                     // of the REQ that counts; empty when it is not open
	periods map[string]*checker.Period // of all REQs
	again   time.Duration              // when it is to be asked for again, on the log's clock; 0 is not at all
}

func (l *Load) newSubscriber(n int, t *topic) (*subscriber, error) {
	key, err := nostr.GenerateSecretKey()
	if err != nil {
		return nil, err
	}
	s := &subscriber{load: l, name: "subscriber " + strconv.Itoa(n+1), key: key, next: n, added: make(chan struct{}, 1)}
	channel := nostr.Filter{Kinds: []nostr.Kind{nostr.KindChat, nostr.KindTyping}, Tags: []nostr.TagCondition{{Name: 'h', Values: []string{t.name}}}}
	s.interest(channel, t)
	if n%4 == 0 {
		s.interest(nostr.Filter{Kinds: []nostr.Kind{nostr.KindText}, Authors: []nostr.PubKey{l.owner.key.PubKey()}}, &topic{name: global})
	}
	return s, nil
}

func (s *subscriber) interest(filter nostr.Filter, t *topic) {
	s.load.opened.Add(1)
	s.interests = append(s.interests, &interest{
		filter: filter, private: t.private, opened: sync.OnceFunc(s.load.opened.Done),
		log: s.load.cfg.Log.Subscribe(s.name, t.name, t.private),
	})
}

// joined tells the subscriber that it is a member of its channel again, as a notification or a friend would.
func (s *subscriber) joined() {
	s.member.Store(true)
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// run connects, over and over, until ctx ends.
func (s *subscriber) run(ctx context.Context) {
	for ctx.Err() == nil {
		gateway := s.load.cfg.Gateways[s.next%len(s.load.cfg.Gateways)]
		s.next++
		dialled := s.load.cfg.Log.Now()
		conn, err := s.load.dial(ctx, gateway, s.key)
		if err != nil {
			_ = pause(ctx, retryPause)
			continue
		}
		given := s.converse(ctx, conn, gateway.Name, dialled)
		conn.Close()
		switch {
		case ctx.Err() != nil || given:
		case s.load.cfg.Restarts && conn.Restarted():
			s.load.cfg.Log.Restarted()
		default:
			s.load.cfg.Log.Disconnected(gateway.Name, dialled, s.load.cfg.Log.Now(), conn.Err().Error())
		}
	}
}

// converse asks for everything and takes what comes until the connection or ctx ends. It reports whether it was the
// client that gave the connection up, because nothing could be written to it.
func (s *subscriber) converse(ctx context.Context, conn *client.Conn, gateway string, dialled time.Duration) (given bool) {
	now := s.load.cfg.Log.Now
	requests := 0
	defer func() {
		if ctx.Err() != nil {
			return // it is the run that ends
		}
		for _, i := range s.interests {
			for _, period := range i.periods {
				period.Ended(now())
			}
		}
	}()
	ask := func(i *interest) {
		requests++
		i.id, i.again = strconv.Itoa(requests), 0
		since := s.load.began - 1
		if i.newest > 0 {
			since = max(since, i.newest-int64(overlap/time.Second))
		}
		filter := i.filter
		filter.Since = &since
		i.periods[i.id] = i.log.Request(gateway, dialled, since)
		if err := conn.Request(ctx, i.id, filter); err != nil {
			i.id = "" // the connection is gone, as Frames will tell
			given = given || errors.Is(err, context.DeadlineExceeded)
		}
	}
	for _, i := range s.interests {
		i.periods = make(map[string]*checker.Period)
		ask(i)
	}
	tick := time.NewTicker(retryPause)
	defer tick.Stop()
	for {
		select {
		case frame, ok := <-conn.Frames:
			if !ok {
				return given
			}
			s.take(frame)
		case <-s.added:
			for _, i := range s.interests {
				if i.id == "" && i.private {
					ask(i)
				}
			}
		case <-tick.C:
			for _, i := range s.interests {
				if i.id == "" && i.again != 0 && i.again <= now() {
					ask(i)
				}
			}
		case <-ctx.Done():
			return given
		}
	}
}

// take writes a frame down, also one of a REQ that the relay has closed.
func (s *subscriber) take(frame client.Frame) {
	for _, i := range s.interests {
		period := i.periods[frame.SubID]
		if period == nil {
			continue
		}
		switch frame.Label { //nolint:exhaustive // the connection gives no others
		case wire.LabelEvent:
			period.Event(frame.EventID, frame.At)
			if event, err := wire.DecodeEvent(frame.RawEvent, wire.DefaultLimits()); err == nil {
				i.newest = max(i.newest, event.CreatedAt)
			}
		case wire.LabelEOSE:
			period.EOSE(frame.At)
			i.opened()
		case wire.LabelClosed:
			period.Closed(frame.Message, frame.At)
			if i.id == frame.SubID {
				i.id = ""
			}
			if !strings.HasPrefix(frame.Message, "restricted:") || s.member.Load() {
				i.again = frame.At + retryPause
			}
		}
	}
}

// forget lets go who waits for the first EOSE of what never was open.
func (s *subscriber) forget() {
	for _, i := range s.interests {
		i.opened()
	}
}
