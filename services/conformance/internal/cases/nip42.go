package cases

import (
	"net/url"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// forgery is an answer to a challenge with something wrong in it.
type forgery struct {
	id, title string
	required  bool
	forge     func(t *suite.T, u *suite.User, e *nostr.Event)
}

func setTag(e *nostr.Event, name, value string) {
	for i := range e.Tags {
		if e.Tags[i].Key() == name {
			e.Tags[i] = tag(name, value)
		}
	}
}

func dropTag(e *nostr.Event, name string) {
	var tags nostr.Tags
	for _, one := range e.Tags {
		if one.Key() != name {
			tags = append(tags, one)
		}
	}
	e.Tags = tags
}

var forgeries = []forgery{
	{"wrong-kind", "of another kind", true, func(_ *suite.T, _ *suite.User, e *nostr.Event) { e.Kind = 22_243 }},
	{"wrong-relay", "for another relay", true, func(_ *suite.T, _ *suite.User, e *nostr.Event) { setTag(e, "relay", "wss://another-relay.example") }},
	{"no-relay", "without a relay", true, func(_ *suite.T, _ *suite.User, e *nostr.Event) { dropTag(e, "relay") }},
	{"wrong-challenge", "to another challenge", true, func(_ *suite.T, _ *suite.User, e *nostr.Event) { setTag(e, "challenge", "guessed") }},
	{"empty-challenge", "to an empty challenge", true, func(_ *suite.T, _ *suite.User, e *nostr.Event) { setTag(e, "challenge", "") }},
	{"no-challenge", "without a challenge", true, func(_ *suite.T, _ *suite.User, e *nostr.Event) { dropTag(e, "challenge") }},
	{"challenge-of-another-connection", "to the challenge of another connection", true, func(t *suite.T, _ *suite.User, e *nostr.Event) {
		setTag(e, "challenge", t.Guest().Challenge())
	}},
	{"too-old", "signed an hour ago", true, func(_ *suite.T, _ *suite.User, e *nostr.Event) { e.CreatedAt -= 3600 }},
	{"too-new", "signed for an hour ahead", true, func(_ *suite.T, _ *suite.User, e *nostr.Event) { e.CreatedAt += 3600 }},
}

func nip42() []suite.Case {
	list := authentication[:len(authentication):len(authentication)]
	for _, f := range forgeries {
		list = append(list, suite.Case{
			ID: "refuses-" + f.id, Title: "an AUTH " + f.title + " is answered OK false, and does not authenticate", Required: f.required,
			Run: func(t *suite.T) {
				u := t.Guest()
				e := u.AuthEvent(u.Challenge())
				f.forge(t, u, e)
				if err := e.Sign(u.Key); err != nil {
					t.Fail("a signature", "%v", err)
				}
				v := u.Authenticate(e)
				t.Check(!v.OK, "OK false", "%s", v)
				strangerStill(t, u)
			},
		})
	}
	return list
}

// strangerStill fails the case if a user on whom authentication failed may do what strangers may not.
func strangerStill(t *suite.T, u *suite.User) {
	if !t.Relay().Locked {
		return
	}
	select {
	case <-u.Conn().Gone():
		return // hung up on: no less strict
	default:
	}
	_, end := u.Request(by(u))
	t.Check(end.Label == client.LabelClosed, "CLOSED for who is not authenticated", "%s", end)
}

// otherSpellings are relay URLs that mean the same relay.
func otherSpellings(raw string) []string {
	u, err := url.Parse(raw)
	if err != nil {
		return nil
	}
	upper := *u
	upper.Host = strings.ToUpper(u.Host)
	return []string{strings.TrimSuffix(raw, "/") + "/", strings.TrimSuffix(raw, "/"), upper.String()}
}

var authentication = []suite.Case{
	{ID: "challenge", Title: "the relay sends a challenge as soon as a client connects", Run: func(t *suite.T) {
		t.Check(t.Relay().Greets, "AUTH", "nothing before the client asks for something")
	}},
	{ID: "challenge-differs", Title: "each connection has a challenge of its own", Required: true, Run: func(t *suite.T) {
		a, b := t.Guest().Challenge(), t.Guest().Challenge()
		t.Check(a != b && a != "" && b != "", "two different challenges", "%q and %q", a, b)
	}},
	{ID: "unknown-key", Title: "a key that the relay does not know can authenticate", Required: true, Run: func(t *suite.T) {
		u := t.Guest()
		v := u.Authenticate(u.AuthEvent(u.Challenge()))
		if !v.OK && strings.HasPrefix(v.Message, "restricted:") {
			t.NotClaimed("the relay is for its members: %s", v.Message)
		}
		t.Check(v.OK, "OK true", "%s", v)
	}},
	{ID: "again", Title: "a key may authenticate twice on a connection", Run: func(t *suite.T) {
		u := t.Guest()
		for range 2 {
			v := u.Authenticate(u.AuthEvent(u.Challenge()))
			t.Check(v.OK, "OK true", "%s", v)
		}
	}},
	{ID: "several-keys", Title: "all keys that authenticated on a connection are treated so", Required: true, Run: func(t *suite.T) {
		alice := t.Guest()
		var events []*nostr.Event
		var tags []nostr.Tag
		if t.Claims(70) {
			tags = append(tags, tag("-")) // only its author may send it
		}
		for range 3 {
			one := alice.As(t.Key())
			v := one.Authenticate(one.AuthEvent(one.Challenge()))
			t.Check(v.OK, "OK true for each key", "%s", v)
			events = append(events, one.Note("one of several", tags...))
		}
		for _, e := range events {
			alice.Accept(e)
		}
	}},
	{ID: "spelling", Title: "the relay's URL may be spelled with or without a slash, and in upper case", Run: func(t *suite.T) {
		for i := range otherSpellings(t.Relay().URL) {
			u := t.Guest()
			spelled := otherSpellings(u.Conn().URL())[i]
			v := u.Authenticate(u.Event(t.Now(), nostr.KindAuth, "", tag("relay", spelled), tag("challenge", u.Challenge())))
			t.Check(v.OK, "OK true for "+spelled, "%s", v)
		}
	}},
	{ID: "refuses-bad-signature", Title: "an AUTH with a wrong signature is answered OK false, and does not authenticate", Required: true, Run: func(t *suite.T) {
		u := t.Guest()
		e := u.AuthEvent(u.Challenge())
		e.Sig[40] ^= 1
		v := u.Authenticate(e)
		t.Check(!v.OK, "OK false", "%s", v)
		strangerStill(t, u)
	}},
	{ID: "refuses-another-author", Title: "an AUTH for a key that did not sign it is answered OK false", Required: true, Run: func(t *suite.T) {
		alice, mallory := t.Guest(), t.Guest()
		e := mallory.AuthEvent(mallory.Challenge())
		e.PubKey = alice.Pub
		e.ID = e.ComputeID()
		v := mallory.Authenticate(e)
		t.Check(!v.OK, "OK false", "%s", v)
		strangerStill(t, mallory)
	}},
	{ID: "not-published", Title: "an AUTH is neither stored nor delivered, sent as AUTH or as EVENT", Required: true, Run: func(t *suite.T) {
		reader := t.User()
		u := t.Guest()
		sub, end := reader.Request(filter{Kinds: []nostr.Kind{nostr.KindAuth}, Authors: []string{u.Hex}})
		e := u.AuthEvent(u.Challenge())
		u.Authenticate(e)
		u.Offer(e)
		if end.Label == client.LabelEOSE {
			sub.Silent("nothing of kind 22242")
		}
		t.Check(!reader.Has(e), "nothing stored", "the AUTH")
	}},
	{ID: "required-for-event", Title: "an EVENT before authentication is refused with auth-required:", Required: true, Run: func(t *suite.T) {
		locked(t)
		u := t.Guest()
		u.Refuse(u.Note("too early"), "auth-required")
	}},
	{ID: "required-for-req", Title: "a REQ before authentication is refused with auth-required:", Required: true, Run: func(t *suite.T) {
		locked(t)
		u := t.Guest()
		_, end := u.Request(by(u))
		t.Check(end.Label == client.LabelClosed && strings.HasPrefix(end.Message, "auth-required:"), "CLOSED auth-required:", "%s", end)
	}},
	{ID: "required-for-count", Title: "a COUNT before authentication is refused with auth-required:", Required: true, Needs: []int{45}, Run: func(t *suite.T) {
		locked(t)
		u := t.Guest()
		f := u.Count(by(u))
		t.Check(f.Label == client.LabelClosed && strings.HasPrefix(f.Message, "auth-required:"), "CLOSED auth-required:", "%s", f)
	}},
	{ID: "then-served", Title: "what was refused before authentication is done after it, on the same connection", Required: true, Run: func(t *suite.T) {
		locked(t)
		u := t.Guest()
		e := u.Note("twice")
		u.Refuse(e)
		v := u.Authenticate(u.AuthEvent(u.Challenge()))
		t.Check(v.OK, "OK true", "%s", v)
		u.Accept(e)
		t.Same("the event", []*nostr.Event{e}, u.Query(by(u)))
	}},
}

// locked ends the case for relays that let strangers in.
func locked(t *suite.T) {
	if !t.Relay().Locked {
		t.NotClaimed("the relay lets strangers in")
	}
}
