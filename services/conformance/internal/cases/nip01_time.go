package cases

import (
	"math"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

const (
	day  = 24 * 60 * 60
	year = 365 * day
)

// moments are values of created_at. Relays may refuse what is far off, and NIP-11 lets them say so.
var moments = []struct {
	id, title string
	required  bool
	at        func(now int64) int64
	// spelled is how the number is written, empty for its digits.
	spelled string
}{
	{"week-old", "of a week ago", true, func(now int64) int64 { return now - 7*day }, ""},
	{"month-old", "of a month ago", true, func(now int64) int64 { return now - 30*day }, ""},
	{"year-old", "of a year ago", true, func(now int64) int64 { return now - year }, ""},
	{"2015", "of 2015", true, func(int64) int64 { return 1_420_070_400 }, ""},
	{"1999", "of 1999", false, func(int64) int64 { return 915_148_800 }, ""},
	{"zero", "of second 0", false, func(int64) int64 { return 0 }, ""},
	{"negative", "of before 1970", false, func(int64) int64 { return -1 }, ""},
	{"year-ahead", "of a year ahead", false, func(now int64) int64 { return now + year }, ""},
	{"beyond-31-bits", "with a time beyond 31 bits", false, func(int64) int64 { return 1<<31 + 1 }, ""},
	{"beyond-32-bits", "with a time beyond 32 bits", false, func(int64) int64 { return 1<<32 + 1 }, ""},
	{"last", "of the last second of 63 bits", false, func(int64) int64 { return math.MaxInt64 }, ""},
	{"exponent", "with a time written 1e+10", false, func(int64) int64 { return 10_000_000_000 }, "1e+10"},
}

func timestamps() []suite.Case {
	var list []suite.Case
	for _, m := range moments {
		list = append(list, suite.Case{
			ID: "created-at/" + m.id, Title: "an event " + m.title + " is kept and found at its time", Required: m.required,
			Run: func(t *suite.T) {
				alice := t.User()
				at := m.at(t.Now())
				e := alice.Event(at, nostr.KindText, "of another time")
				raw := string(e.AppendJSON(nil))
				if m.spelled != "" {
					raw = strings.Replace(raw, `"created_at":`+strconv.FormatInt(at, 10), `"created_at":`+m.spelled, 1)
				}
				allowed := withinWindow(t, at)
				if v := alice.OfferRaw(e.ID, []byte(raw)); !v.OK {
					t.NotClaimed("the relay refuses it: %s", v.Message)
				}
				t.Check(allowed, "a refusal, because NIP-11 states limits for created_at", "OK true")
				unchanged(t, e, alice.Query(only(e)))
				f := by(alice)
				f.Since, f.Until = new(at), new(at)
				t.Same("the event, between its time and its time", []*nostr.Event{e}, alice.Query(f))
			},
		})
	}
	return list
}

// withinWindow reports whether NIP-11's limits allow a time.
func withinWindow(t *suite.T, at int64) bool {
	limits, now := t.Relay().Limits(), t.Now()
	lower, upper := limits.CreatedAtLowerLimit, limits.CreatedAtUpperLimit
	return (lower == nil || at >= now-*lower) && (upper == nil || at <= now+*upper)
}
