package nostrtest

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
)

// The pools that generators draw from. They are small on purpose: with a handful of authors, kinds and
// tag values, a filter of a few conditions matches a drawn event about as often as not.
var (
	authors = []string{"alice", "bob", "carol"}
	kinds   = []nostr.Kind{0, 1, 3, 5, 7, 9, 1059, 10002, 20001, 30023}
	letters = []string{"a", "d", "e", "h", "p", "t", "E"}
	values  = []string{
		"", "x", "y", "lobby", "\x00", "a\"b\\c", "\u2028", "😀", "<&>",
		"5c83da77af1dec6d7289834998ad7aafbd9e2191396d75ec3cc27f5a77226f36",
	}
	names = []string{"-", "expiration", "alt", "", "hh"}
)

// moments is the number of different created_at that are drawn, from Epoch on.
const moments = 8

// Text generates strings with what is hard for encoders in them: quotes, backslashes, control
// characters, U+2028, astral characters.
func Text() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom(values),
		rapid.String(),
		rapid.StringOf(rapid.RuneFrom([]rune("\x00\x07\x08\t\n\x0b\f\r\x1f \"\\/<>&a\x7f\u0080\u2028\u2029\ufffd\uffff😀"))),
	)
}

// Tags generates up to six tags: most can be asked for by a filter, some lack a value, some repeat a
// name, some have further elements.
func Tags() *rapid.Generator[nostr.Tags] {
	tag := rapid.Custom(func(t *rapid.T) nostr.Tag {
		name := rapid.OneOf(rapid.SampledFrom(letters), rapid.SampledFrom(letters), rapid.SampledFrom(names)).Draw(t, "name")
		rest := rapid.SliceOfN(rapid.SampledFrom(values), 0, 3).Draw(t, "values")
		return append(nostr.Tag{name}, rest...)
	})
	return rapid.Custom(func(t *rapid.T) nostr.Tags {
		return append(nostr.Tags{}, rapid.SliceOfN(tag, 0, 6).Draw(t, "tags")...)
	})
}

// UnsignedEvent generates events with their right id and no signature: quick, for what does not verify
// any.
func UnsignedEvent() *rapid.Generator[*nostr.Event] {
	return rapid.Custom(func(t *rapid.T) *nostr.Event {
		e, author := draw(t)
		e.PubKey = PubKey(author)
		e.ID = e.ComputeID()
		return e
	})
}

// SignedEvent generates events that verify.
func SignedEvent() *rapid.Generator[*nostr.Event] {
	return rapid.Custom(func(t *rapid.T) *nostr.Event {
		e, author := draw(t)
		if err := e.Sign(Key(author)); err != nil {
			t.Fatalf("sign event: %v", err)
		}
		return e
	})
}

// Events generates between least and most unsigned events with distinct ids.
func Events(least, most int) *rapid.Generator[[]*nostr.Event] {
	return rapid.SliceOfNDistinct(UnsignedEvent(), least, most, func(e *nostr.Event) nostr.ID { return e.ID })
}

func draw(t *rapid.T) (e *nostr.Event, author string) {
	e = &nostr.Event{
		CreatedAt: moment(t),
		Kind:      rapid.SampledFrom(kinds).Draw(t, "kind"),
		Tags:      Tags().Draw(t, "tags"),
		Content:   Text().Draw(t, "content"),
	}
	return e, rapid.SampledFrom(authors).Draw(t, "author")
}

func moment(t *rapid.T) int64 { return Epoch + rapid.Int64Range(0, moments-1).Draw(t, "moment") }

// Filter generates filters over the pools of the event generators. About one in twenty matches nothing.
// Ids are drawn from events, which may be empty.
func Filter(events ...*nostr.Event) *rapid.Generator[nostr.Filter] {
	return rapid.Custom(func(t *rapid.T) nostr.Filter {
		var f nostr.Filter
		sometimes := func(what string) bool { return rapid.IntRange(0, 2).Draw(t, what) == 0 }
		if sometimes("with kinds") {
			f.Kinds = rapid.SliceOfN(rapid.SampledFrom(kinds), 1, 5).Draw(t, "kinds")
		}
		if sometimes("with authors") {
			for _, a := range rapid.SliceOfN(rapid.SampledFrom(authors), 1, 2).Draw(t, "authors") {
				f.Authors = append(f.Authors, PubKey(a))
			}
		}
		if len(events) > 0 && sometimes("with ids") {
			for _, e := range rapid.SliceOfN(rapid.SampledFrom(events), 1, 4).Draw(t, "ids") {
				f.IDs = append(f.IDs, e.ID)
			}
		}
		if sometimes("with tags") {
			f.Tags = conditions(t)
		}
		if sometimes("with since") {
			at := moment(t)
			f.Since = &at
		}
		if sometimes("with until") {
			at := moment(t)
			f.Until = &at
		}
		if sometimes("with limit") {
			n := rapid.IntRange(0, 6).Draw(t, "limit")
			f.Limit = &n
		}
		f.MatchesNothing = rapid.IntRange(0, 19).Draw(t, "with an empty list") == 19
		return f
	})
}

// Filters generates one to four filters.
func Filters(events ...*nostr.Event) *rapid.Generator[[]nostr.Filter] {
	return rapid.SliceOfN(Filter(events...), 1, 4)
}

// conditions draws one or two tag conditions on different letters.
func conditions(t *rapid.T) []nostr.TagCondition {
	var cs []nostr.TagCondition
	for _, l := range rapid.SliceOfNDistinct(rapid.SampledFrom(letters), 1, 2, rapid.ID).Draw(t, "letters") {
		vs := rapid.SliceOfN(rapid.SampledFrom(values), 1, 5).Draw(t, "values")
		slices.Sort(vs)
		cs = append(cs, nostr.TagCondition{Name: l[0], Values: slices.Compact(vs)})
	}
	return cs
}
