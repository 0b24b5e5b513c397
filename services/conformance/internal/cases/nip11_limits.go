package cases

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

var kindText1 = []nostr.Kind{nostr.KindText}

// limited is a case of a number in limitation. What is larger than most is not tried.
func limited(id, title string, required bool, most int64, get func(client.Limitation) *int64, run func(t *suite.T, limit int)) suite.Case {
	return suite.Case{ID: "limits/" + id, Title: title, Required: required, Run: func(t *suite.T) {
		limit := get(t.Relay().Limits())
		if limit == nil || *limit <= 0 {
			t.NotClaimed("it is not stated")
		}
		if *limit > most {
			t.NotClaimed("%d is too much to try", *limit)
		}
		run(t, int(*limit))
	}}
}

func limitCases() []suite.Case {
	return []suite.Case{
		limited("max-message-length", "a message of max_message_length is taken", true, 8<<20,
			func(l client.Limitation) *int64 { return l.MaxMessageLength }, fullMessage),
		limited("max-message-length-exceeded", "a message beyond max_message_length is not taken", true, 8<<20,
			func(l client.Limitation) *int64 { return l.MaxMessageLength }, func(t *suite.T, limit int) {
				alice := t.User()
				e := alice.Note("padded")
				raw := string(e.AppendJSON(nil))
				ctx, cancel := t.Step()
				defer cancel()
				_ = alice.Conn().Send(ctx, []byte(`["EVENT",`+strings.Repeat(" ", limit)+raw+`]`)) // the relay may hang up in the middle
				t.Check(!alice.Again().Has(e), "nothing stored", "the event in a message of %d bytes", limit+len(raw)+10)
			}),
		limited("max-subscriptions", "max_subscriptions may be open on one connection", true, 2048,
			func(l client.Limitation) *int64 { return l.MaxSubscriptions }, allSubscriptions),
		limited("max-subid-length", "a subscription id of max_subid_length is taken", true, 100_000,
			func(l client.Limitation) *int64 { return l.MaxSubIDLength }, func(t *suite.T, limit int) {
				alice := t.User()
				alice.OpenAs(strings.Repeat("i", limit), by(alice))
			}),
		limited("max-subid-length-exceeded", "a subscription id beyond max_subid_length is refused", true, 100_000,
			func(l client.Limitation) *int64 { return l.MaxSubIDLength }, func(t *suite.T, limit int) {
				alice := t.User()
				mark := alice.Conn().Mark()
				send(t, alice, "REQ", strings.Repeat("i", limit+1), by(alice))
				ctx, cancel := t.Step()
				defer cancel()
				f, _, err := alice.Conn().Await(ctx, mark, func(f *client.Frame) bool { return f.Label != client.LabelAuth })
				t.Check(err == nil && (f.Label == client.LabelNotice || f.Label == client.LabelClosed), "NOTICE or CLOSED", "%s", suite.Saw(f, err))
			}),
		limited("max-filters", "max_filters may be in a REQ, and no more", true, 2000,
			func(l client.Limitation) *int64 { return l.MaxFilters }, func(t *suite.T, limit int) {
				alice := t.User()
				list := make([]any, limit+1)
				for i := range list {
					list[i] = filter{Authors: []string{alice.Hex}, Kinds: []nostr.Kind{nostr.Kind(i)}}
				}
				alice.Open(list[:limit]...)
				_, end := alice.Request(list...)
				t.Check(end.Label == client.LabelClosed, fmt.Sprintf("CLOSED for %d filters", limit+1), "%s", end)
			}),
		limited("max-event-tags", "an event may have max_event_tags, and no more", true, 20_000,
			func(l client.Limitation) *int64 { return l.MaxEventTags }, func(t *suite.T, limit int) {
				if message := t.Relay().Limits().MaxMessageLength; message != nil && int64(limit)*9+1000 > *message {
					t.NotClaimed("so many tags do not fit into a message")
				}
				alice := t.User()
				tags := make([]nostr.Tag, limit+1)
				for i := range tags {
					tags[i] = tag("x", "")
				}
				alice.Accept(alice.Note("as many", tags[:limit]...))
				alice.Refuse(alice.Note("one more", tags...))
			}),
		limited("max-content-length", "content may have max_content_length characters, and no more", true, 4<<20,
			func(l client.Limitation) *int64 { return l.MaxContentLength }, func(t *suite.T, limit int) {
				if message := t.Relay().Limits().MaxMessageLength; message != nil && int64(limit)+1000 > *message {
					t.NotClaimed("so much content does not fit into a message")
				}
				alice := t.User()
				e := alice.Note(strings.Repeat("c", limit))
				alice.Accept(e)
				unchanged(t, e, alice.Query(only(e)))
				alice.Refuse(alice.Note(strings.Repeat("c", limit+1)))
			}),
		limited("max-content-length-unicode", "max_content_length counts characters, not bytes", false, 4<<20,
			func(l client.Limitation) *int64 { return l.MaxContentLength }, func(t *suite.T, limit int) {
				n := limit
				if message := t.Relay().Limits().MaxMessageLength; message != nil {
					n = min(n, (int(*message)-1000)/2)
				}
				alice := t.User()
				alice.Accept(alice.Note(strings.Repeat("é", n)))
			}),
		limited("max-limit", "a filter gets at most max_limit events, the newest", true, 1000,
			func(l client.Limitation) *int64 { return l.MaxLimit }, func(t *suite.T, limit int) {
				crowd(t, limit, func(f *filter) { f.Limit = new(limit + 5) })
			}),
		limited("default-limit", "a filter without a limit gets at most default_limit events, the newest", true, 1000,
			func(l client.Limitation) *int64 { return l.DefaultLimit }, func(t *suite.T, limit int) {
				crowd(t, limit, func(*filter) {})
			}),
		limited("created-at-lower", "an event older than created_at_lower_limit is refused, a younger one is not", true, 100*year,
			func(l client.Limitation) *int64 { return l.CreatedAtLowerLimit }, func(t *suite.T, limit int) {
				alice := t.User()
				alice.Refuse(alice.Event(t.Now()-int64(limit)-60, nostr.KindText, "too old"), "invalid", "blocked", "restricted")
				if limit > 120 {
					alice.Accept(alice.Event(t.Now()-int64(limit)+60, nostr.KindText, "just young enough"))
				}
			}),
		limited("created-at-upper", "an event further ahead than created_at_upper_limit is refused, a nearer one is not", true, 100*year,
			func(l client.Limitation) *int64 { return l.CreatedAtUpperLimit }, func(t *suite.T, limit int) {
				alice := t.User()
				alice.Refuse(alice.Event(t.Now()+int64(limit)+60, nostr.KindText, "too far ahead"), "invalid", "blocked", "restricted")
				if limit > 120 {
					alice.Accept(alice.Event(t.Now()+int64(limit)-60, nostr.KindText, "just near enough"))
				}
			}),
	}
}

// fullMessage sends a message of exactly the limit. It is filled up with blanks, so that no other limit is
// met.
func fullMessage(t *suite.T, limit int) {
	alice := t.User()
	e := alice.Note("padded")
	raw := string(e.AppendJSON(nil))
	frame := `["EVENT",` + strings.Repeat(" ", limit-len(raw)-len(`["EVENT",]`)) + raw + `]`
	v := alice.OfferFrame(e.ID, []byte(frame))
	t.Check(v.OK, fmt.Sprintf("OK true for a message of %d bytes", len(frame)), "%s", v)
}

// ordinaryKinds is the first of a few thousand kinds for which no NIP has a rule: a relay may refuse a filter that
// names gift wraps without saying whose.
const ordinaryKinds nostr.Kind = 2100

// allSubscriptions opens as many subscriptions as may be open, and one more. Each asks for something else,
// so that an event is for one of them.
func allSubscriptions(t *suite.T, limit int) {
	alice, bob := t.User(), t.User()
	mark := bob.Conn().Mark()
	for i := range limit {
		send(t, bob, "REQ", fmt.Sprintf("many-%d", i), filter{Authors: []string{alice.Hex}, Kinds: []nostr.Kind{ordinaryKinds + nostr.Kind(i)}, Limit: new(0)})
	}
	for n := range limit {
		ctx, cancel := t.Step()
		end, next, err := bob.Conn().Await(ctx, mark, func(f *client.Frame) bool {
			return f.Label == client.LabelEOSE || f.Label == client.LabelClosed
		})
		cancel()
		t.Check(err == nil && end.Label == client.LabelEOSE, fmt.Sprintf("EOSE for each of %d subscriptions", limit), "%s after %d", suite.Saw(end, err), n)
		mark = next
	}
	_, end := bob.Request(by(alice))
	t.Check(end.Label == client.LabelClosed, "CLOSED for one more", "%s", end)
	for _, i := range []int{0, limit / 2, limit - 1} {
		e := alice.Event(t.Now(), ordinaryKinds+nostr.Kind(i), "for one of them")
		alice.Accept(e)
		ctx, cancel := t.Step()
		f, next, err := bob.Conn().Await(ctx, mark, func(f *client.Frame) bool { return f.Label == client.LabelEvent })
		cancel()
		t.Check(err == nil && f.Sub == fmt.Sprintf("many-%d", i), fmt.Sprintf("the event for many-%d", i), "%s", suite.Saw(f, err))
		mark = next
	}
}

// crowd publishes a few events more than a limit and looks whether the filter gets the newest of them.
func crowd(t *suite.T, limit int, set func(*filter)) {
	alice := t.User()
	at := t.Past(10)
	var list []*nostr.Event
	for i := range limit + 5 {
		list = append(list, alice.Event(at[i%len(at)], nostr.KindText, strconv.Itoa(i)))
	}
	alice.Accept(list...)
	f := by(alice)
	set(&f)
	t.Same("the newest", newestFirst(list...)[:limit], alice.Query(f))
}
