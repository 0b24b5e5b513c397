package cases

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// deletion signs a request to delete what the tags name.
func deletion(u *suite.User, at int64, tags ...nostr.Tag) *nostr.Event {
	return u.Event(at, nostr.KindDeletion, "deleted", tags...)
}

func refID(e *nostr.Event) nostr.Tag      { return tag("e", e.ID.String()) }
func refAddress(e *nostr.Event) nostr.Tag { return tag("a", address(e)) }

// without returns the stored events of an author that are no deletions.
func without(u *suite.User, author *suite.User) []*nostr.Event {
	var rest []*nostr.Event
	for _, e := range u.Query(by(author)) {
		if e.Kind != nostr.KindDeletion {
			rest = append(rest, e)
		}
	}
	return rest
}

var nip09 = []suite.Case{
	{ID: "by-id", Title: "an e tag deletes the author's event", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(3))
		alice.Accept(list...)
		alice.Accept(deletion(alice, t.Now(), refID(list[0]), refID(list[2])))
		t.Same("the other event", list[1:2], without(alice, alice))
		t.Check(!alice.Has(list[0]) && !alice.Has(list[2]), "nothing by id", "a deleted event")
	}},
	{ID: "by-address", Title: "an a tag deletes the author's addressable event", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(3)
		a, b := alice.Event(at[0], kindAddressable, "", tag("d", "a:b")), alice.Event(at[1], kindAddressable, "", tag("d", "a"))
		alice.Accept(a, b)
		alice.Accept(deletion(alice, at[2], refAddress(a)))
		t.Same("the other address", []*nostr.Event{b}, without(alice, alice))
	}},
	{ID: "by-address-replaceable", Title: "an a tag deletes the author's replaceable event", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(3)
		a, b := alice.Event(at[0], kindReplaceable, ""), alice.Event(at[1], 10_003, "")
		alice.Accept(a, b)
		alice.Accept(deletion(alice, at[2], refAddress(a)))
		t.Same("the other kind", []*nostr.Event{b}, without(alice, alice))
	}},
	{ID: "addressable-by-id", Title: "an e tag deletes an addressable event, too", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Event(t.Now(), kindAddressable, "", tag("d", "a"))
		alice.Accept(e)
		alice.Accept(deletion(alice, t.Now(), refID(e)))
		t.Same("nothing", nil, without(alice, alice))
	}},
	{ID: "only-named", Title: "a deletion deletes what it names and nothing else", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(8)
		list := append(notes(alice, at[:6]), alice.Event(at[6], kindAddressable, "", tag("d", "a")))
		alice.Accept(list...)
		// With only a tags, some relays made an empty list of ids of it, which matched everything.
		alice.Accept(deletion(alice, at[7], refAddress(list[6])))
		t.SameSet("all but the addressable event", list[:6], without(alice, alice))
	}},
	{ID: "only-older", Title: "an a tag deletes only what is not newer than the deletion", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(2)
		e := alice.Event(at[1], kindAddressable, "", tag("d", "a"))
		alice.Accept(e)
		alice.Offer(deletion(alice, at[0], refAddress(e)))
		t.Same("the newer event", []*nostr.Event{e}, without(alice, alice))
	}},
	{ID: "same-second", Title: "an a tag deletes what is as old as the deletion", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Event(t.Now(), kindAddressable, "", tag("d", "a"))
		alice.Accept(e)
		alice.Accept(deletion(alice, e.CreatedAt, refAddress(e)))
		t.Same("nothing", nil, without(alice, alice))
	}},
	{ID: "not-others-by-id", Title: "an e tag does not delete another author's event", Required: true, Run: func(t *suite.T) {
		alice, mallory := t.User(), t.User()
		e := alice.Note("mine")
		alice.Accept(e)
		mallory.Offer(deletion(mallory, t.Now(), refID(e)))
		t.Same("the event", []*nostr.Event{e}, mallory.Query(only(e)))
	}},
	{ID: "not-others-by-address", Title: "an a tag does not delete another author's event", Required: true, Run: func(t *suite.T) {
		alice, mallory := t.User(), t.User()
		at := t.Past(2)
		e := alice.Event(at[0], kindAddressable, "", tag("d", "a"))
		alice.Accept(e)
		mallory.Offer(deletion(mallory, at[1], refAddress(e)))
		t.Same("the event", []*nostr.Event{e}, mallory.Query(only(e)))
	}},
	{ID: "own-address-untouched", Title: "an a tag with another author's key does not delete the own address", Required: true, Run: func(t *suite.T) {
		alice, mallory := t.User(), t.User()
		at := t.Past(2)
		mine, his := alice.Event(at[0], kindAddressable, "", tag("d", "a")), mallory.Event(at[0], kindAddressable, "", tag("d", "a"))
		alice.Accept(mine)
		mallory.Accept(his)
		mallory.Offer(deletion(mallory, at[1], refAddress(mine)))
		t.SameSet("both authors' events", []*nostr.Event{mine, his}, alice.Query(filter{Authors: []string{alice.Hex, mallory.Hex}, Kinds: []nostr.Kind{kindAddressable}}))
	}},
	{ID: "is-served", Title: "the deletion itself is stored and served", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		e := alice.Note("gone")
		alice.Accept(e)
		d := deletion(alice, t.Now(), refID(e), tag("k", "1"))
		sub := bob.Open(filter{Kinds: []nostr.Kind{nostr.KindDeletion}, Authors: []string{alice.Hex}})
		alice.Accept(d)
		sub.Expect(d)
		unchanged(t, d, bob.Query(filter{Kinds: []nostr.Kind{nostr.KindDeletion}, Tags: map[string][]string{"e": {e.ID.String()}}}))
	}},
	{ID: "resubmission", Title: "a deleted event that is sent again stays deleted", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		e := alice.Note("gone")
		alice.Accept(e)
		alice.Accept(deletion(alice, t.Now(), refID(e)))
		sub := bob.Open(filter{Kinds: []nostr.Kind{nostr.KindText}, Authors: []string{alice.Hex}})
		alice.Offer(e)
		t.Check(!alice.Has(e), "nothing", "the deleted event")
		sub.Silent("nothing live for a deleted event")
	}},
	{ID: "resubmission-refused", Title: "a deleted event that is sent again is answered OK false", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("gone")
		alice.Accept(e)
		alice.Accept(deletion(alice, t.Now(), refID(e)))
		alice.Refuse(e)
	}},
	{ID: "resubmission-older", Title: "an older version of a deleted address that is sent later stays deleted", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(3)
		older, e := alice.Event(at[0], kindAddressable, "", tag("d", "a")), alice.Event(at[1], kindAddressable, "", tag("d", "a"))
		alice.Accept(e)
		alice.Accept(deletion(alice, at[2], refAddress(e)))
		alice.Offer(older)
		alice.Offer(e)
		t.Same("nothing", nil, without(alice, alice))
	}},
	{ID: "resubmission-newer", Title: "a version that is newer than the deletion is accepted", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(3)
		e, newer := alice.Event(at[0], kindAddressable, "", tag("d", "a")), alice.Event(at[2], kindAddressable, "", tag("d", "a"))
		alice.Accept(e)
		alice.Accept(deletion(alice, at[1], refAddress(e)))
		alice.Accept(newer)
		t.Same("the newer version", []*nostr.Event{newer}, without(alice, alice))
	}},
	{ID: "before-its-target", Title: "a deletion that comes before its target holds", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("late")
		alice.Accept(deletion(alice, t.Now(), refID(e)))
		alice.Offer(e)
		t.Check(!alice.Has(e), "nothing", "the deleted event")
	}},
	{ID: "of-a-deletion", Title: "the deletion of a deletion has no effect", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("gone")
		alice.Accept(e)
		d := deletion(alice, t.Now(), refID(e))
		alice.Accept(d)
		alice.Offer(deletion(alice, t.Now(), refID(d)))
		t.Same("the first deletion", []*nostr.Event{d}, alice.Query(only(d)))
		alice.Offer(e)
		t.Check(!alice.Has(e), "nothing", "the deleted event")
	}},
	{ID: "of-many", Title: "one deletion deletes events by id and by address together", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(12)
		list := notes(alice, at[:10])
		a := alice.Event(at[10], kindAddressable, "", tag("d", "a"))
		alice.Accept(append(list, a)...)
		refs := []nostr.Tag{refAddress(a)}
		for _, e := range list[:9] {
			refs = append(refs, refID(e))
		}
		alice.Accept(deletion(alice, at[11], refs...))
		t.Same("the event that was not named", list[9:], without(alice, alice))
	}},
}
