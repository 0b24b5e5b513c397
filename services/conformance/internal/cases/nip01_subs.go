package cases

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

var subscriptions = []suite.Case{
	{ID: "subscription/eose", Title: "stored events end with one EOSE", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := notes(alice, t.Past(5))
		alice.Accept(list...)
		sub := alice.Open(by(alice))
		t.SameSet("all stored events before EOSE", list, sub.Stored)
		sub.Silent("nothing after EOSE as long as nothing is published")
	}},
	{ID: "subscription/live", Title: "a subscription gets what is published after EOSE, on whatever connection", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		sub := bob.Open(by(alice))
		for _, e := range notes(alice, t.Past(5)) {
			alice.Accept(e)
			sub.Expect(e)
		}
		e := alice.Note("over another connection")
		alice.Again().Accept(e)
		sub.Expect(e)
	}},
	{ID: "subscription/own", Title: "a subscription gets what its own connection publishes", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		sub := alice.Open(by(alice))
		e := alice.Note("mine")
		alice.Accept(e)
		sub.Expect(e)
	}},
	{ID: "subscription/only-matching", Title: "a subscription gets only what matches", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		f := tagged("t", "wanted")
		f.Authors, f.Kinds = []string{alice.Hex}, []nostr.Kind{nostr.KindText}
		sub := bob.Open(f)
		wanted := alice.Note("wanted", tag("t", "other"), tag("t", "wanted"))
		alice.Accept(alice.Note("no tag"), alice.Event(t.Now(), nostr.KindReaction, "+", tag("t", "wanted")),
			alice.Note("another value", tag("t", "unwanted")), alice.Note("second value", tag("t", "x", "wanted")))
		bob.Accept(bob.Note("another author", tag("t", "wanted")))
		alice.Accept(wanted)
		sub.Expect(wanted)
		sub.Silent("only the matching event")
	}},
	{ID: "subscription/any-filter", Title: "a subscription of several filters gets what matches any of them", Required: true, Run: func(t *suite.T) {
		want, got := anyFilter(t)
		t.SameSet("what matches", want, once(got))
	}},
	{ID: "subscription/any-filter-once", Title: "an event that matches several filters of a subscription is delivered once", Run: func(t *suite.T) {
		want, got := anyFilter(t)
		t.SameSet("each event once", want, got)
	}},
	{ID: "subscription/several", Title: "every subscription that matches gets the event", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		subs := []*suite.Sub{
			bob.Open(by(alice)), bob.Open(filter{Kinds: []nostr.Kind{nostr.KindText}, Authors: []string{alice.Hex}}),
			t.User().Open(by(alice)), bob.Open(tagged("p", alice.Hex)),
		}
		e := alice.Note("for all", tag("p", alice.Hex))
		alice.Accept(e)
		for _, sub := range subs {
			sub.Expect(e)
		}
	}},
	{ID: "subscription/stays-open", Title: "a subscription by ids that are not all there stays open", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		here, later := alice.Note("here"), alice.Note("later")
		alice.Accept(here)
		sub := alice.Open(only(here, later))
		t.Same("the one that is stored", []*nostr.Event{here}, sub.Stored)
		alice.Accept(later)
		sub.Expect(later)
	}},
	{ID: "subscription/complete-closes", Title: "a subscription by ids that are all there is closed", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("here")
		alice.Accept(e)
		sub := alice.Open(only(e))
		sub.Ended()
	}},
	{ID: "subscription/limit-is-for-stored", Title: "limit does not count what comes live", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Accept(alice.Note("stored"))
		f := by(alice)
		f.Limit = new(1)
		sub := alice.Open(f)
		list := notes(alice, t.Past(4))
		alice.Accept(list...)
		sub.Expect(list...)
	}},
	{ID: "subscription/time-window-is-for-live", Title: "since and until hold for what comes live, too", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		at := t.Past(3)
		f := by(alice)
		f.Since, f.Until = new(at[1]), new(at[1])
		sub := alice.Open(f)
		list := notes(alice, at)
		alice.Accept(list...)
		sub.Expect(list[1])
		sub.Silent("only the event inside the window")
	}},
	{ID: "subscription/close", Title: "CLOSE ends a subscription", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		closed, witness := bob.Open(by(alice)), bob.Open(by(alice))
		closed.Close()
		// The answer to a later REQ tells that the CLOSE has been read.
		bob.Query(by(bob))
		e := alice.Note("after CLOSE")
		alice.Accept(e)
		witness.Expect(e)
		closed.SilentBut("nothing for a closed subscription", client.LabelClosed)
	}},
	{ID: "subscription/close-unknown", Title: "CLOSE of a subscription that does not exist harms nothing", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		sub := alice.Open(by(alice))
		send(t, alice, "CLOSE", "nobody-opened-this")
		e := alice.Note("still here")
		alice.Accept(e)
		sub.Expect(e)
	}},
	{ID: "subscription/replace", Title: "a REQ with a known id replaces the subscription", Required: true, Run: func(t *suite.T) {
		alice, bob, carol := t.User(), t.User(), t.User()
		stored := bob.Note("stored")
		bob.Accept(stored)
		first := carol.OpenAs("same", by(alice))
		t.Same("nothing of alice", nil, first.Stored)
		second := carol.OpenAs("same", by(bob))
		t.Same("stored events of the new filter", []*nostr.Event{stored}, second.Stored)
		witness := carol.Open(by(alice))
		old, fresh := alice.Note("the old filter"), bob.Note("the new filter")
		alice.Accept(old)
		witness.Expect(old)
		bob.Accept(fresh)
		second.Expect(fresh)
		second.Silent("nothing for the replaced filter")
	}},
	{ID: "subscription/ids-per-connection", Title: "subscription ids of two connections do not meet", Required: true, Run: func(t *suite.T) {
		alice, bob, carol := t.User(), t.User(), t.User()
		first, second := bob.OpenAs("same", by(alice)), carol.OpenAs("same", by(alice))
		first.Close()
		bob.Query(by(bob))
		e := alice.Note("one of them is open")
		alice.Accept(e)
		second.Expect(e)
	}},
	{ID: "subscription/id-is-arbitrary", Title: "a subscription id may hold any characters, and comes back as it was", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Accept(alice.Note("here"))
		for _, id := range []string{" ", `"quoted" \ and /`, "línea 😀", "\n\t", "0", "null", strings.Repeat("x", 64)} {
			sub := alice.OpenAs(id, by(alice))
			t.Check(len(sub.Stored) == 1, "the event for the id "+id, "%d events", len(sub.Stored))
			sub.Close()
		}
	}},
	{ID: "subscription/id-empty", Title: "an empty subscription id is refused", Run: func(t *suite.T) {
		alice := t.User()
		ctx, cancel := t.Step()
		defer cancel()
		mark := alice.Conn().Mark()
		send(t, alice, "REQ", "", by(alice))
		f, _, err := alice.Conn().Await(ctx, mark, func(f *client.Frame) bool {
			return f.Label == client.LabelNotice || f.Label == client.LabelClosed || f.Label == client.LabelEOSE
		})
		t.Check(err == nil && f.Label != client.LabelEOSE, "CLOSED or NOTICE", "%s", suite.Saw(f, err))
	}},
	{ID: "subscription/many", Title: "20 subscriptions of one connection are open at a time", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		var subs []*suite.Sub
		for range 20 {
			subs = append(subs, bob.Open(by(alice)))
		}
		e := alice.Note("for all")
		alice.Accept(e)
		for _, sub := range subs {
			sub.Expect(e)
		}
	}},
	{ID: "subscription/no-gap", Title: "what is published while a subscription opens comes, stored or live", Required: true, Run: func(t *suite.T) {
		want, got := noGap(t)
		for _, events := range got {
			t.SameSet("every event", want, once(events))
		}
	}},
	{ID: "subscription/no-repeat", Title: "what is published while a subscription opens comes once", Run: func(t *suite.T) {
		want, got := noGap(t)
		for _, events := range got {
			t.SameSet("every event once", want, events)
		}
	}},
	{ID: "subscription/idle", Title: "a quiet subscription stays open", Required: true, Run: func(t *suite.T) {
		alice, bob := t.User(), t.User()
		sub := bob.Open(by(alice))
		t.Pause(t.Options().Idle)
		e := alice.Again().Note("after a while")
		alice.Again().Accept(e)
		sub.Expect(e)
	}},
	{ID: "connection/many", Title: "20 connections of one client are open at a time", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		var subs []*suite.Sub
		for range 20 {
			subs = append(subs, alice.Again().Open(by(alice)))
		}
		e := alice.Note("for all")
		alice.Accept(e)
		for _, sub := range subs {
			sub.Expect(e)
		}
	}},
	{ID: "connection/reconnect", Title: "a client that comes back at once is served", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("still here")
		alice.Accept(e)
		for range 5 {
			alice.Conn().Close()
			alice = alice.Again()
			t.Same("the event", []*nostr.Event{e}, alice.Query(by(alice)))
		}
	}},
	{ID: "connection/ping", Title: "a WebSocket ping is answered with a pong", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		ctx, cancel := t.Step()
		defer cancel()
		err := alice.Conn().Ping(ctx)
		t.Check(err == nil, "a pong", "%v", err)
	}},
}

// anyFilter publishes two events, of which one matches both filters of a subscription and the other one of
// them, and returns them and what was delivered.
func anyFilter(t *suite.T) (want, got []*nostr.Event) {
	alice, bob := t.User(), t.User()
	sub := bob.Open(filter{Kinds: []nostr.Kind{nostr.KindReaction}, Authors: []string{alice.Hex}}, by(alice))
	want = []*nostr.Event{alice.Note("one filter"), alice.Event(t.Now(), nostr.KindReaction, "both")}
	alice.Accept(want...)
	return want, sub.Live(len(want))
}

// noGap publishes all the time and opens subscriptions meanwhile. It returns what was published and what
// each subscription got.
func noGap(t *suite.T) (want []*nostr.Event, got [][]*nostr.Event) {
	alice, bob := t.User(), t.User()
	want = notes(alice, t.Past(60))
	published := make(chan error, 1)
	go func() {
		for _, e := range want {
			if v, err := alice.Conn().Publish(t.Context(), e); err != nil || !v.OK {
				published <- fmt.Errorf("%s: %w", v, err)
				return
			}
		}
		published <- nil
	}()
	var subs []*suite.Sub
	for range 10 {
		subs = append(subs, bob.Open(by(alice)))
	}
	err := <-published
	t.Check(err == nil, "events are accepted", "%v", err)
	for _, sub := range subs {
		live := sub.Live(len(want) - len(sub.Stored))
		got = append(got, slices.Concat(sub.Stored, live))
	}
	return want, got
}

// send sends a frame of elements.
func send(t *suite.T, u *suite.User, elements ...any) {
	ctx, cancel := t.Step()
	defer cancel()
	err := u.Conn().SendJSON(ctx, elements...)
	t.Check(err == nil, "the relay reads a frame", "%v", err)
}
