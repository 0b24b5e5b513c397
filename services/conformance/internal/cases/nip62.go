package cases

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

const kindVanish nostr.Kind = 62

// vanish signs a request to vanish from a relay.
func vanish(u *suite.User, at int64, relay string) *nostr.Event {
	return u.Event(at, kindVanish, "goodbye", tag("relay", relay))
}

// remains returns what the relay still serves of an author, requests to vanish aside.
func remains(reader, author *suite.User) []*nostr.Event {
	var rest []*nostr.Event
	for _, e := range reader.Query(by(author)) {
		if e.Kind != kindVanish {
			rest = append(rest, e)
		}
	}
	return rest
}

var nip62 = []suite.Case{
	{ID: "vanish", Title: "after a request to vanish nothing of the author is served, deletions included", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		at := t.Past(6)
		list := append(notes(alice, at[:3]), alice.Event(at[3], kindReplaceable, ""), alice.Event(at[4], kindAddressable, "", tag("d", "a")))
		alice.Accept(list...)
		alice.Accept(deletion(alice, at[4], refID(list[0])))
		alice.Accept(vanish(alice, at[5], t.Relay().URL))
		t.Eventually("nothing", func() (string, bool) {
			rest := remains(bob, alice)
			return suite.List(rest), len(rest) == 0
		})
		t.Check(!bob.Has(list[1]), "nothing by id", "an event of who vanished")
	}},
	{ID: "everywhere", Title: "a request to vanish from ALL_RELAYS holds here", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		at := t.Past(2)
		alice.Accept(alice.Event(at[0], nostr.KindText, "gone"))
		alice.Accept(vanish(alice, at[1], "ALL_RELAYS"))
		t.Eventually("nothing", func() (string, bool) {
			rest := remains(bob, alice)
			return suite.List(rest), len(rest) == 0
		})
	}},
	{ID: "another-relay", Title: "a request to vanish from another relay has no effect", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		at := t.Past(2)
		e := alice.Event(at[0], nostr.KindText, "stays")
		alice.Accept(e)
		alice.Offer(vanish(alice, at[1], "wss://another-relay.example"))
		t.Same("the event", []*nostr.Event{e}, remains(bob, alice))
	}},
	{ID: "others-stay", Title: "a request to vanish touches no other author", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		at := t.Past(2)
		e := bob.Event(at[0], nostr.KindText, "stays", tag("p", alice.Hex))
		bob.Accept(e)
		alice.Accept(vanish(alice, at[1], t.Relay().URL))
		t.Same("the event", []*nostr.Event{e}, remains(bob, bob))
	}},
	{ID: "no-return", Title: "what vanished cannot be published again", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		at := t.Past(3)
		e, late := alice.Event(at[0], nostr.KindText, "gone"), alice.Event(at[1], nostr.KindText, "never here before")
		alice.Accept(e)
		alice.Accept(vanish(alice, at[2], t.Relay().URL))
		alice.Offer(e)
		alice.Offer(late)
		t.Same("nothing", nil, remains(bob, alice))
	}},
	{ID: "newer-stay", Title: "what the author publishes after the request is kept", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		at := t.Past(3)
		alice.Accept(alice.Event(at[0], nostr.KindText, "gone"))
		alice.Accept(vanish(alice, at[1], t.Relay().URL))
		e := alice.Event(at[2], nostr.KindText, "a new beginning")
		alice.Accept(e)
		t.Eventually("the newer event alone", func() (string, bool) {
			rest := remains(bob, alice)
			return suite.List(rest), len(rest) == 1 && rest[0].ID == e.ID
		})
	}},
	{ID: "gift-wraps", Title: "gift wraps for the author vanish, too", Needs: []int{59}, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		alice.Accept(wrap(t, nostr.KindGiftWrap, bob))
		bob.Accept(vanish(bob, t.Now(), t.Relay().URL))
		t.Eventually("nothing", func() (string, bool) {
			rest := bob.Query(wrapsFor(bob))
			return suite.List(rest), len(rest) == 0
		})
	}},
	{ID: "not-deletable", Title: "the deletion of a request to vanish has no effect (NIP-09)", Required: true, Needs: []int{9}, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		at := t.Past(3)
		e, v := alice.Event(at[0], nostr.KindText, "gone"), vanish(alice, at[1], t.Relay().URL)
		alice.Accept(e)
		alice.Accept(v)
		alice.Offer(deletion(alice, at[2], refID(v)))
		alice.Offer(e)
		t.Check(!bob.Has(e), "nothing", "the event that vanished")
	}},
	{ID: "no-relay", Title: "a request to vanish that names no relay is refused, or has no effect", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		at := t.Past(2)
		e := alice.Event(at[0], nostr.KindText, "stays")
		alice.Accept(e)
		alice.Offer(alice.Event(at[1], kindVanish, ""))
		t.Same("the event", []*nostr.Event{e}, remains(bob, alice))
	}},
}
