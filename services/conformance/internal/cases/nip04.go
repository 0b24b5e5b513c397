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
		hidden(t, func(alice, bob *suite.User, content string) *nostr.Event {
			return alice.Event(t.Now(), kindDirectMessage, content, tag("p", bob.Hex))
		})
	}},
}

// hidden lets alice send bob two events, one before others ask for them by whatever filter and one while they
// have subscriptions. The others may learn of neither.
func hidden(t *suite.T, sign func(alice, bob *suite.User, content string) *nostr.Event) {
	alice, bob, others := t.User(), t.User(), []*suite.User{t.User(), t.Guest()}
	stored, live := sign(alice, bob, "stored"), sign(alice, bob, "live")
	alice.Accept(stored)
	for _, f := range []filter{
		only(stored, live),
		{Authors: []string{stored.PubKey.String(), live.PubKey.String()}},
		tagged("p", bob.Hex),
		{Kinds: []nostr.Kind{stored.Kind}, Since: new(stored.CreatedAt - 10), Limit: new(20)},
	} {
		for _, u := range others {
			u.Request(f) // CLOSED is as good as nothing
		}
	}
	mine := bob.Open(filter{Kinds: []nostr.Kind{stored.Kind}, Tags: map[string][]string{"p": {bob.Hex}}})
	t.Same("the event for its receiver", []*nostr.Event{stored}, mine.Stored)
	alice.Accept(live)
	mine.Expect(live)
	t.Pause(t.Options().Quiet)
	for _, u := range others {
		for _, f := range u.Conn().Since(0) {
			leaked := f.Label == client.LabelEvent && f.Event != nil && (f.Event.ID == stored.ID || f.Event.ID == live.ID)
			t.Check(!leaked, "nothing for who has no part in it", "%s", &f)
		}
	}
}
