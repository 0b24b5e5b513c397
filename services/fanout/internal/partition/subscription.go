package partition

import (
	"context"
	"time"

	"github.com/apiary-relay/apiary/pkg/fault"
	"github.com/apiary-relay/apiary/services/fanout/internal/access"
	"github.com/apiary-relay/apiary/services/fanout/internal/deliver"
	"github.com/apiary-relay/apiary/services/fanout/internal/index"
	"github.com/apiary-relay/apiary/services/fanout/internal/position"
)

// topic is a topic that somebody is subscribed to.
type topic struct {
	key    topicKey
	index  *index.Index[*subscription]
	access *access.Topic
	// newest are the highest versions that a live envelope of the channel had.
	newest access.Versions
}

// subscription is one handle's.
//
//	[waiting for the feed] ──▶ [queued for a replay] ──▶ [filed, held] ──▶ [filed]
//	          └───────────────────────────────────────────────────────────────▲
//
// From every state it can become gone: forgotten, detached or lost.
type subscription struct {
	Subscribe
	peer  *peer
	since time.Time
	// from is where the subscription stands: only what comes after is for it.
	from position.Cursor
	// topic, entry and grants are set while it is filed.
	topic  *topic
	entry  *index.Entry[*subscription]
	grants []*access.Grant
	// replay is the one that it waits for or is held by.
	replay *replay
	gone   bool
}

func (s *subscription) key() topicKey { return topicKey{s.Community, s.Channel} }

// peer is a gateway, as far as it is subscribed in this partition.
type peer struct {
	link *deliver.Link
	subs map[*deliver.Handle]*subscription
	// cursor is what the last watermark said.
	cursor position.Cursor
	// replay is under way; queued collects those who came too late for it.
	replay *replay
	queued *replay
	batch  batch
}

func (p *Partition) subscribe(ctx context.Context, c *Subscribe) {
	link := c.Handle.Link()
	q := p.peers[link]
	if q == nil {
		q = &peer{link: link, subs: make(map[*deliver.Handle]*subscription)}
		p.peers[link] = q
	}
	s := &subscription{Subscribe: *c, peer: q, since: time.Now()}
	q.subs[c.Handle] = s
	p.subs++
	if p.isOpen() {
		p.place(ctx, s)
		return
	}
	p.waiting = append(p.waiting, s)
	if p.feed == nil {
		p.openFeed(ctx)
	}
}

// place gives a subscription its position and files it, or queues it for a replay. Called while open.
func (p *Partition) place(ctx context.Context, s *subscription) {
	here := p.begun()
	s.from = here
	if s.ResumeAfter != nil {
		s.from = position.CursorFromProto(s.ResumeAfter, here)
	}
	switch wanted, have := s.from[position.Events].Epoch, here[position.Events].Epoch; {
	case wanted < have:
		p.lose(ctx, s, fault.NotFound, "the stream was made anew since", dropGap)
		return
	case wanted > have:
		p.lose(ctx, s, fault.Overloaded, "this node has yet to see the new stream", dropGap)
		return
	}
	s.peer.link.Attached(s.Handle, s.from)
	// Only a watermark after Attached tells the gateway that nothing is being replayed (any more).
	s.peer.cursor = position.Cursor{}
	for stream := range here {
		if here[stream].IsAfter(s.from[stream]) {
			p.queueReplay(ctx, s)
			return
		}
	}
	p.file(s)
}

// file enters a subscription into the index of its topic.
func (p *Partition) file(s *subscription) {
	t := p.topics[s.key()]
	if t == nil {
		t = &topic{key: s.key(), index: index.New[*subscription](), access: access.NewTopic(s.Community, s.Channel)}
		p.topics[t.key] = t
	}
	s.topic = t
	s.entry = t.index.Add(s, s.Plan)
	s.grants = make([]*access.Grant, len(s.Keys))
	for i, k := range s.Keys {
		s.grants[i] = t.access.Acquire(k)
	}
	if t.access.Unsure() {
		p.access.unsure[t] = struct{}{}
	}
}

// remove forgets a subscription; afterwards nothing refers to it but what is in hand, which checks gone.
func (p *Partition) remove(s *subscription) {
	if s.gone {
		return
	}
	s.gone = true
	if t := s.topic; t != nil {
		t.index.Remove(s.entry)
		for _, g := range s.grants {
			t.access.Release(g)
		}
		if t.index.Len() == 0 {
			delete(p.topics, t.key)
			delete(p.access.unsure, t)
		}
	}
	if s.replay != nil {
		p.leaveReplay(s)
	}
	delete(s.peer.subs, s.Handle)
	if len(s.peer.subs) == 0 {
		delete(p.peers, s.peer.link)
	}
	if p.subs--; p.subs == 0 {
		p.idle = time.Now()
	}
}

// lose tells the gateway that a subscription is not served any more, and forgets it.
func (p *Partition) lose(ctx context.Context, s *subscription, reason fault.Reason, message, why string) {
	if s.gone {
		return
	}
	p.deps.Metrics.drop(ctx, why, 1)
	s.peer.link.Lose(s.Handle, reason, message)
	p.remove(s)
}

// loseAll loses every subscription of the partition.
func (p *Partition) loseAll(ctx context.Context, reason fault.Reason, message, why string) {
	for _, q := range p.peers {
		for _, s := range q.subs {
			p.lose(ctx, s, reason, message, why)
		}
	}
}

func (p *Partition) forget(h *deliver.Handle) {
	if q := p.peers[h.Link()]; q != nil {
		if s := q.subs[h]; s != nil {
			p.remove(s)
		}
	}
}

func (p *Partition) detach(link *deliver.Link) {
	if q := p.peers[link]; q != nil {
		for _, s := range q.subs {
			p.remove(s)
		}
	}
}

// placeWaiting places those who came before the feed was open.
func (p *Partition) placeWaiting(ctx context.Context) {
	waiting := p.waiting
	p.waiting = nil
	for _, s := range waiting {
		if !s.gone {
			p.place(ctx, s)
		}
	}
}

// giveUpWaiting loses those who wait for the feed for too long.
func (p *Partition) giveUpWaiting(ctx context.Context, now time.Time) {
	kept := p.waiting[:0]
	for _, s := range p.waiting {
		switch {
		case s.gone:
		case now.Sub(s.since) >= p.cfg.OpenTimeout:
			p.lose(ctx, s, fault.Overloaded, "the streams cannot be reached", dropUnopened)
		default:
			kept = append(kept, s)
		}
	}
	clear(p.waiting[len(kept):])
	p.waiting = kept
}
