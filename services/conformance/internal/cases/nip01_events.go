package cases

import (
	"strconv"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// Kinds that mean nothing to a relay but their class.
const (
	kindReplaceable nostr.Kind = 10_002
	kindEphemeral   nostr.Kind = 20_901 // one without a meaning: some relays answer for who is online, 20001
	kindAddressable nostr.Kind = 30_023
)

func kindText(k nostr.Kind) string { return strconv.Itoa(int(k)) }

var events = []suite.Case{
	{ID: "events/accepted", Title: "an event is answered OK true and is stored as it was signed", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("hello", tag("t", "conformance"), tag("x", "1", "2"))
		alice.Accept(e)
		unchanged(t, e, alice.Query(only(e)))
	}},
	{ID: "events/without-tags", Title: "an event without tags is accepted", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("no tags")
		e.Tags = nostr.Tags{}
		alice.Accept(e)
		unchanged(t, e, alice.Query(only(e)))
	}},
	{ID: "events/duplicate", Title: "an event that is sent again is answered OK true and stored once", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("once")
		alice.Accept(e)
		alice.Accept(e)
		alice.Again().Accept(e)
		t.Same("the event, once", []*nostr.Event{e}, alice.Query(by(alice)))
	}},
	{ID: "events/duplicate-prefix", Title: "the OK to a repeated event says duplicate:", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("once")
		alice.Accept(e)
		v := alice.Offer(e)
		t.Check(v.OK && len(v.Message) > 10 && v.Message[:10] == "duplicate:", `OK true "duplicate: …"`, "%s", v)
	}},
	{ID: "events/duplicate-live", Title: "an event that is sent again is not delivered again", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		e := alice.Note("once")
		sub := bob.Open(by(alice))
		alice.Accept(e)
		sub.Expect(e)
		alice.Accept(e)
		sub.Silent("nothing more for an event that came before")
	}},
	{ID: "events/bad-signature", Title: "an event with a wrong signature is refused and not stored", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("forged")
		e.Sig[40] ^= 1
		alice.Refuse(e)
		t.Check(!alice.Has(e), "nothing stored", "the event with the wrong signature")
	}},
	{ID: "events/other-signature", Title: "an event signed by another key is refused and not stored", Required: true, Run: func(t *suite.T) {
		alice, mallory := t.User(), t.User()
		e, other := alice.Note("mine"), mallory.Note("mine")
		other.PubKey = alice.Pub
		other.ID = other.ComputeID()
		alice.Refuse(other)
		alice.Accept(e)
		t.Same("only what its author signed", []*nostr.Event{e}, alice.Query(by(alice)))
	}},
	{ID: "events/bad-id", Title: "an event whose id is not its hash is refused and not stored", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("this")
		e.Content = "that"
		alice.Refuse(e)
		t.Check(len(alice.Query(by(alice))) == 0, "nothing stored", "the event with the wrong id")
	}},
	{ID: "events/bad-id-live", Title: "a refused event is not delivered", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		sub := bob.Open(by(alice))
		e, good := alice.Note("forged"), alice.Note("good")
		e.Sig[40] ^= 1
		alice.Refuse(e)
		alice.Accept(good)
		sub.Expect(good)
		sub.Silent("only the accepted event")
	}},
	{ID: "events/highest-kind", Title: "kind 65535 is a kind like others", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Event(t.Now(), 65_535, "the last kind")
		alice.AcceptOrDecline(e)
		unchanged(t, e, alice.Query(filter{Kinds: []nostr.Kind{65_535}, Authors: []string{alice.Hex}}))
	}},
	{ID: "events/large-contact-list", Title: "a contact list of 1,000 keys is taken whole", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		n := 1000
		if most := t.Relay().Limits().MaxEventTags; most != nil {
			n = min(n, int(*most))
		}
		var tags []nostr.Tag
		for i := range n {
			tags = append(tags, tag("p", nostr.PubKey{byte(i), byte(i >> 8), 1}.String()))
		}
		e := alice.Event(t.Now(), nostr.KindContacts, "", tags...)
		alice.AcceptOrDecline(e)
		unchanged(t, e, alice.Query(only(e)))
		last := tagged("p", tags[n-1].Value())
		last.Authors = []string{alice.Hex}
		t.Same("the list, by its last key", []*nostr.Event{e}, alice.Query(last))
	}},
	{ID: "public/write", Title: "a stranger may write without authentication", Run: func(t *suite.T) {
		guest := t.Guest()
		guest.AcceptOrDecline(guest.Note("hello from a stranger"))
	}},
	{ID: "public/read", Title: "a stranger may read without authentication", Run: func(t *suite.T) {
		guest := t.Guest()
		_, end := guest.Request(filter{Kinds: []nostr.Kind{nostr.KindText}, Limit: new(1)})
		t.Check(end.Label == client.LabelEOSE, "stored events, then EOSE", "%s", end)
	}},
	{ID: "public/relay-list", Title: "an unknown key may publish its relay list (kind 10002)", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Event(t.Now(), 10_002, "", tag("r", "wss://relay.example"))
		alice.AcceptOrDecline(e)
		unchanged(t, e, alice.Query(filter{Kinds: []nostr.Kind{10_002}, Authors: []string{alice.Hex}}))
	}},
	{ID: "public/dm-relay-list", Title: "an unknown key may publish its relay list for direct messages (kind 10050)", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Event(t.Now(), 10_050, "", tag("relay", "wss://relay.example"))
		alice.AcceptOrDecline(e)
		unchanged(t, e, alice.Query(filter{Kinds: []nostr.Kind{10_050}, Authors: []string{alice.Hex}}))
	}},
	{ID: "public/ephemeral", Title: "an unknown key may publish ephemeral events", Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		sub := bob.Open(by(alice))
		e := alice.Event(t.Now(), kindEphemeral, "gone in a moment")
		alice.AcceptOrDecline(e)
		sub.Expect(e)
	}},
	{ID: "ephemeral/live", Title: "an ephemeral event is delivered live", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		sub := bob.Open(filter{Kinds: []nostr.Kind{kindEphemeral}, Authors: []string{alice.Hex}})
		e := alice.Event(t.Now(), kindEphemeral, "now")
		alice.Accept(e)
		sub.Expect(e)
	}},
	{ID: "ephemeral/not-stored", Title: "an ephemeral event is not stored", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Event(t.Now(), kindEphemeral, "now")
		alice.Offer(e) // nobody listens, so a relay may say mute:
		t.Check(!alice.Has(e) && len(alice.Query(by(alice))) == 0, "nothing stored", "the ephemeral event")
	}},
}

// unchanged fails the case unless what came is e, every field of it.
func unchanged(t *suite.T, e *nostr.Event, got []*nostr.Event) {
	t.Same("the event", []*nostr.Event{e}, got)
	want, saw := e.AppendJSON(nil), got[0].AppendJSON(nil)
	t.Check(string(want) == string(saw), "the event as it was signed, "+client.Excerpt(want), "%s", client.Excerpt(saw))
}
