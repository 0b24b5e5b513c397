package cases

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/model"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// The differential cases publish random events, ask random filters and compare with package model. All
// values come from small pools, so that events collide and filters match often.
var differential = []suite.Case{
	{ID: "differential/stored", Title: "random filters over random events: the stored answer is what a naive evaluation gives, in order", Required: true, Run: func(t *suite.T) {
		w := newWorld(t, 3)
		w.publish(t, 150, worldKinds)
		for range t.Options().Fuzz {
			w.compare(t, w.filter(true))
		}
	}},
	{ID: "differential/several-filters", Title: "several random filters: the stored answer is what matches any of them", Required: true, Run: func(t *suite.T) {
		w := newWorld(t, 3)
		w.publish(t, 100, worldKinds)
		for range t.Options().Fuzz {
			w.compareAny(t, []filter{w.filter(false), w.filter(false), w.filter(false)})
		}
	}},
	{ID: "differential/deletions", Title: "random filters over random events and deletions (NIP-09)", Required: true, Needs: []int{9}, Run: func(t *suite.T) {
		w := newWorld(t, 2)
		w.publish(t, 100, worldKinds)
		w.delete(t, 20)
		w.publish(t, 30, worldKinds)
		for range t.Options().Fuzz {
			w.compare(t, w.filter(true))
		}
	}},
	{ID: "differential/live", Title: "random filters: what came live is what is stored afterwards", Required: true, Run: liveIsStored},
	{ID: "differential/count", Title: "random filters: COUNT is the number of stored events (NIP-45)", Required: true, Needs: []int{45}, Run: func(t *suite.T) {
		w := newWorld(t, 2)
		w.publish(t, 100, worldKinds)
		for range t.Options().Fuzz {
			f := w.filter(false)
			want := len(w.store.Answer(&f, 1000))
			got := w.users[0].Count(f)
			t.Check(got.Label == client.LabelCount && *got.Count.Count == int64(want), fmt.Sprintf("%d for %s (%s)", want, f, w), "%s", got)
		}
	}},
}

// worldKinds are of all classes; ephemeral ones are not stored.
var worldKinds = []nostr.Kind{1, 1, 1, 7, 7, 1111, kindReplaceable, 10_003, kindAddressable, 30_024, kindEphemeral}

// world is a set of events that nobody else touches, and its authors. Every filter asks for its authors or
// for its mark, so that nothing else can match.
type world struct {
	rand  *rand.Rand
	seed  uint64
	users []*suite.User
	mark  string // an r tag of all events
	at    []int64
	store model.Store
	kept  []*nostr.Event // what was published and is not ephemeral
	made  int
	most  int // how many events the relay returns without being asked for a number
}

func newWorld(t *suite.T, authors int) *world {
	w := &world{rand: t.Rand(), seed: t.Options().Seed, users: t.Users(authors), at: t.Past(12)}
	w.mark = "world-" + w.users[0].Hex
	w.most = 1000
	for _, limit := range []*int64{t.Relay().Limits().DefaultLimit, t.Relay().Limits().MaxLimit} {
		if limit != nil {
			w.most = min(w.most, int(*limit))
		}
	}
	return w
}

// String says how to see the same events and filters again.
func (w *world) String() string { return fmt.Sprintf("--seed %d", w.seed) }

func pick[T any](w *world, from ...T) T { return from[w.rand.IntN(len(from))] }

// some returns one to most values of a pool.
func some[T any](w *world, most int, from ...T) []T {
	values := make([]T, 1+w.rand.IntN(most))
	for i := range values {
		values[i] = pick(w, from...)
	}
	return values
}

func (w *world) often(percent int) bool { return w.rand.IntN(100) < percent }

var words = []string{"red", "green", "blue", "", "a:b", "grün", "red green", "\"\\/", "0"}

// tags returns the mark and up to four random tags, of which some lack a value or have more than one.
func (w *world) tags() nostr.Tags {
	tags := nostr.Tags{{"r", w.mark}}
	for range w.rand.IntN(5) {
		name := pick(w, "t", "t", "e", "p", "d", "T", "long")
		switch {
		case w.often(5):
			tags = append(tags, nostr.Tag{name})
		case w.often(15):
			tags = append(tags, nostr.Tag{name, pick(w, words...), pick(w, words...)})
		default:
			tags = append(tags, nostr.Tag{name, w.value(name)})
		}
	}
	w.rand.Shuffle(len(tags), func(i, j int) { tags[i], tags[j] = tags[j], tags[i] })
	return tags
}

// value returns a value for a tag of this name: e and p refer to ids and keys.
func (w *world) value(name string) string {
	switch {
	case name == "p":
		return pick(w, w.users...).Hex
	case name == "e" && len(w.kept) > 0:
		return pick(w, w.kept[:min(len(w.kept), 10)]...).ID.String()
	}
	return pick(w, words...)
}

// publish publishes n random events.
func (w *world) publish(t *suite.T, n int, kinds []nostr.Kind) {
	batches := make([][]*nostr.Event, len(w.users))
	for range n {
		w.made++
		u := w.rand.IntN(len(w.users))
		// The content makes every event another one, whatever is drawn.
		e := w.users[u].Event(pick(w, w.at...), pick(w, kinds...), fmt.Sprintf("event %d", w.made), w.tags()...)
		batches[u] = append(batches[u], e)
		if !e.Kind.IsEphemeral() {
			w.kept = append(w.kept, e)
		}
	}
	for u, batch := range batches {
		w.offer(t, w.users[u], batch)
	}
}

// offer publishes events, which the relay accepts, except that it may refuse to take what was replaced or
// deleted before it came.
func (w *world) offer(t *suite.T, u *suite.User, events []*nostr.Event) {
	refused := u.OfferAll(events...)
	w.store.Add(events...)
	remaining := w.store.Remaining()
	for i, v := range refused {
		t.Check(!slices.Contains(remaining, events[i]), "OK true for a random event ("+w.String()+")", "%s for %s", v, events[i].AppendJSON(nil))
	}
}

// delete publishes n deletions: of regular events by id, of others by address.
func (w *world) delete(t *suite.T, n int) {
	for range n {
		target := pick(w, w.kept...)
		u := w.users[slices.IndexFunc(w.users, func(u *suite.User) bool { return u.Pub == target.PubKey })]
		ref := tag("e", target.ID.String())
		if !target.Kind.IsRegular() {
			// By id the version before could come back, or not: relays differ.
			ref = tag("a", address(target))
		}
		w.made++
		e := u.Event(pick(w, w.at...), nostr.KindDeletion, fmt.Sprintf("event %d", w.made), ref, tag("r", w.mark))
		w.offer(t, u, []*nostr.Event{e})
	}
}

// filter returns a random filter over the world.
func (w *world) filter(limited bool) filter {
	var f filter
	if w.often(60) {
		for _, u := range some(w, 2, w.users...) {
			f.Authors = append(f.Authors, u.Hex)
		}
	}
	if w.often(15) {
		for _, e := range some(w, 4, w.kept...) {
			f.IDs = append(f.IDs, e.ID.String())
		}
	}
	if w.often(50) {
		f.Kinds = some(w, 3, worldKinds...)
	}
	f.Tags = map[string][]string{}
	for range w.rand.IntN(3) {
		name := pick(w, "t", "e", "p", "d", "T")
		f.Tags[name] = nil
		for range 1 + w.rand.IntN(3) {
			f.Tags[name] = append(f.Tags[name], w.value(name))
		}
	}
	if f.Authors == nil && f.IDs == nil {
		f.Tags["r"] = []string{w.mark}
	}
	if w.often(25) {
		f.Since = new(pick(w, w.at...))
	}
	if w.often(25) {
		f.Until = new(pick(w, w.at...))
	}
	if limited && w.often(40) {
		f.Limit = new(w.rand.IntN(30))
	}
	return f
}

// compare asks for one filter and wants exactly what the model says, in order.
func (w *world) compare(t *suite.T, f filter) {
	want := w.store.Answer(&f, w.most)
	t.Same(fmt.Sprintf("for %s (%s)", f, w), want, w.users[0].Query(f))
}

// compareAny asks for several filters. NIP-01 says neither in which order the answers to them come nor how
// often an event that matches two of them.
func (w *world) compareAny(t *suite.T, filters []filter) {
	var want []*nostr.Event
	for _, e := range w.store.Remaining() {
		if model.MatchAny(filters, e) {
			want = append(want, e)
		}
	}
	got := once(w.users[0].Query(asAny(filters)...))
	t.Same(fmt.Sprintf("for %v (%s)", filters, w), want, got)
}

// liveIsStored opens subscriptions first, publishes regular events, and compares what came live with the
// stored answer to the same filters, and both with the model.
func liveIsStored(t *suite.T) {
	w := newWorld(t, 2)
	w.publish(t, 10, []nostr.Kind{1, 7}) // something to refer to
	reader := t.User()
	lists := make([][]filter, 16)
	subs := make([]*suite.Sub, len(lists))
	for i := range lists {
		lists[i] = []filter{w.filter(false), w.filter(false)}[:1+i%2]
		subs[i] = reader.Open(asAny(lists[i])...)
	}
	before := w.store.Remaining()
	w.publish(t, 100, []nostr.Kind{1, 1, 7, 1111})
	for i, list := range lists {
		var want []*nostr.Event
		for _, e := range w.store.Remaining() {
			if model.MatchAny(list, e) && !slices.Contains(before, e) {
				want = append(want, e)
			}
		}
		live := once(subs[i].Live(len(want)))
		t.SameSet(fmt.Sprintf("live for %v (%s)", list, w), want, live)
		stored := slices.DeleteFunc(once(reader.Query(asAny(list)...)), func(e *nostr.Event) bool {
			return slices.ContainsFunc(before, func(b *nostr.Event) bool { return b.ID == e.ID })
		})
		t.Same(fmt.Sprintf("stored for %v is what came live (%s)", list, w), newestFirst(live...), stored)
	}
}

func asAny(filters []filter) []any {
	list := make([]any, len(filters))
	for i := range filters {
		list[i] = filters[i]
	}
	return list
}

// once returns the events in order, without repetitions.
func once(events []*nostr.Event) []*nostr.Event {
	return slices.CompactFunc(newestFirst(events...), func(a, b *nostr.Event) bool { return a.ID == b.ID })
}
