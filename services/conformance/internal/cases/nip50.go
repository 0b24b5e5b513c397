package cases

import (
	"fmt"
	"slices"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/model"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// kindArticle is long-form text (NIP-23), which whoever searches at all can be expected to search; relays for
// teams may leave out short notes.
var kindArticle = []nostr.Kind{30023}

// library is a few articles to be searched, with words that nobody else uses.
type library struct {
	alice        *suite.User
	apple, pear  string
	both, one    *nostr.Event
	profile      *nostr.Event
	anotherUsers *nostr.Event
}

func newLibrary(t *suite.T) *library {
	l := &library{alice: t.User()}
	bob := t.User()
	l.apple, l.pear = "apple"+l.alice.Hex[:12], "pear"+l.alice.Hex[:12]
	at := t.Past(4)
	l.both = l.alice.Event(at[0], kindArticle[0], fmt.Sprintf("An %s and a %s.", l.apple, l.pear), tag("d", "both"))
	l.one = l.alice.Event(at[1], kindArticle[0], "Only the "+l.pear+" here", tag("d", "one"))
	l.profile = l.alice.Event(at[2], nostr.KindMetadata, `{"about":"All about the `+l.apple+`"}`)
	l.anotherUsers = bob.Event(at[3], kindArticle[0], l.apple+" of another", tag("d", "another"))
	l.alice.Accept(l.both, l.one, l.profile)
	bob.Accept(l.anotherUsers)
	return l
}

// finds fails the case unless the search finds exactly these, soon: an index may need a moment.
func (l *library) finds(t *suite.T, f filter, want ...*nostr.Event) {
	t.Eventually(fmt.Sprintf("%d events for %s", len(want), f), func() (string, bool) {
		got := l.alice.Query(f)
		same := slices.EqualFunc(newestFirst(got...), newestFirst(want...), func(a, b *nostr.Event) bool { return model.Order(a, b) == 0 })
		return fmt.Sprintf("%d events", len(got)), same
	})
}

var nip50 = []suite.Case{
	{ID: "word", Title: "a word in the content finds the event", Required: true, Run: func(t *suite.T) {
		l := newLibrary(t)
		l.finds(t, filter{Search: l.pear, Kinds: kindArticle}, l.both, l.one)
	}},
	{ID: "case", Title: "case does not matter", Run: func(t *suite.T) {
		l := newLibrary(t)
		l.finds(t, filter{Search: "PEAR" + l.pear[4:], Kinds: kindArticle}, l.both, l.one)
	}},
	{ID: "all-words", Title: "an event with all the words is found", Required: true, Run: func(t *suite.T) {
		l := newLibrary(t)
		t.Eventually("the event with both words", func() (string, bool) {
			got := l.alice.Query(filter{Search: l.apple + " " + l.pear, Kinds: kindArticle, Authors: []string{l.alice.Hex}})
			return fmt.Sprintf("%d events", len(got)), len(got) > 0 && got[0].ID == l.both.ID
		})
	}},
	{ID: "with-author", Title: "search and authors must both hold", Required: true, Run: func(t *suite.T) {
		l := newLibrary(t)
		l.finds(t, filter{Search: l.apple, Kinds: kindArticle, Authors: []string{l.alice.Hex}}, l.both)
	}},
	{ID: "with-kind", Title: "search and kinds must both hold", Required: true, Run: func(t *suite.T) {
		l := newLibrary(t)
		l.finds(t, filter{Search: l.apple, Kinds: []nostr.Kind{nostr.KindMetadata}}, l.profile)
	}},
	{ID: "limit", Title: "limit bounds what a search finds", Required: true, Run: func(t *suite.T) {
		l := newLibrary(t)
		l.finds(t, filter{Search: l.pear, Kinds: kindArticle}, l.both, l.one)
		got := l.alice.Query(filter{Search: l.pear, Kinds: kindArticle, Limit: new(1)})
		t.Check(len(got) == 1, "one event", "%d", len(got))
	}},
	{ID: "nothing", Title: "a word that nobody wrote finds nothing", Required: true, Run: func(t *suite.T) {
		l := newLibrary(t)
		l.finds(t, filter{Search: l.pear, Kinds: kindArticle}, l.both, l.one)
		t.Same("nothing", nil, l.alice.Query(filter{Search: "plum" + l.alice.Hex[:12], Kinds: kindArticle}))
	}},
	{ID: "unknown-extension", Title: "a key:value that the relay does not know is ignored", Required: true, Run: func(t *suite.T) {
		l := newLibrary(t)
		l.finds(t, filter{Search: l.pear + " conformance:yes", Kinds: kindArticle}, l.both, l.one)
	}},
	{ID: "odd-queries", Title: "operators, quotes and blanks in a search are answered", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		for _, q := range []string{`"`, "'", "a & | !", "( : *", " ", "\\", "-- x", "%", "a\x00b", "😀", "and or not"} {
			alice.Request(filter{Search: q, Kinds: kindArticle, Limit: new(1)})
		}
	}},
	{ID: "deleted", Title: "a deleted event is not found (NIP-09)", Required: true, Needs: []int{9}, Run: func(t *suite.T) {
		l := newLibrary(t)
		l.finds(t, filter{Search: l.pear, Kinds: kindArticle}, l.both, l.one)
		l.alice.Accept(deletion(l.alice, t.Now(), refID(l.one)))
		l.finds(t, filter{Search: l.pear, Kinds: kindArticle}, l.both)
	}},
}
