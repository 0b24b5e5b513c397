package cases

import (
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// The kinds of NIP-43.
const (
	kindMembers nostr.Kind = 13_534
	kindAdded   nostr.Kind = 8_000
	kindRemoved nostr.Kind = 8_001
	kindJoin    nostr.Kind = 28_934
	kindInvite  nostr.Kind = 28_935
	kindLeave   nostr.Kind = 28_936
)

var nip43 = []suite.Case{
	{ID: "self", Title: "the relay has a key of its own in NIP-11", Required: true, Run: func(t *suite.T) {
		t.Check(t.Relay().Info != nil && hex64.MatchString(t.Relay().Info.Self), "self, a public key", "none")
	}},
	{ID: "members-by-relay", Title: "what the relay serves as its list of members is signed by itself and protected", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		sub, end := alice.Request(filter{Kinds: []nostr.Kind{kindMembers}, Limit: new(5)})
		if end.Label == client.LabelClosed || len(sub.Stored) == 0 {
			t.NotClaimed("the relay shows no list of members")
		}
		for _, e := range sub.Stored {
			_, protected := e.Tags.First("-")
			t.Check(e.PubKey.String() == t.Relay().Info.Self && protected, "signed by self, with a - tag", "%s", e.AppendJSON(nil))
		}
	}},
	{ID: "members-forged", Title: "nobody else's list of members is taken for the relay's", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Refuse(alice.Event(t.Now(), kindMembers, "", tag("-"), tag("member", alice.Hex)))
	}},
	{ID: "changes-forged", Title: "nobody else's word that a member was added or removed is taken for the relay's", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		for _, kind := range []nostr.Kind{kindAdded, kindRemoved} {
			alice.Refuse(alice.Event(t.Now(), kind, "", tag("-"), tag("p", alice.Hex)))
		}
	}},
	{ID: "join-prefix", Title: "a join request with an invite code that does not exist is refused as restricted:", Run: func(t *suite.T) {
		alice := t.User()
		v := alice.Offer(alice.Event(t.Now(), kindJoin, "", tag("-"), tag("claim", "no-such-code")))
		t.Check(v.OK || strings.HasPrefix(v.Message, "restricted:"), "restricted:", "%s", v)
	}},
	{ID: "invite", Title: "an invite that the relay gives on request is signed by itself, and somebody joins with it", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		sub, end := alice.Request(filter{Kinds: []nostr.Kind{kindInvite}})
		if end.Label == client.LabelClosed || len(sub.Stored) == 0 {
			t.NotClaimed("the relay gives this key no invite")
		}
		e := sub.Stored[0]
		claim, has := e.Tags.First("claim")
		_, protected := e.Tags.First("-")
		t.Check(e.PubKey.String() == t.Relay().Info.Self && protected && has, "signed by self, with - and claim tags", "%s", e.AppendJSON(nil))
		bob := t.Guest()
		v := bob.Authenticate(bob.AuthEvent(bob.Challenge()))
		t.Check(v.OK, "authentication", "%s", v)
		bob.Accept(bob.Event(t.Now(), kindJoin, "", tag("-"), tag("claim", claim)))
	}},
	{ID: "join-bad-claim", Title: "a join request with an invite code that does not exist is refused, or says duplicate:", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		v := alice.Offer(alice.Event(t.Now(), kindJoin, "", tag("-"), tag("claim", "no-such-code")))
		t.Check(!v.OK || strings.HasPrefix(v.Message, "duplicate:") || strings.HasPrefix(v.Message, "info:"), "OK false, or OK true duplicate:", "%s", v)
	}},
	{ID: "leave", Title: "a leave request is answered", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Offer(alice.Event(t.Now(), kindLeave, "", tag("-")))
	}},
}
