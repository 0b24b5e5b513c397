package cases

import (
	"strconv"
	"time"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

func expires(at int64) nostr.Tag { return tag("expiration", strconv.FormatInt(at, 10)) }

// expired publishes an event that expires soon, looks that it is there, and waits until it has expired.
func expired(t *suite.T, alice *suite.User) *nostr.Event {
	// Time to publish and to look, also with who is patient because the machine is slow.
	life := max(3, int64(t.Options().Step/(4*time.Second)))
	e := alice.Note("for a moment", expires(t.Now()+life), tag("t", "expiring"))
	alice.Accept(e)
	if t.Now() < e.CreatedAt+life-1 {
		t.Check(alice.Has(e), "the event, as long as it lives", "nothing")
	}
	t.Pause(time.Until(time.Unix(e.CreatedAt+life+1, 0)))
	return e
}

var nip40 = []suite.Case{
	{ID: "kept-until-then", Title: "an event that expires in an hour is served", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		sub := bob.Open(by(alice))
		e := alice.Note("for an hour", expires(t.Now()+3600))
		alice.Accept(e)
		sub.Expect(e)
		unchanged(t, e, bob.Query(only(e)))
	}},
	{ID: "expired-on-arrival", Title: "an event that has expired is not stored and not delivered", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		sub := bob.Open(by(alice))
		e := alice.Note("too late", expires(t.Now()-1))
		alice.Offer(e)
		t.Check(!alice.Has(e), "nothing", "the expired event")
		sub.Silent("nothing live for an expired event")
	}},
	{ID: "expired-on-arrival-refused", Title: "an event that has expired is answered OK false", Run: func(t *suite.T) {
		alice := t.User()
		alice.Refuse(alice.Note("too late", expires(t.Now()-1)))
	}},
	{ID: "not-served", Title: "an event that expires while it is stored is not served any more", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := expired(t, alice)
		t.Check(!alice.Has(e), "nothing by id", "the expired event")
		t.Same("nothing by author", nil, alice.Query(by(alice)))
		f := tagged("t", "expiring")
		f.Authors = []string{alice.Hex}
		t.Same("nothing by tag", nil, alice.Query(f))
	}},
	{ID: "makes-room", Title: "an expired event does not count for a limit", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Event(t.Now()-20, nostr.KindText, "stays")
		alice.Accept(e)
		expired(t, alice)
		f := by(alice)
		f.Limit = new(1)
		t.Same("the event that stays", []*nostr.Event{e}, alice.Query(f))
	}},
	{ID: "not-counted", Title: "an expired event is not counted (NIP-45)", Required: true, Needs: []int{45}, Run: func(t *suite.T) {
		alice := t.User()
		expired(t, alice)
		f := alice.Count(by(alice))
		t.Check(f.Label == client.LabelCount && *f.Count.Count == 0, "0", "%s", f)
	}},
	{ID: "not-a-number", Title: "an expiration that is no number is answered, and served if accepted", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("some day", tag("expiration", "tomorrow"))
		if v := alice.Offer(e); v.OK {
			unchanged(t, e, alice.Query(only(e)))
		}
	}},
}
