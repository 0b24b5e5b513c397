package index

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
)

// maxPairs bounds the keys one filter is filed under for being more precise: when values times kinds
// are more, the filter is filed under its values alone and the kinds are verified.
const maxPairs = 64

// anyKind is the kind of a key that holds for all kinds.
const anyKind = -1

// groupTag is the tag that every event of a channel has with the same value (NIP-29), so that it
// selects nothing there.
const groupTag = 'h'

// dimension is what a key's value is a value of.
type dimension uint8

const (
	dimAll dimension = iota
	dimID
	dimTag
	dimAuthor
	dimKind
	dimensions
)

// key is what filters are filed under and events are looked up by.
type key struct {
	dim   dimension
	tag   byte   // letter, for dimTag
	kind  int32  // or anyKind
	value string // 32 bytes for dimID and dimAuthor, the tag's first value for dimTag
}

// Index files the filters of the subscriptions of one topic. V identifies a subscription to the owner.
// The zero value is not usable: New makes one.
type Index[V any] struct {
	postings map[key]*posting[V]
	// dims and tags count the postings there are, so that an event is not looked up by what no filter
	// asks for.
	dims [dimensions]int
	tags [256]int
	// generation numbers the calls of Match; entries and filters are stamped with it.
	generation uint64
	entries    int
	hits       []*posting[V] // reused by Match
}

// posting holds the filters filed under one key, in no order.
type posting[V any] struct {
	key   key
	slots []slot[V]
}

// slot is a filter's place in a posting: filter.refs[ref] points back at it.
type slot[V any] struct {
	filter *filter[V]
	ref    int
}

// ref says where in which posting a filter is, so that it leaves in constant time.
type ref[V any] struct {
	posting *posting[V]
	at      int
}

// filter is one filter of an entry.
type filter[V any] struct {
	entry *Entry[V]
	// rest is the filter without the conditions that its keys prove.
	rest nostr.Filter
	// proven is set when nothing is left to verify.
	proven bool
	refs   []ref[V]
	tried  uint64 // the generation that verified it
}

// Entry is a subscription's place in an Index, returned by Add for Remove.
type Entry[V any] struct {
	value   V
	filters []*filter[V]
	matched uint64 // the generation that matched it
}

// New returns an empty index.
func New[V any]() *Index[V] {
	return &Index[V]{postings: make(map[key]*posting[V])}
}

// Len returns the number of entries.
func (x *Index[V]) Len() int { return x.entries }

// Add files the filters of a plan under v.
func (x *Index[V]) Add(v V, plan Plan) *Entry[V] {
	e := &Entry[V]{value: v}
	for i := range plan.filters {
		planned := &plan.filters[i]
		f := &filter[V]{entry: e, rest: planned.rest, proven: isEmpty(&planned.rest), refs: make([]ref[V], len(planned.keys))}
		for n, k := range planned.keys {
			p := x.posting(k)
			f.refs[n] = ref[V]{posting: p, at: len(p.slots)}
			p.slots = append(p.slots, slot[V]{filter: f, ref: n})
		}
		e.filters = append(e.filters, f)
	}
	x.entries++
	return e
}

// Remove forgets an entry that Add returned. Removing it twice does nothing.
func (x *Index[V]) Remove(e *Entry[V]) {
	if e.filters == nil && e.matched == removed {
		return
	}
	for _, f := range e.filters {
		for _, r := range f.refs {
			x.drop(r)
		}
	}
	e.filters, e.matched = nil, removed
	x.entries--
}

// removed is the generation of an entry that is in no index.
const removed = ^uint64(0)

// Match appends the value of every entry that the event matches to dst, each once and in no order, and
// returns the extended slice.
func (x *Index[V]) Match(e *nostr.Event, dst []V) []V {
	x.generation++
	return x.match(e, x.generation, dst)
}

// MatchAbout is Match for an event that tells something about subject, who has not signed it: it matches too what it
// would match as an event of subject.
func (x *Index[V]) MatchAbout(e *nostr.Event, subject nostr.PubKey, dst []V) []V {
	x.generation++
	first := x.generation
	dst = x.match(e, first, dst)
	x.generation++ // filters are tried again
	as := *e
	as.PubKey = subject
	return x.match(&as, first, dst)
}

// match is Match for entries that have not been matched since a generation.
func (x *Index[V]) match(e *nostr.Event, since uint64, dst []V) []V {
	for _, p := range x.lookup(e) {
		for i := range p.slots {
			f := p.slots[i].filter
			if f.entry.matched >= since || f.tried == x.generation {
				continue
			}
			f.tried = x.generation
			if f.proven || f.rest.Match(e) {
				f.entry.matched = x.generation
				dst = append(dst, f.entry.value)
			}
		}
	}
	return dst
}

// lookup returns the postings that the event's values lead to; valid until the next call.
func (x *Index[V]) lookup(e *nostr.Event) []*posting[V] {
	x.hits = x.hits[:0]
	kind := int32(e.Kind)
	if x.dims[dimID] > 0 {
		x.hit(x.postings[key{dim: dimID, kind: anyKind, value: string(e.ID[:])}])
	}
	if x.dims[dimTag] > 0 {
		for _, t := range e.Tags {
			if len(t) < 2 || len(t[0]) != 1 || x.tags[t[0][0]] == 0 {
				continue
			}
			x.hit(x.postings[key{dim: dimTag, tag: t[0][0], kind: kind, value: t[1]}])
			x.hit(x.postings[key{dim: dimTag, tag: t[0][0], kind: anyKind, value: t[1]}])
		}
	}
	if x.dims[dimAuthor] > 0 {
		x.hit(x.postings[key{dim: dimAuthor, kind: kind, value: string(e.PubKey[:])}])
		x.hit(x.postings[key{dim: dimAuthor, kind: anyKind, value: string(e.PubKey[:])}])
	}
	if x.dims[dimKind] > 0 {
		x.hit(x.postings[key{dim: dimKind, kind: kind}])
	}
	if x.dims[dimAll] > 0 {
		x.hit(x.postings[key{dim: dimAll, kind: anyKind}])
	}
	return x.hits
}

func (x *Index[V]) hit(p *posting[V]) {
	if p != nil {
		x.hits = append(x.hits, p)
	}
}

// posting returns the posting of k, a new one if there is none.
func (x *Index[V]) posting(k key) *posting[V] {
	p := x.postings[k]
	if p == nil {
		p = &posting[V]{key: k}
		x.postings[k] = p
		x.dims[k.dim]++
		x.tags[k.tag]++
	}
	return p
}

// drop takes one filter out of one posting; the last slot moves into the hole.
func (x *Index[V]) drop(r ref[V]) {
	p := r.posting
	last := len(p.slots) - 1
	moved := p.slots[last]
	p.slots[r.at] = moved
	moved.filter.refs[moved.ref].at = r.at
	p.slots[last] = slot[V]{}
	p.slots = p.slots[:last]
	if last == 0 {
		delete(x.postings, p.key)
		x.dims[p.key.dim]--
		x.tags[p.key.tag]--
	}
}
