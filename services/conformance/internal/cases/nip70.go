package cases

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

const (
	kindRepost        nostr.Kind = 6
	kindGenericRepost nostr.Kind = 16
)

var nip70 = []suite.Case{
	{ID: "by-a-stranger", Title: "a protected event is refused from who has not authenticated", Required: true, Run: func(t *suite.T) {
		u := t.Guest()
		u.Refuse(u.Note("protected", tag("-")), "auth-required", "restricted", "blocked", "invalid")
	}},
	{ID: "by-another", Title: "a protected event is refused from anybody but its author", Required: true, Run: func(t *suite.T) {
		alice, mallory := t.User(), t.User()
		e := alice.Note("protected", tag("-"))
		mallory.Refuse(e)
		t.Check(!alice.Has(e), "nothing stored", "the protected event")
	}},
	{ID: "by-its-author", Title: "a protected event is accepted from its author, authenticated", Run: func(t *suite.T) {
		u := t.Guest()
		v := u.Authenticate(u.AuthEvent(u.Challenge()))
		t.Check(v.OK, "authentication", "%s", v)
		e := u.Note("protected", tag("-"))
		u.AcceptOrDecline(e)
		unchanged(t, e, u.Query(only(e)))
	}},
	{ID: "again-by-another", Title: "a protected event that is stored is still refused from others, or called a duplicate", Required: true, Run: func(t *suite.T) {
		alice, mallory := t.Guest(), t.User()
		v := alice.Authenticate(alice.AuthEvent(alice.Challenge()))
		t.Check(v.OK, "authentication", "%s", v)
		e := alice.Note("protected", tag("-"))
		alice.AcceptOrDecline(e)
		v = mallory.Offer(e)
		t.Check(!v.OK || len(v.Message) > 0, "OK false, or OK true duplicate:", "%s", v)
	}},
	{ID: "repost", Title: "a repost that embeds a protected event is refused", Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		e := alice.Note("protected", tag("-"))
		for _, kind := range []nostr.Kind{kindRepost, kindGenericRepost} {
			bob.Refuse(bob.Event(t.Now(), kind, string(e.AppendJSON(nil)), refID(e), tag("p", alice.Hex)))
		}
	}},
	{ID: "repost-of-open", Title: "a repost that embeds an event that is not protected is accepted", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		e := alice.Note("for all", tag("x", "-"))
		bob.Accept(bob.Event(t.Now(), kindRepost, string(e.AppendJSON(nil)), refID(e), tag("p", alice.Hex)))
	}},
}
