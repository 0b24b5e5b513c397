package cases

import (
	"encoding/json"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// fields is an event object that can be made wrong.
type fields map[string]any

func fieldsOf(t *suite.T, e *nostr.Event) fields {
	var f fields
	err := json.Unmarshal(e.AppendJSON(nil), &f)
	t.Check(err == nil, "an event as a JSON object", "%v", err)
	f["created_at"], f["kind"] = e.CreatedAt, e.Kind // exactly, not as float64
	return f
}

// broken is an event that is well-formed JSON but no event, though its id can be read.
type broken struct {
	id, title string
	spoil     func(f fields)
}

var brokenEvents = []broken{
	{"without-sig", "no sig", func(f fields) { delete(f, "sig") }},
	{"without-pubkey", "no pubkey", func(f fields) { delete(f, "pubkey") }},
	{"without-created-at", "no created_at", func(f fields) { delete(f, "created_at") }},
	{"without-kind", "no kind", func(f fields) { delete(f, "kind") }},
	{"without-tags", "no tags", func(f fields) { delete(f, "tags") }},
	{"without-content", "no content", func(f fields) { delete(f, "content") }},
	{"short-sig", "a short sig", func(f fields) { f["sig"] = "abcd" }},
	{"sig-not-hex", "a sig that is not hex", func(f fields) { f["sig"] = strings.Repeat("zz", 64) }},
	{"upper-case-sig", "an upper-case sig", func(f fields) { f["sig"] = strings.ToUpper(f["sig"].(string)) }},
	{"upper-case-pubkey", "an upper-case pubkey", func(f fields) { f["pubkey"] = strings.ToUpper(f["pubkey"].(string)) }},
	{"short-pubkey", "a short pubkey", func(f fields) { f["pubkey"] = "00" }},
	{"pubkey-off-the-curve", "a pubkey that is no point of the curve", func(f fields) { f["pubkey"] = strings.Repeat("f", 64) }},
	{"kind-text", "a kind that is a string", func(f fields) { f["kind"] = "1" }},
	{"kind-negative", "kind -1", func(f fields) { f["kind"] = -1 }},
	{"kind-too-high", "kind 65536", func(f fields) { f["kind"] = 65536 }},
	{"kind-huge", "a kind beyond 64 bits", func(f fields) { f["kind"] = json.RawMessage("18446744073709551617") }},
	{"kind-fraction", "kind 1.5", func(f fields) { f["kind"] = 1.5 }},
	{"created-at-text", "a created_at that is a string", func(f fields) { f["created_at"] = "now" }},
	{"created-at-fraction", "a created_at with a fraction", func(f fields) { f["created_at"] = json.RawMessage("1700000000.5") }},
	{"created-at-huge", "a created_at beyond 64 bits", func(f fields) { f["created_at"] = json.RawMessage("92233720368547758080") }},
	{"created-at-infinite", "a created_at beyond any float", func(f fields) { f["created_at"] = json.RawMessage("1e400") }},
	{"tags-object", "tags that are an object", func(f fields) { f["tags"] = object{} }},
	{"tags-null", "tags that are null", func(f fields) { f["tags"] = nil }},
	{"tag-text", "a tag that is a string", func(f fields) { f["tags"] = []any{"t"} }},
	{"tag-number", "a tag with a number in it", func(f fields) { f["tags"] = []any{[]any{"t", 1}} }},
	{"tag-null", "a tag with a null in it", func(f fields) { f["tags"] = []any{[]any{"t", nil}} }},
	{"tag-nested", "a tag with an array in it", func(f fields) { f["tags"] = []any{[]any{"t", []any{"x"}}} }},
	{"content-null", "content that is null", func(f fields) { f["content"] = nil }},
	{"content-object", "content that is an object", func(f fields) { f["content"] = object{"a": 1} }},
	{"deep", "tags nested five thousand deep", func(f fields) {
		f["tags"] = json.RawMessage(strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000))
	}},
}

func malformedEvents() []suite.Case {
	var list []suite.Case
	for _, b := range brokenEvents {
		list = append(list, suite.Case{
			ID: "malformed/" + b.id, Title: "an event with " + b.title + " is answered OK false for its id", Required: true,
			Run: func(t *suite.T) {
				alice := t.User()
				e := alice.Note("broken", tag("t", b.id))
				f := fieldsOf(t, e)
				b.spoil(f)
				v := alice.OfferRaw(e.ID, encode(t, f))
				t.Check(!v.OK, "OK false", "%s", v)
				t.Check(len(alice.Query(by(alice))) == 0, "nothing stored", "an event")
			},
		})
	}
	return append(list, oddEvents...)
}

// oddEvents are events on which NIP-01 has no clear word. The relay may take them or not, but answers, and
// what it takes it keeps.
var oddEvents = []suite.Case{
	{ID: "malformed/empty-tag", Title: "an event with an empty tag is answered, and kept unchanged if accepted", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("an empty tag", nostr.Tag{})
		if v := alice.Offer(e); v.OK {
			unchanged(t, e, alice.Query(only(e)))
		}
	}},
	{ID: "malformed/empty-tag-name", Title: "an event with a tag of an empty name is answered, and kept unchanged if accepted", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("an empty name", tag(""), tag("", ""))
		if v := alice.Offer(e); v.OK {
			unchanged(t, e, alice.Query(only(e)))
		}
	}},
	{ID: "malformed/unknown-field", Title: "an event with a field that NIP-01 does not know is answered, and kept if accepted", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("one field more")
		f := fieldsOf(t, e)
		f["seen_on"] = []string{"wss://relay.example"}
		if v := alice.OfferRaw(e.ID, encode(t, f)); v.OK {
			unchanged(t, e, alice.Query(only(e)))
		}
	}},
	{ID: "malformed/duplicate-key", Title: "an event with a key twice is answered, and serves what it signs if accepted", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("signed")
		raw := strings.Replace(string(e.AppendJSON(nil)), `"content":"signed"`, `"content":"forged","content":"signed"`, 1)
		if v := alice.OfferRaw(e.ID, []byte(raw)); v.OK {
			unchanged(t, e, alice.Query(only(e)))
		}
	}},
	{ID: "malformed/duplicate-key-forged", Title: "an event whose second key does not fit its id is refused", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("signed")
		raw := strings.Replace(string(e.AppendJSON(nil)), `"content":"signed"`, `"content":"signed","content":"forged"`, 1)
		if v := alice.OfferRaw(e.ID, []byte(raw)); v.OK {
			// Readers that keep the first key see a valid event; then it must be served as it was signed.
			unchanged(t, e, alice.Query(only(e)))
		}
	}},
	{ID: "malformed/trailing-element", Title: "an EVENT with a third element is answered", Required: true, Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("and more")
		ctx, cancel := t.Step()
		defer cancel()
		mark := alice.Conn().Mark()
		err := alice.Conn().Send(ctx, []byte(`["EVENT",`+string(e.AppendJSON(nil))+`,{"more":1}]`))
		t.Check(err == nil, "the relay reads an EVENT", "%v", err)
		_, err = alice.Conn().Verdict(ctx, mark, e.ID)
		t.Check(err == nil, "EVENT is answered with an OK for its id", "%v", err)
	}},
	{ID: "malformed/truncated", Title: "an EVENT that breaks off after its id is answered OK false", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("breaks off")
		raw := e.AppendJSON(nil)
		v := alice.OfferFrame(e.ID, []byte(`["EVENT",`+string(raw[:len(raw)-20])))
		t.Check(!v.OK, "OK false", "%s", v)
	}},
	{ID: "malformed/control-character", Title: "an EVENT with a bare control character in a string is answered OK", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("a\x01b")
		raw := strings.Replace(string(e.AppendJSON(nil)), `\u0001`, "\x01", 1)
		if v := alice.OfferRaw(e.ID, []byte(raw)); v.OK {
			unchanged(t, e, alice.Query(only(e)))
		}
	}},
	{ID: "malformed/invalid-utf8", Title: "an EVENT that is not UTF-8 is answered OK false", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("not utf8 X")
		raw := strings.Replace(string(e.AppendJSON(nil)), "utf8 X", "utf8 \xff", 1)
		v := alice.OfferRaw(e.ID, []byte(raw))
		t.Check(!v.OK, "OK false", "%s", v)
	}},
	{ID: "malformed/lone-surrogate", Title: "an EVENT with half of a surrogate pair is answered OK", Run: func(t *suite.T) {
		alice := t.User()
		e := alice.Note("half X")
		raw := strings.Replace(string(e.AppendJSON(nil)), "half X", `half \ud83d`, 1)
		v := alice.OfferRaw(e.ID, []byte(raw))
		t.Check(!v.OK, "OK false", "%s", v)
	}},
	{ID: "malformed/too-large", Title: "an EVENT beyond max_message_length is answered OK false for its id", Run: func(t *suite.T) {
		limit := t.Relay().Limits().MaxMessageLength
		if limit == nil || *limit > 8<<20 {
			t.NotClaimed("the relay states no max_message_length up to 8 MiB")
		}
		alice := t.User()
		e := alice.Note(strings.Repeat("x", int(*limit)))
		v := alice.Offer(e)
		t.Check(!v.OK, "OK false", "%s", v)
		t.Check(!alice.Again().Has(e), "nothing stored", "the event")
	}},
}

func encode(t *suite.T, v any) []byte {
	raw, err := json.Marshal(v)
	t.Check(err == nil, "JSON", "%v", err)
	return raw
}

// closedOrNone fails the case unless the relay refused the REQ in words, or found nothing.
func closedOrNone(t *suite.T, sub *suite.Sub, end *client.Frame) {
	t.Check(end.Label == client.LabelClosed || len(sub.Stored) == 0, "CLOSED, or nothing and EOSE", "%d events and %s", len(sub.Stored), end)
}
