package cases

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

const kindDirectMessage nostr.Kind = 4

// nip04 are the direct messages of old; what a relay can do for them is to keep them between their parties.
var nip04 = []suite.Case{
	{ID: "parties-read", Title: "sender and receiver of a direct message read it", Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		e := alice.Event(t.Now(), kindDirectMessage, "?iv=", tag("p", bob.Hex))
		alice.Accept(e)
		f := filter{Kinds: []nostr.Kind{kindDirectMessage}, Tags: map[string][]string{"p": {bob.Hex}}}
		t.Same("the message, for its receiver", []*nostr.Event{e}, bob.Query(f))
		f.Authors = []string{alice.Hex}
		t.Same("the message, for its sender", []*nostr.Event{e}, alice.Query(f))
	}},
	{ID: "others-do-not", Title: "nobody else reads a direct message, stored or live", Run: func(t *suite.T) {
		hidden(t, func(alice, bob *suite.User) *nostr.Event {
			return alice.Event(t.Now(), kindDirectMessage, "?iv=", tag("p", bob.Hex))
		})
	}},
}

// hidden lets alice send bob an event that nobody else may learn of, by whatever filter.
func hidden(t *suite.T, sign func(alice, bob *suite.User) *nostr.Event) {
	alice, bob, eve := t.User(), t.User(), t.User()
	guest := t.Guest()
	var subs []*suite.Sub
	live, stored := sign(alice, bob), sign(alice, bob)
	alice.Accept(stored)
	asks := func(e *nostr.Event) []filter {
		f := filter{Kinds: []nostr.Kind{e.Kind}, Since: new(e.CreatedAt - 10), Limit: new(20)}
		toBob := tagged("p", bob.Hex)
		return []filter{only(e), {Authors: []string{e.PubKey.String()}}, toBob, f}
	}
	for _, f := range append(asks(stored), asks(live)...) {
		for _, u := range []*suite.User{eve, guest} {
			sub, end := u.Request(f)
			for _, e := range sub.Stored {
				t.Check(e.ID != stored.ID, "nothing for who has no part in it", "the event, for %s", f)
			}
			if end.Label == client.LabelEOSE {
				subs = append(subs, sub)
			}
		}
	}
	mine := bob.Open(filter{Kinds: []nostr.Kind{live.Kind}, Tags: map[string][]string{"p": {bob.Hex}}})
	t.Check(len(mine.Stored) == 1 && mine.Stored[0].ID == stored.ID, "the event for its receiver", "%d events", len(mine.Stored))
	alice.Accept(live)
	mine.Expect(live)
	for _, sub := range subs {
		for _, e := range sub.Live(0) {
			t.Check(e.ID != live.ID, "nothing live for who has no part in it", "the event")
		}
	}
}
