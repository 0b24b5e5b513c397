package cases

import (
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// corpus is a small set of events of two authors, one second apart, the oldest first.
type corpus struct {
	alice, bob *suite.User
	// Of alice: note, noteAB, reaction, upper. Of bob: noteB.
	note, noteAB, reaction, upper, noteB *nostr.Event
	a, b                                 string // values of t tags that nobody else uses
}

func newCorpus(t *suite.T) *corpus {
	c := &corpus{alice: t.User(), bob: t.User()}
	c.a, c.b = "a-"+c.alice.Hex, "b-"+c.alice.Hex
	at := t.Past(5)
	c.note = c.alice.Event(at[0], nostr.KindText, "no tags")
	c.noteAB = c.alice.Event(at[1], nostr.KindText, "a and b", tag("t", c.a), tag("t", c.b), tag("r", c.b, c.a))
	c.reaction = c.alice.Event(at[2], nostr.KindReaction, "+", tag("e", c.note.ID.String()), tag("p", c.alice.Hex), tag("t", c.a))
	c.upper = c.alice.Event(at[3], nostr.KindText, "upper case", tag("T", c.a), tag("tt", c.a))
	c.noteB = c.bob.Event(at[4], nostr.KindText, "b", tag("t", c.b), tag("p", c.alice.Hex))
	c.alice.Accept(c.note, c.noteAB, c.reaction, c.upper)
	c.bob.Accept(c.noteB)
	return c
}

// find is a case that asks for events of a corpus.
func find(id, title string, ask func(c *corpus) ([]any, []*nostr.Event)) suite.Case {
	return suite.Case{ID: "find/" + id, Title: title, Required: true, Run: func(t *suite.T) {
		c := newCorpus(t)
		filters, want := ask(c)
		t.SameSet("stored", want, once(c.alice.Query(filters...)))
	}}
}

var finding = []suite.Case{
	find("by-id", "events are found by id", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{only(c.note)}, []*nostr.Event{c.note}
	}),
	find("by-ids", "events of any author are found by several ids", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{only(c.noteB, c.note, c.reaction)}, []*nostr.Event{c.note, c.reaction, c.noteB}
	}),
	find("by-repeated-id", "an id that is asked for twice is answered once", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{only(c.note, c.note)}, []*nostr.Event{c.note}
	}),
	find("by-author", "events are found by author", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{by(c.alice)}, []*nostr.Event{c.note, c.noteAB, c.reaction, c.upper}
	}),
	find("by-authors", "events are found by several authors", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{by(c.alice, c.bob)}, []*nostr.Event{c.note, c.noteAB, c.reaction, c.upper, c.noteB}
	}),
	find("by-author-and-kind", "events are found by author and kind", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{filter{Authors: []string{c.alice.Hex}, Kinds: []nostr.Kind{nostr.KindReaction}}}, []*nostr.Event{c.reaction}
	}),
	find("by-author-and-kinds", "events are found by author and several kinds", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{filter{Authors: []string{c.alice.Hex}, Kinds: []nostr.Kind{nostr.KindReaction, nostr.KindText}}},
			[]*nostr.Event{c.note, c.noteAB, c.reaction, c.upper}
	}),
	find("by-tag", "events are found by a tag", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{tagged("t", c.b)}, []*nostr.Event{c.noteAB, c.noteB}
	}),
	find("by-tag-values", "one of several values of a tag is enough", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{tagged("t", c.a, c.b)}, []*nostr.Event{c.noteAB, c.reaction, c.noteB}
	}),
	find("by-several-tags", "of several tags all must be there", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{filter{Tags: map[string][]string{"t": {c.a}, "e": {c.note.ID.String()}}}}, []*nostr.Event{c.reaction}
	}),
	find("by-author-and-tag", "events are found by author and tag", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{filter{Authors: []string{c.bob.Hex}, Tags: map[string][]string{"p": {c.alice.Hex}}}}, []*nostr.Event{c.noteB}
	}),
	find("by-kind-and-tag", "events are found by kind and tag", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{filter{Kinds: []nostr.Kind{nostr.KindReaction}, Tags: map[string][]string{"e": {c.note.ID.String()}}}}, []*nostr.Event{c.reaction}
	}),
	find("by-id-and-more", "every condition besides an id must hold, too", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{filter{IDs: only(c.note, c.noteB).IDs, Authors: []string{c.bob.Hex}}}, []*nostr.Event{c.noteB}
	}),
	find("by-first-value", "only the first value of a tag is looked at", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{filter{Authors: []string{c.alice.Hex}, Tags: map[string][]string{"r": {c.a}}}}, nil
	}),
	find("by-upper-case-tag", "T is another tag than t", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{tagged("T", c.a)}, []*nostr.Event{c.upper}
	}),
	find("by-exact-tag", "the value of a tag is compared in whole", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{tagged("t", c.a[:len(c.a)-1])}, nil
	}),
	find("by-one-of-filters", "an event that matches one of the filters is found", func(c *corpus) ([]any, []*nostr.Event) {
		return []any{only(c.note), filter{Authors: []string{c.alice.Hex}, Kinds: []nostr.Kind{nostr.KindReaction}}},
			[]*nostr.Event{c.note, c.reaction}
	}),
	{ID: "find/once", Title: "an event that matches several filters comes once", Run: func(t *suite.T) {
		c := newCorpus(t)
		t.SameSet("the event, once", []*nostr.Event{c.note}, c.alice.Query(only(c.note), filter{IDs: only(c.note).IDs, Authors: []string{c.alice.Hex}}))
	}},
	{ID: "find/nothing", Title: "what does not exist is answered with EOSE", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		t.Same("nothing", nil, alice.Query(by(alice)))
		t.Same("nothing", nil, alice.Query(only(alice.Note("never published"))))
	}},
	{ID: "find/id-prefix", Title: "a prefix of an id does not find it", Required: true, Run: func(t *suite.T) {
		c := newCorpus(t)
		sub, end := c.alice.Request(object{"ids": []string{c.note.ID.String()[:16]}})
		closedOrNone(t, sub, end)
	}},
	{ID: "find/author-prefix", Title: "a prefix of a public key does not find its events", Required: true, Run: func(t *suite.T) {
		c := newCorpus(t)
		sub, end := c.alice.Request(object{"authors": []string{c.alice.Hex[:16]}})
		closedOrNone(t, sub, end)
	}},
	{ID: "find/long-tag-name", Title: "a filter on a tag of several letters is refused, or finds nothing that lacks it", Required: true, Run: func(t *suite.T) {
		c := newCorpus(t)
		sub, end := c.alice.Request(object{"#tt": []string{c.a}, "authors": []string{c.alice.Hex}})
		t.Check(end.Label == client.LabelClosed || len(sub.Stored) <= 1, "CLOSED, or only the event with this tag", "%d events", len(sub.Stored))
	}},
	{ID: "find/scrape", Title: "everything since a moment can be asked for, and comes newest first", Run: func(t *suite.T) {
		c := newCorpus(t)
		sub, end := c.alice.Request(filter{Since: new(c.note.CreatedAt), Limit: new(50)})
		t.Check(end.Label == client.LabelEOSE, "stored events, then EOSE", "%s", end)
		t.Check(len(sub.Stored) > 0 && len(sub.Stored) <= 50, "up to 50 events", "%d", len(sub.Stored))
		t.Same("newest first", newestFirst(sub.Stored...), sub.Stored)
	}},
	{ID: "find/everything", Title: "an empty filter is answered, newest first", Run: func(t *suite.T) {
		alice := t.User()
		sub, end := alice.Request(object{"limit": 20})
		t.Check(end.Label == client.LabelEOSE, "stored events, then EOSE", "%s", end)
		t.Same("newest first", newestFirst(sub.Stored...), sub.Stored)
	}},
}
