package live

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/apiary-relay/apiary/pkg/placement"
)

const (
	// measureEvery is the time between two looks at how hot topics are.
	measureEvery = time.Second
	// calmMeasures is how many looks in a row must find that fewer nodes would do, with as much again to spare, before a
	// topic goes back to them: moving costs a replay.
	calmMeasures = 30
)

// Spread says when a topic is too much for one fan-out node.
type Spread struct {
	// Subscriptions is how many attachments of this gateway to one topic a node is given; 0 is no limit.
	Subscriptions int
	// Deliveries is how many deliveries a second to them; 0 is no limit.
	Deliveries int
}

// topicKey names a topic.
type topicKey struct {
	community int64
	channel   string
}

// topic is what this gateway's attachments to one topic have in common: how many there are, how much comes, and over how
// many nodes they are spread. Gateways need not agree on that: any node can serve any partition.
type topic struct {
	// delivered counts deliveries; receivers add to it.
	delivered atomic.Int64

	// Owned by the loop.
	attachments int
	counted     int64 // of delivered, at the last look
	width       int   // nodes, at least 1
	calm        int   // looks in a row that found that fewer would do
}

// needs is how many nodes some attachments with some deliveries a second need.
func (s Spread) needs(attachments, rate int) int {
	nodes := 1
	if s.Subscriptions > 0 {
		nodes = max(nodes, (attachments+s.Subscriptions-1)/s.Subscriptions)
	}
	if s.Deliveries > 0 {
		nodes = max(nodes, (rate+s.Deliveries-1)/s.Deliveries)
	}
	return nodes
}

// measure takes what a look at a topic has found and reports whether its width has changed. It grows at once and shrinks
// when it has been calm for long.
func (t *topic) measure(s Spread, rate, nodes int) bool {
	if needs := min(s.needs(t.attachments, rate), nodes); needs > t.width {
		t.width, t.calm = needs, 0
		return true
	}
	enough := s.needs(2*t.attachments, 2*rate)
	if enough >= t.width {
		t.calm = 0
		return false
	}
	if t.calm++; t.calm < calmMeasures {
		return false
	}
	t.width, t.calm = enough, 0
	return true
}

// join counts an attachment to its topic and numbers it.
func (lv *Live) join(a *Attachment) {
	key := topicKey{a.spec.Community, a.spec.Channel}
	t := lv.book.topics[key]
	if t == nil {
		t = &topic{width: 1}
		lv.book.topics[key] = t
	}
	t.attachments++
	lv.book.joined++
	a.topic, a.number = t, lv.book.joined
}

// part is the opposite of join.
func (lv *Live) part(a *Attachment) {
	if a.topic.attachments--; a.topic.attachments == 0 {
		delete(lv.book.topics, topicKey{a.spec.Community, a.spec.Channel})
	}
}

// measure looks at all topics, when it is time, and has those looked through whose attachments belong elsewhere.
func (lv *Live) measure(ctx context.Context, now time.Time) {
	passed := now.Sub(lv.book.measured)
	if passed < measureEvery {
		return
	}
	lv.book.measured = now
	for key, t := range lv.book.topics {
		delivered := t.delivered.Load()
		rate := int(float64(delivered-t.counted) / passed.Seconds())
		t.counted = delivered
		if !t.measure(lv.cfg.Spread, rate, len(lv.book.names)) {
			continue
		}
		lv.log.LogAttrs(ctx, slog.LevelInfo, "topic is spread over fan-out nodes", slog.Int("nodes", t.width),
			slog.Int("attachments", t.attachments), slog.Int("deliveries_per_second", rate))
		p := placement.Partition(key.community, key.channel, lv.cfg.Partitions)
		if !slices.Contains(lv.book.moves, p) {
			lv.book.moves = append(lv.book.moves, p)
		}
	}
}

// best returns the link to the node that is to serve an attachment, other than avoid; nil if there is none. That is the first
// of its partition's rank, or one of the first few when its topic is spread, always the same for an attachment.
func (lv *Live) best(a *Attachment, avoid *link) *link {
	names := lv.book.names
	if a.topic.width <= 1 && (avoid == nil || lv.book.links[avoid.name] != avoid) {
		name, ok := placement.Owner(a.partition, names)
		if !ok {
			return nil
		}
		return lv.book.links[name]
	}
	rank := lv.rank(a.partition)
	if len(rank) == 0 {
		return nil
	}
	first := int(a.number % uint64(min(a.topic.width, len(rank))))
	for i := range rank {
		if l := lv.book.links[rank[(first+i)%len(rank)]]; l != avoid {
			return l
		}
	}
	return nil
}

// rank returns the nodes to choose from in a partition's order.
func (lv *Live) rank(partition uint32) []string {
	rank, ok := lv.book.ranks[partition]
	if !ok {
		rank = placement.Rank(partition, lv.book.names)
		lv.book.ranks[partition] = rank
	}
	return rank
}
