package cases

import (
	"fmt"
	"strings"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// texts are strings that an event must carry unchanged, in its content and in its tags.
var texts = []struct {
	id, title, text string
	required        bool
}{
	{"nip01-escapes", "the escapes of NIP-01", "line\nquote\"backslash\\return\rtab\tbackspace\bfeed\f", true},
	{"slashes", "slashes and markup, which nothing escapes", "</script> a/b & <c> 'd'", true},
	{"unicode", "letters of many scripts", "é ñ ß Ω Ж א ع 漢字 한글 \u0e01\u0e33 e\u0301", true},
	{"astral", "characters beyond the basic plane", "😀 👩‍👩‍👧‍👦 𝒳 🏴󠁧󠁢󠁷󠁬󠁳󠁿", true},
	{"separators", "line and paragraph separators, a byte order mark, DEL", "\u2028\u2029\ufeff\u007f\u0085\u200b\u202e", true},
	{"non-characters", "code points that are no characters", "\ufdd0\ufdd1\ufffe\uffff\U0001fffe\U0010fffe\U0010ffff\ufffd", true},
	{"control-characters", "control characters that NIP-01 does not list", controls(), false},
	{"nul", "the character NUL", "a\x00b", false},
	{"long", "a line of 10,000 characters", strings.Repeat("0123456789", 1000), true},
}

// controls are the control characters but NUL that have no escape in NIP-01.
func controls() string {
	var b strings.Builder
	for c := rune(1); c < 0x20; c++ {
		if !strings.ContainsRune("\n\r\t\b\f", c) {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// respellings write the same event in other JSON.
var respellings = []struct {
	id, title string
	respell   func(e *nostr.Event) string
}{
	{"spaces", "whitespace between the tokens", func(e *nostr.Event) string {
		return fmt.Sprintf(" { \"id\" : %q , \n\t\"pubkey\":%q,\r\n\"created_at\": %d ,\"kind\" :%d,\"tags\" : [ [ \"t\" , \"a/b\" ] ] , \"content\" : \"A/😀\" ,\"sig\":%q } ",
			e.ID, e.PubKey, e.CreatedAt, e.Kind, e.Sig)
	}},
	{"order", "keys in another order", func(e *nostr.Event) string {
		return fmt.Sprintf(`{"sig":%q,"content":"A/😀","tags":[["t","a/b"]],"kind":%d,"created_at":%d,"pubkey":%q,"id":%q}`,
			e.Sig, e.Kind, e.CreatedAt, e.PubKey, e.ID)
	}},
	{"escapes", `\/ and \u escapes where they are not needed`, func(e *nostr.Event) string {
		return fmt.Sprintf(`{"id":%q,"pubkey":%q,"created_at":%d,"kind":%d,"tags":[["\u0074","a\/b"]],"content":"\u0041\/\ud83d\ude00","sig":%q}`,
			e.ID, e.PubKey, e.CreatedAt, e.Kind, e.Sig)
	}},
	{"escaped-keys", `keys written with \u escapes`, func(e *nostr.Event) string {
		return fmt.Sprintf(`{"\u0069d":%q,"pubkey":%q,"created_at":%d,"kind":%d,"tags":[["t","a/b"]],"cont\u0065nt":"A/😀","sig":%q}`,
			e.ID, e.PubKey, e.CreatedAt, e.Kind, e.Sig)
	}},
}

func spelling() []suite.Case {
	var list []suite.Case
	for _, c := range texts {
		list = append(list, suite.Case{
			ID: "json/" + c.id, Title: "an event carries " + c.title, Required: c.required,
			Run: func(t *suite.T) {
				alice := t.User()
				e := alice.Note(c.text, tag("t", c.text))
				alice.Accept(e)
				unchanged(t, e, alice.Query(only(e)))
			},
		}, suite.Case{
			// Relays may index only so much of a long tag.
			ID: "json/" + c.id + "-tag", Title: "a filter finds a tag of " + c.title, Required: c.required && len(c.text) < 1000,
			Run: func(t *suite.T) {
				alice := t.User()
				e := alice.Note("found by its tag", tag("t", c.text))
				alice.Accept(e)
				f := tagged("t", c.text)
				f.Authors = []string{alice.Hex}
				t.Same("the event", []*nostr.Event{e}, alice.Query(f))
				f = tagged("t", c.text+"x")
				f.Authors = []string{alice.Hex}
				t.Same("nothing by a longer value", nil, alice.Query(f))
			},
		})
	}
	for _, c := range respellings {
		list = append(list, suite.Case{
			ID: "json/respelled-" + c.id, Title: "the id is of what an event says, not of how: " + c.title, Required: true,
			Run: func(t *suite.T) {
				alice := t.User()
				e := alice.Note("A/😀", tag("t", "a/b"))
				v := alice.OfferRaw(e.ID, []byte(c.respell(e)))
				t.Check(v.OK, "OK true", "%s", v)
				unchanged(t, e, alice.Query(only(e)))
			},
		})
	}
	return list
}
