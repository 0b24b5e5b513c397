package cases

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

const kindEphemeralGiftWrap nostr.Kind = 21_059

// wrap signs a gift wrap for a receiver with a key that is used once. What is inside is no relay's business.
func wrap(t *suite.T, kind nostr.Kind, to *suite.User) *nostr.Event {
	e := &nostr.Event{CreatedAt: t.Now(), Kind: kind, Content: "sealed", Tags: nostr.Tags{{"p", to.Hex}}}
	err := e.Sign(t.Key())
	t.Check(err == nil, "a signature", "%v", err)
	return e
}

func wrapsFor(u *suite.User) filter {
	return filter{Kinds: []nostr.Kind{nostr.KindGiftWrap}, Tags: map[string][]string{"p": {u.Hex}}}
}

var nip59 = []suite.Case{
	{ID: "throw-away-key", Title: "a gift wrap is accepted although its key never authenticated", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		alice.Accept(wrap(t, nostr.KindGiftWrap, bob))
	}},
	{ID: "receiver", Title: "the receiver gets a gift wrap, live and stored", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		sub := bob.Open(wrapsFor(bob))
		e := wrap(t, nostr.KindGiftWrap, bob)
		alice.Accept(e)
		sub.Expect(e)
		unchanged(t, e, bob.Query(wrapsFor(bob)))
	}},
	{ID: "nobody-else", Title: "nobody but the receiver gets a gift wrap, by whatever filter, live or stored", Run: func(t *suite.T) {
		hidden(t, func(_, bob *suite.User, _ string) *nostr.Event { return wrap(t, nostr.KindGiftWrap, bob) })
	}},
	{ID: "nobody-counts", Title: "nobody but the receiver can count gift wraps (NIP-45)", Needs: []int{45}, Run: func(t *suite.T) {
		alice, bob, eve := t.User(), t.User(), t.User()
		alice.Accept(wrap(t, nostr.KindGiftWrap, bob))
		f := eve.Count(wrapsFor(bob))
		t.Check(f.Label == client.LabelClosed || *f.Count.Count == 0, "CLOSED, or 0", "%s", f)
		counted(t, 1, bob.Count(wrapsFor(bob)))
	}},
	{ID: "deleted-by-receiver", Title: "the receiver can delete a gift wrap (NIP-09)", Needs: []int{9}, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		e := wrap(t, nostr.KindGiftWrap, bob)
		alice.Accept(e)
		bob.Accept(deletion(bob, t.Now(), refID(e)))
		t.Same("nothing", nil, bob.Query(wrapsFor(bob)))
	}},
	{ID: "not-deleted-by-others", Title: "nobody else can delete a gift wrap", Required: true, Needs: []int{9}, Run: func(t *suite.T) {
		alice, bob, eve := t.User(), t.User(), t.User()
		e := wrap(t, nostr.KindGiftWrap, bob)
		alice.Accept(e)
		eve.Offer(deletion(eve, t.Now(), refID(e)))
		alice.Offer(deletion(alice, t.Now(), refID(e)))
		t.Same("the gift wrap", []*nostr.Event{e}, bob.Query(wrapsFor(bob)))
	}},
	{ID: "ephemeral", Title: "a gift wrap of kind 21059 comes live and is not stored", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		f := filter{Kinds: []nostr.Kind{kindEphemeralGiftWrap}, Tags: map[string][]string{"p": {bob.Hex}}}
		sub := bob.Open(f)
		e := wrap(t, kindEphemeralGiftWrap, bob)
		alice.Accept(e)
		sub.Expect(e)
		t.Same("nothing stored", nil, bob.Query(f))
	}},
}
