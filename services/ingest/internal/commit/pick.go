package commit

import (
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/ingest/internal/policy"
)

// Limits bound one batch.
type Limits struct {
	// Events is the greatest number of events.
	Events int
	// Bytes bounds the envelopes together, so that also a batch that is all in one partition makes one
	// message that the bus takes. One event always fits.
	Bytes int
	// Erasures bounds the stored events that the batch may replace or delete; they are read. One event always
	// fits. 0 is no limit.
	Erasures int
	// Topics bounds the distinct communities and channels, and with them the locks of the transaction:
	// Postgres has one lock table for all.
	Topics int
}

// address is where at most one version is kept.
type address struct {
	policy.Client // the author
	policy.Coordinate
}

// picker forms one batch.
type picker struct {
	limits    Limits
	bytes     int
	erasures  int
	ids       map[policy.EventKey]bool
	addresses map[address]bool
	held      map[policy.ChannelKey]bool // channels that a command of the batch holds, or one that waits for room
	authors   map[policy.Client]bool     // who has an event in the batch
	deleters  map[policy.Client]bool     // authors whose deletion is in the batch
	deletions map[int64]bool             // communities with a deletion in the batch
	wraps     map[int64]bool             // communities with a gift wrap in the batch
	topics    map[policy.ChannelKey]bool
	followed  map[policy.EventKey]bool // targets whose channels, unknown as yet, are topics too
	follows   map[int64]bool           // communities with an event in the batch that follows its target
	changed   map[int64]bool           // communities with a command in one of their channels in the batch
	whole     map[int64]bool           // the same of communities
	blocked   map[policy.Client]bool   // clients that have an event held back
}

// pick takes from waiting, in order, what may go into one transaction, and returns the rest in order.
//
// Inside a transaction the events are judged against the same State, so none may depend on another: a batch holds
// one event of an id or an address, a deletion is alone with its author and without gift wraps, which it may be
// meant for, a request to vanish is alone with its community (it takes gift wraps of others along), a command alone
// with its channel, or its community if it is in no channel, and what an event is about comes before it. What follows
// a target into its channel may be in any, so it is not together with a command in some channel of the community. What
// conflicts is held back for the next batch, and so is everything that the same client sent after it, as well as after
// a deletion or a command: what one client sends takes effect in the order of sending. Other clients are not held up by it.
//
// What there is no room for waits as well, and with a command what is in its channel or community: the rest of the line
// goes on without it, so that the large ones of some do not make the batches of all small. Nothing waits for ever, since
// nothing comes before what waits but what was before it, and the first one always goes.
func pick(waiting []Item, limits Limits) (batch, rest []Item) {
	p := &picker{
		limits: limits, ids: map[policy.EventKey]bool{}, addresses: map[address]bool{},
		held: map[policy.ChannelKey]bool{}, authors: map[policy.Client]bool{}, deleters: map[policy.Client]bool{},
		deletions: map[int64]bool{}, wraps: map[int64]bool{},
		topics: map[policy.ChannelKey]bool{}, followed: map[policy.EventKey]bool{}, follows: map[int64]bool{},
		changed: map[int64]bool{}, whole: map[int64]bool{}, blocked: map[policy.Client]bool{},
	}
	for i, it := range waiting {
		c := it.Candidate()
		if len(batch) >= limits.Events || p.full(len(batch)) {
			return batch, append(rest, waiting[i:]...)
		}
		from := c.Client()
		if p.blocked[from] || p.conflicts(c) {
			p.blocked[from] = true
			rest = append(rest, it)
			continue
		}
		if !p.fits(c, len(batch)) {
			p.blocked[from] = true
			p.hold(c)
			rest = append(rest, it)
			continue
		}
		p.add(c)
		batch = append(batch, it)
		if c.Deletion != nil || c.Command != nil {
			p.blocked[from] = true
		}
	}
	return batch, rest
}

// full reports whether there is no room even for the smallest event.
func (p *picker) full(n int) bool { return n > 0 && p.bytes+policy.EnvelopeOverhead > p.limits.Bytes }

// fits reports whether there is room; the first event always has it.
func (p *picker) fits(c *policy.Candidate, n int) bool {
	if n == 0 {
		return true
	}
	more := 0
	if c.FollowsTarget() && !p.followed[targets(c)[0]] {
		more++
	}
	for _, t := range topics(c) {
		if !p.topics[t] {
			more++
		}
	}
	return p.bytes+c.Size() <= p.limits.Bytes && len(p.topics)+len(p.followed)+more <= p.limits.Topics &&
		(p.limits.Erasures == 0 || p.erasures+erasures(c) <= p.limits.Erasures)
}

// erasures is how many stored events the candidate may replace or delete.
func erasures(c *policy.Candidate) int {
	if c.Deletion != nil {
		return len(c.Deletion.IDs) + len(c.Deletion.Addresses)
	}
	if _, ok := c.Addressed(); ok {
		return 1
	}
	return 0
}

// topics are what the candidate locks: its community, its channel, and what it holds as if it were one.
func topics(c *policy.Candidate) []policy.ChannelKey {
	list := make([]policy.ChannelKey, 1, 4)
	list[0].Community = c.Community
	if c.Channel != "" {
		list = append(list, c.ChannelKey())
	}
	if held, ok := c.Holds(); ok && !slices.Contains(list, held) {
		list = append(list, held)
	}
	if counted, ok := c.Creates(); ok {
		list = append(list, counted)
	}
	return list
}

// targets are the events that have to be stored before the candidate is judged.
func targets(c *policy.Candidate) []policy.EventKey {
	ids := c.Targets()
	keys := make([]policy.EventKey, len(ids))
	for i, id := range ids {
		keys[i] = policy.EventKey{Community: c.Community, ID: id}
	}
	return keys
}

func addressOf(c *policy.Candidate) (address, bool) {
	at, ok := c.Addressed()
	return address{author(c), at}, ok
}

func author(c *policy.Candidate) policy.Client {
	return policy.Client{Community: c.Community, Key: c.Event.PubKey}
}

func (p *picker) conflicts(c *policy.Candidate) bool {
	if slices.ContainsFunc(targets(c), func(k policy.EventKey) bool { return p.ids[k] }) {
		return true
	}
	if p.ids[c.Key()] || p.deleters[author(c)] || (c.Deletion != nil && p.authors[author(c)]) {
		return true
	}
	if p.whole[c.Community] || (c.Whole() && p.topics[policy.ChannelKey{Community: c.Community}]) {
		return true
	}
	if (c.FollowsTarget() && p.changed[c.Community]) || (changesChannel(c) && p.follows[c.Community]) {
		return true
	}
	if c.Channel != "" && p.held[c.ChannelKey()] {
		return true
	}
	if held, ok := c.Holds(); ok && (p.held[held] || p.topics[held]) {
		return true
	}
	if (c.Deletion != nil && p.wraps[c.Community]) || (isWrap(c) && p.deletions[c.Community]) {
		return true
	}
	at, ok := addressOf(c)
	return ok && p.addresses[at]
}

func isWrap(c *policy.Candidate) bool { return c.Event.Kind == nostr.KindGiftWrap }

// changesChannel reports whether the candidate is a command in a channel.
func changesChannel(c *policy.Candidate) bool { return c.Command != nil && c.Channel != "" }

func (p *picker) add(c *policy.Candidate) {
	p.bytes += c.Size()
	p.erasures += erasures(c)
	p.wraps[c.Community] = p.wraps[c.Community] || isWrap(c)
	p.ids[c.Key()] = true
	p.authors[author(c)] = true
	for _, t := range topics(c) {
		p.topics[t] = true
	}
	if at, ok := addressOf(c); ok {
		p.addresses[at] = true
	}
	if c.Deletion != nil {
		p.deleters[author(c)] = true
		p.deletions[c.Community] = true
	}
	if c.FollowsTarget() {
		p.followed[targets(c)[0]], p.follows[c.Community] = true, true
	}
	p.hold(c)
	if changesChannel(c) {
		p.changed[c.Community] = true
	}
}

// hold keeps what comes later out of the community or channel that the event is alone with.
func (p *picker) hold(c *policy.Candidate) {
	if c.Whole() {
		p.whole[c.Community] = true
	}
	if held, ok := c.Holds(); ok {
		p.held[held] = true
	}
}
