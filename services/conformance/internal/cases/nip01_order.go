package cases

import (
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/model"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

var ordering = []suite.Case{
	{ID: "order/newest-first", Title: "stored events come newest first", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(20))
		// Published in another order than they were made.
		t.Rand().Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		alice.Accept(list...)
		t.Same("newest first", newestFirst(list...), alice.Query(by(alice)))
	}},
	{ID: "order/ties-by-id", Title: "of events of one second the lowest id comes first", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := ties(alice, t.Past(3), 8)
		alice.Accept(list...)
		t.Same("newest first, then the lowest id", newestFirst(list...), alice.Query(by(alice)))
	}},
	{ID: "order/limit", Title: "limit gives the newest, newest first", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(20))
		alice.Accept(list...)
		for _, limit := range []int{1, 2, 7, 19, 20, 21} {
			f := by(alice)
			f.Limit = new(limit)
			t.Same("the newest", newestFirst(list...)[:min(limit, 20)], alice.Query(f))
		}
	}},
	{ID: "order/limit-in-ties", Title: "limit takes of events of one second those with the lowest ids", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := ties(alice, t.Past(2), 8)
		alice.Accept(list...)
		for limit := 1; limit <= 16; limit += 3 {
			f := by(alice)
			f.Limit = new(limit)
			t.Same("the first of all", newestFirst(list...)[:limit], alice.Query(f))
		}
	}},
	{ID: "order/limit-by-tag", Title: "limit gives the newest of a tag", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		topic := tag("t", "topic-"+alice.Hex)
		at := t.Past(10)
		mine, his := notes(alice, at, topic), notes(bob, at, topic)
		alice.Accept(mine...)
		bob.Accept(his...)
		f := tagged("t", topic.Value())
		f.Limit = new(7)
		t.Same("the newest", newestFirst(slices.Concat(mine, his)...)[:7], alice.Query(f))
	}},
	{ID: "order/limit-per-filter", Title: "each filter has a limit of its own", Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		mine, his := notes(alice, t.Past(6)), notes(bob, t.Past(6))
		alice.Accept(mine...)
		bob.Accept(his...)
		two, three := by(alice), by(bob)
		two.Limit, three.Limit = new(2), new(3)
		want := slices.Concat(newestFirst(mine...)[:2], newestFirst(his...)[:3])
		t.SameSet("the newest of each filter", want, alice.Query(two, three))
	}},
	{ID: "order/limit-zero", Title: "limit 0 gives EOSE at once, and what comes live", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		before, after := alice.Note("before"), alice.Note("after")
		witness := alice.Open(by(alice))
		alice.Accept(before)
		witness.Expect(before)
		f := by(alice)
		f.Limit = new(0)
		sub := alice.Open(f)
		t.Same("nothing stored", nil, sub.Stored)
		alice.Accept(after)
		sub.Expect(after)
	}},
	{ID: "order/since-inclusive", Title: "since includes its second", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(3))
		alice.Accept(list...)
		f := by(alice)
		f.Since = new(list[1].CreatedAt)
		t.Same("the event of that second and the later one", newestFirst(list[1:]...), alice.Query(f))
	}},
	{ID: "order/until-inclusive", Title: "until includes its second", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(3))
		alice.Accept(list...)
		f := by(alice)
		f.Until = new(list[1].CreatedAt)
		t.Same("the event of that second and the earlier one", newestFirst(list[:2]...), alice.Query(f))
	}},
	{ID: "order/since-and-until", Title: "since and until together are a window with both ends", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(5))
		alice.Accept(list...)
		f := by(alice)
		f.Since, f.Until = new(list[1].CreatedAt), new(list[3].CreatedAt)
		t.Same("what is between", newestFirst(list[1:4]...), alice.Query(f))
		f.Since, f.Until = new(list[2].CreatedAt), new(list[2].CreatedAt)
		t.Same("one second", list[2:3], alice.Query(f))
	}},
	{ID: "order/since-after-until", Title: "a window that ends before it begins holds nothing", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(3))
		alice.Accept(list...)
		f := by(alice)
		f.Since, f.Until = new(list[2].CreatedAt), new(list[0].CreatedAt)
		sub, end := alice.Request(f)
		closedOrNone(t, sub, end)
	}},
	{ID: "order/paging", Title: "paging with until and limit finds every event, also where many have one second", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := ties(alice, t.Past(4), 6)
		alice.Accept(list...)
		// A page must be larger than the largest tie, or no client could get on.
		page(t, alice, list, 9)
	}},
	{ID: "order/paging-pages-of-two", Title: "paging goes on by the last event's second", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(11))
		alice.Accept(list...)
		page(t, alice, list, 2)
	}},
}

// ties makes n notes at each second.
func ties(u *suite.User, at []int64, n int) []*nostr.Event {
	var list []*nostr.Event
	for i := range n {
		list = append(list, notes(u, at, tag("t", string(rune('a'+i))))...)
	}
	return list
}

// page reads the author's events page by page, each from the second of the last event of the page before,
// and fails the case unless all come, in order.
func page(t *suite.T, u *suite.User, all []*nostr.Event, size int) {
	var read []*nostr.Event
	f := by(u)
	f.Limit = new(size)
	for {
		got := u.Query(f)
		t.Same("newest first", newestFirst(got...), got)
		t.Check(len(got) <= size, "no more than the limit", "%d events for a limit of %d", len(got), size)
		before := len(read)
		for _, e := range got {
			if slices.ContainsFunc(read, func(r *nostr.Event) bool { return r.ID == e.ID }) {
				continue // of the second at which the last page ended
			}
			if len(read) > 0 {
				last := read[len(read)-1]
				t.Check(model.Order(last, e) < 0, "pages go on where the last one ended", "%s after %s", e.ID, last.ID)
			}
			read = append(read, e)
		}
		if len(read) == before {
			break
		}
		f.Until = new(read[len(read)-1].CreatedAt)
	}
	t.Same("all pages together", newestFirst(all...), read)
}
