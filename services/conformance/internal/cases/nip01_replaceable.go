package cases

import (
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// versioned is an address of which only the newest event counts.
type versioned struct {
	id   string
	kind nostr.Kind
	tags nostr.Tags
	// content must be an object where clients read one.
	content string
}

var versions = []versioned{
	{"metadata", nostr.KindMetadata, nil, "{}"},
	{"contacts", nostr.KindContacts, nil, ""},
	{"replaceable", kindReplaceable, nil, ""},
	{"addressable", kindAddressable, nostr.Tags{{"d", "one"}}, ""},
}

// at makes a version.
func (v *versioned) at(u *suite.User, second int64, more ...nostr.Tag) *nostr.Event {
	return u.Event(second, v.kind, v.content, append(v.tags[:len(v.tags):len(v.tags)], more...)...)
}

// find filters on the address.
func (v *versioned) find(u *suite.User) filter {
	f := filter{Kinds: []nostr.Kind{v.kind}, Authors: []string{u.Hex}}
	if v.kind.IsAddressable() {
		f.Tags = map[string][]string{"d": {v.tags[0].Value()}}
	}
	return f
}

// replaceable are the rules for each sort of replaceable event, and those of addresses.
func replaceable() []suite.Case {
	var list []suite.Case
	for _, v := range versions {
		add := func(id, title string, required bool, run func(t *suite.T)) {
			list = append(list, suite.Case{
				ID: "replaceable/" + v.id + "-" + id, Title: "kind " + kindText(v.kind) + ": " + title, Required: required, Run: run,
			})
		}
		add("found", "an event is accepted and found", true, func(t *suite.T) {
			alice := t.User()
			e := v.at(alice, t.Now())
			alice.Accept(e)
			unchanged(t, e, alice.Query(v.find(alice)))
		})
		add("newer", "a newer event takes the place of the older", true, func(t *suite.T) {
			alice := t.User()
			at := t.Past(3)
			for _, second := range at {
				e := v.at(alice, second)
				alice.Accept(e)
				t.Same("the newest version alone", []*nostr.Event{e}, alice.Query(v.find(alice)))
				t.Same("the newest version alone", []*nostr.Event{e}, alice.Query(by(alice)))
			}
		})
		add("older", "an older event does not take the place of the newer", true, func(t *suite.T) {
			alice := t.User()
			at := t.Past(3)
			newest := v.at(alice, at[2])
			alice.Accept(newest)
			for _, second := range at[:2] {
				alice.Offer(v.at(alice, second)) // the verdict is the relay's, the answer is not
				t.Same("the newest version alone", []*nostr.Event{newest}, alice.Query(v.find(alice)))
			}
		})
		add("older-gone", "the older event is not found by id any more", false, func(t *suite.T) {
			alice := t.User()
			at := t.Past(2)
			older, newer := v.at(alice, at[0]), v.at(alice, at[1])
			alice.Accept(older, newer)
			t.Check(!alice.Has(older), "nothing", "the older version")
		})
		add("tie", "of two events of one second the one with the lower id stays", true, func(t *suite.T) {
			for range 3 { // the first to come is the right one by chance, otherwise
				alice := t.User()
				now := t.Now()
				a, b := v.at(alice, now, tag("x", "a")), v.at(alice, now, tag("x", "b"))
				alice.Offer(a)
				alice.Offer(b)
				t.Same("the lower id", newestFirst(a, b)[:1], alice.Query(v.find(alice)))
			}
		})
		add("by-author", "events of two authors do not replace each other", true, func(t *suite.T) {
			alice, bob := t.User(), t.User()
			at := t.Past(2)
			mine, his := v.at(alice, at[0]), v.at(bob, at[1])
			alice.Accept(mine)
			bob.Accept(his)
			t.Same("alice's", []*nostr.Event{mine}, bob.Query(v.find(alice)))
			t.Same("bob's", []*nostr.Event{his}, bob.Query(v.find(bob)))
		})
		add("live", "a newer event is delivered live", true, func(t *suite.T) {
			alice, bob := t.User(), t.User()
			sub := bob.Open(v.find(alice))
			for _, second := range t.Past(3) {
				e := v.at(alice, second)
				alice.Accept(e)
				sub.Expect(e)
			}
		})
		add("older-not-live", "an older event is not delivered", false, func(t *suite.T) {
			alice, bob := t.User(), t.User()
			at := t.Past(2)
			alice.Accept(v.at(alice, at[1]))
			sub := bob.Open(v.find(alice))
			alice.Offer(v.at(alice, at[0]))
			sub.Silent("nothing for a version that is older than the stored one")
		})
	}
	return append(list, addresses...)
}

var addresses = []suite.Case{
	{ID: "replaceable/by-kind", Title: "events of two kinds do not replace each other", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(2)
		a, b := alice.Event(at[0], 10_002, ""), alice.Event(at[1], 10_003, "")
		alice.Accept(a, b)
		t.SameSet("both", []*nostr.Event{a, b}, alice.Query(by(alice)))
	}},
	{ID: "replaceable/by-d", Title: "addressable events with two d tags do not replace each other", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(3)
		a, b := alice.Event(at[0], kindAddressable, "", tag("d", "a")), alice.Event(at[1], kindAddressable, "", tag("d", "b"))
		a2 := alice.Event(at[2], kindAddressable, "", tag("d", "a"))
		alice.Accept(a, b, a2)
		t.SameSet("the newest of each", []*nostr.Event{a2, b}, alice.Query(by(alice)))
	}},
	{ID: "replaceable/no-d-is-empty-d", Title: "no d tag, an empty one and one without a value are the same address", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(3)
		list := []*nostr.Event{
			alice.Event(at[0], kindAddressable, ""), alice.Event(at[1], kindAddressable, "", tag("d", "")),
			alice.Event(at[2], kindAddressable, "", tag("d")),
		}
		for _, e := range list {
			alice.Accept(e)
			t.Same("the newest alone", []*nostr.Event{e}, alice.Query(by(alice)))
		}
	}},
	{ID: "replaceable/first-d", Title: "of several d tags the first is the address", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(2)
		a := alice.Event(at[0], kindAddressable, "", tag("d", "a"), tag("d", "b"))
		b := alice.Event(at[1], kindAddressable, "", tag("d", "b"))
		alice.Accept(a, b)
		t.SameSet("both", []*nostr.Event{a, b}, alice.Query(by(alice)))
	}},
	{ID: "replaceable/long-d", Title: "long d tags that differ at their end are two addresses", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(2)
		long := strings.Repeat("0123456789", 60)
		a, b := alice.Event(at[0], kindAddressable, "", tag("d", long+"a")), alice.Event(at[1], kindAddressable, "", tag("d", long+"b"))
		alice.Accept(a, b)
		t.SameSet("both", []*nostr.Event{a, b}, alice.Query(by(alice)))
	}},
	{ID: "replaceable/regular-stays", Title: "regular events do not replace each other", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(2)
		var list []*nostr.Event
		for _, kind := range []nostr.Kind{1, 7, 1111, 9999, 40_000} {
			list = append(list, alice.Event(at[0], kind, "", tag("d", "x")), alice.Event(at[1], kind, "", tag("d", "x")))
		}
		alice.Accept(list...)
		t.SameSet("all of them", list, alice.Query(by(alice)))
	}},
}
