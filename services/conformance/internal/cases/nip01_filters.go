package cases

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// refused is a case of a filter that is none: it must be refused in words, for the subscription.
func refused(id, title string, bad any) suite.Case {
	return suite.Case{ID: "filters/" + id, Title: "a REQ with " + title + " is answered CLOSED", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		_, end := alice.Request(bad)
		t.Check(end.Label == client.LabelClosed, "CLOSED", "%s", end)
	}}
}

// answered is a case of a filter that NIP-01 leaves open: it must be answered, with CLOSED or with no event
// that does not match.
func answered(id, title string, odd func(alice *suite.User) any) suite.Case {
	return suite.Case{ID: "filters/" + id, Title: "a REQ with " + title + " is answered CLOSED, or with nothing", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Accept(alice.Note("not meant", tag("t", "x")))
		sub, end := alice.Request(odd(alice))
		closedOrNone(t, sub, end)
	}}
}

// tolerated is a case of a filter that may be refused, or else must find the event.
func tolerated(id, title string, odd func(alice *suite.User) any) suite.Case {
	return suite.Case{ID: "filters/" + id, Title: "a REQ with " + title + " is answered CLOSED, or as if it were not there", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("meant", tag("t", "x"))
		alice.Accept(e)
		sub, end := alice.Request(odd(alice))
		if end.Label == client.LabelEOSE {
			t.Same("the event", []*nostr.Event{e}, sub.Stored)
		}
	}}
}

func with(alice *suite.User, key string, value any) any {
	return object{"authors": []string{alice.Hex}, key: value}
}

func number(digits string) json.RawMessage { return json.RawMessage(digits) }

var filters = []suite.Case{
	refused("null", "null in the place of a filter", nil),
	refused("array", "an array in the place of a filter", []any{}),
	refused("text", "a string in the place of a filter", "kinds"),
	refused("number", "a number in the place of a filter", 1),
	refused("kinds-number", "kinds that are no list", object{"kinds": 1}),
	refused("kinds-text", "a kind that is a string", object{"kinds": []string{"1"}}),
	refused("kinds-null", "a kind that is null", object{"kinds": []any{nil}}),
	refused("kinds-fraction", "kind 1.5", object{"kinds": []float64{1.5}}),
	refused("ids-text", "ids that are no list", object{"ids": strings.Repeat("0", 64)}),
	refused("ids-number", "an id that is a number", object{"ids": []int{1}}),
	refused("authors-object", "authors that are an object", object{"authors": object{}}),
	refused("tag-text", "tag values that are no list", object{"#t": "x"}),
	refused("tag-number", "a tag value that is a number", object{"#t": []int{1}}),
	refused("since-text", "since that is a string", object{"since": "now"}),
	refused("until-object", "until that is an object", object{"until": object{}}),
	refused("limit-text", "limit that is a string", object{"limit": "5"}),

	{ID: "filters/none", Title: "a REQ without a filter is answered CLOSED", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		_, end := alice.Request()
		t.Check(end.Label == client.LabelClosed, "CLOSED", "%s", end)
	}},
	{ID: "filters/one-bad-of-two", Title: "a REQ of which one filter is bad is answered CLOSED as a whole", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Accept(alice.Note("not meant"))
		sub, end := alice.Request(by(alice), object{"kinds": "x"})
		t.Check(end.Label == client.LabelClosed && len(sub.Stored) == 0, "CLOSED and no event", "%d events and %s", len(sub.Stored), end)
	}},

	answered("kinds-empty", "kinds: []", func(a *suite.User) any { return with(a, "kinds", []int{}) }),
	answered("ids-empty", "ids: []", func(a *suite.User) any { return with(a, "ids", []string{}) }),
	answered("authors-empty", "authors: []", func(*suite.User) any { return object{"authors": []string{}, "#t": []string{"x"}} }),
	answered("tag-empty", "#t: []", func(a *suite.User) any { return with(a, "#t", []string{}) }),
	answered("kinds-too-high", "kind 65536", func(a *suite.User) any { return with(a, "kinds", []int{65_536}) }),
	answered("kinds-wrapped", "kind 65537, which is 1 in 16 bits", func(a *suite.User) any { return with(a, "kinds", []int{65_537}) }),
	answered("kinds-negative", "kind -1", func(a *suite.User) any { return with(a, "kinds", []int{-1}) }),
	answered("kinds-huge", "a kind beyond 64 bits", func(a *suite.User) any {
		return with(a, "kinds", []json.RawMessage{number("18446744073709551617")})
	}),
	answered("ids-not-hex", "an id that is not hex", func(a *suite.User) any { return with(a, "ids", []string{strings.Repeat("zz", 32)}) }),
	answered("ids-blank", "an empty id", func(a *suite.User) any { return with(a, "ids", []string{""}) }),
	answered("authors-upper-case", "an author in upper case", func(a *suite.User) any {
		return object{"authors": []string{strings.ToUpper(a.Hex)}}
	}),
	answered("nul", "a NUL in a tag value", func(a *suite.User) any { return with(a, "#t", []string{"x\x00"}) }),
	answered("tag-nobody-has", "a tag that no event has", func(a *suite.User) any { return with(a, "#z", []string{"x"}) }),
	answered("until-negative", "until before 1970", func(a *suite.User) any { return with(a, "until", -1) }),
	answered("since-huge", "since beyond 64 bits", func(a *suite.User) any { return with(a, "since", number("92233720368547758080")) }),
	answered("since-last", "since at the last second of 63 bits", func(a *suite.User) any { return with(a, "since", int64(math.MaxInt64)) }),
	answered("until-first", "until at the first second of 63 bits", func(a *suite.User) any { return with(a, "until", int64(math.MinInt64)) }),

	tolerated("since-negative", "since before 1970", func(a *suite.User) any { return with(a, "since", -1) }),
	tolerated("since-first", "since at the first second of 63 bits", func(a *suite.User) any { return with(a, "since", int64(math.MinInt64)) }),
	tolerated("until-last", "until at the last second of 63 bits", func(a *suite.User) any { return with(a, "until", int64(math.MaxInt64)) }),
	tolerated("until-huge", "until beyond 64 bits", func(a *suite.User) any { return with(a, "until", number("92233720368547758080")) }),
	tolerated("limit-huge", "a limit of 63 bits", func(a *suite.User) any { return with(a, "limit", int64(math.MaxInt64)) }),
	tolerated("limit-null", "limit: null", func(a *suite.User) any { return with(a, "limit", nil) }),
	tolerated("since-null", "since: null", func(a *suite.User) any { return with(a, "since", nil) }),
	tolerated("kinds-null-list", "kinds: null", func(a *suite.User) any { return with(a, "kinds", nil) }),
	tolerated("unknown-key", "a key that NIP-01 does not know", func(a *suite.User) any { return with(a, "since_when", 5) }),
	tolerated("exponent", "since: 1e3", func(a *suite.User) any { return with(a, "since", number("1e3")) }),

	{ID: "filters/limit-negative", Title: "a REQ with limit -1 is answered", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Request(with(alice, "limit", -1))
	}},
	{ID: "filters/many-authors", Title: "a filter of 1,000 authors is answered", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("one of many")
		alice.Accept(e)
		f := by(alice)
		for i := range 999 {
			f.Authors = append(f.Authors, nostr.PubKey{byte(i), byte(i >> 8), 1}.String())
		}
		sub, end := alice.Request(f)
		if end.Label == client.LabelEOSE {
			t.Same("the event", []*nostr.Event{e}, sub.Stored)
		}
	}},
	{ID: "filters/many-kinds", Title: "a filter of 1,000 kinds is answered", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("one of many")
		alice.Accept(e)
		f := by(alice)
		for k := range nostr.Kind(1000) {
			f.Kinds = append(f.Kinds, k)
		}
		sub, end := alice.Request(f)
		if end.Label == client.LabelEOSE {
			t.Same("the event", []*nostr.Event{e}, sub.Stored)
		}
	}},
	{ID: "filters/ten-thousand", Title: "a REQ of 10,000 filters is answered", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		list := make([]any, 10_000)
		for i := range list {
			list[i] = object{"kinds": []int{i % 100}, "limit": 0}
		}
		alice.Request(list...)
	}},
	{ID: "filters/deep", Title: "a filter that nests five thousand deep is answered", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Request(object{"#t": number(strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000))})
	}},
	{ID: "filters/duplicate-key", Title: "a filter with a key twice is answered", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		alice.Request(number(`{"kinds":[1],"kinds":[2],"authors":["` + alice.Hex + `"]}`))
	}},
}
