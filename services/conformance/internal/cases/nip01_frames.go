package cases

import (
	"strings"

	"github.com/apiary-relay/apiary/services/conformance/internal/client"
	"github.com/apiary-relay/apiary/services/conformance/internal/suite"
)

// hostile is a frame that is no message of NIP-01. A relay may answer it with a NOTICE, say nothing or hang
// up on who sent it; it may not fall over, and nobody else may notice.
type hostile struct {
	id, title string
	frame     func(t *suite.T) string
	binary    bool
}

// fixed is a hostile frame of a fixed text.
func fixed(id, title, frame string) hostile {
	return hostile{id: id, title: title, frame: func(*suite.T) string { return frame }}
}

var hostileFrames = []hostile{
	fixed("empty", "an empty frame", ""),
	fixed("blank", "a frame of blanks", " \n\t "),
	fixed("text", "a frame that is no JSON", "hello"),
	fixed("null", "null", "null"),
	fixed("number", "a number", "12345"),
	fixed("object", "an object", `{"kinds":[1]}`),
	fixed("empty-array", "an empty array", "[]"),
	fixed("label-number", "a label that is a number", `[1,2,3]`),
	fixed("label-null", "a label that is null", `[null]`),
	fixed("label-array", "a label that is an array", `[["REQ"],"x",{}]`),
	fixed("label-unknown", "an unknown label", `["HELLO","x"]`),
	fixed("label-lower-case", "a label in lower case", `["req","x",{"limit":1}]`),
	fixed("label-of-relay", "a label that only relays use", `["EOSE","x"]`),
	fixed("label-long", "a label of 100,000 characters", `["`+strings.Repeat("R", 100_000)+`"]`),
	fixed("event-missing", "EVENT alone", `["EVENT"]`),
	fixed("event-null", "EVENT with null", `["EVENT",null]`),
	fixed("event-text", "EVENT with a string", `["EVENT","event"]`),
	fixed("event-empty", "EVENT with an empty object", `["EVENT",{}]`),
	fixed("event-short-id", "EVENT with a short id", `["EVENT",{"id":"abc"}]`),
	fixed("event-id-number", "EVENT with an id that is a number", `["EVENT",{"id":1}]`),
	fixed("req-missing", "REQ alone", `["REQ"]`),
	fixed("req-id-number", "REQ with an id that is a number", `["REQ",1,{"limit":1}]`),
	fixed("req-id-null", "REQ with an id that is null", `["REQ",null,{"limit":1}]`),
	fixed("req-id-object", "REQ with an id that is an object", `["REQ",{},{"limit":1}]`),
	fixed("req-id-long", "REQ with an id of 100,000 characters", `["REQ","`+strings.Repeat("x", 100_000)+`",{"limit":1}]`),
	fixed("close-missing", "CLOSE alone", `["CLOSE"]`),
	fixed("close-number", "CLOSE with a number", `["CLOSE",1]`),
	fixed("auth-missing", "AUTH alone", `["AUTH"]`),
	fixed("auth-text", "AUTH with a string", `["AUTH","challenge"]`),
	fixed("auth-empty", "AUTH with an empty object", `["AUTH",{}]`),
	fixed("truncated", "a frame that breaks off", `["REQ","x",{"kinds":[1`),
	fixed("truncated-string", "a frame that breaks off inside a string", `["REQ","x`),
	fixed("truncated-escape", "a frame that breaks off inside an escape", `["NOTICE","\u00`),
	fixed("trailing", "a frame with something behind its end", `["CLOSE","x"] and more`),
	fixed("two", "two frames in one", `["CLOSE","x"]["CLOSE","y"]`),
	fixed("comment", "JSON with a comment", `["CLOSE","x" /* bye */]`),
	fixed("trailing-comma", "JSON with a comma too many", `["CLOSE","x",]`),
	fixed("nul-byte", "a frame with a NUL byte in it", "[\"CLOSE\",\"x\x00\"]"),
	fixed("invalid-utf8", "a text frame that is not UTF-8", "[\"CLOSE\",\"\xff\xfe\"]"),
	fixed("overlong-utf8", "a text frame with an overlong encoding", "[\"CLOSE\",\"\xc0\xaf\"]"),
	fixed("surrogate-utf8", "a text frame with an encoded surrogate", "[\"CLOSE\",\"\xed\xa0\x80\"]"),
	fixed("bom", "a frame that begins with a byte order mark", "\ufeff[\"CLOSE\",\"x\"]"),
	fixed("deep-array", "arrays nested 100,000 deep", strings.Repeat("[", 100_000)),
	fixed("deep-closed-array", "arrays nested 100,000 deep, and closed", strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)),
	fixed("deep-object", "objects nested 50,000 deep", `["REQ","x",`+strings.Repeat(`{"a":`, 50_000)),
	fixed("huge-number", "a number of 100,000 digits", `["REQ","x",{"since":`+strings.Repeat("9", 100_000)+`}]`),
	fixed("many-elements", "an array of 200,000 elements", "["+strings.Repeat("0,", 200_000)+"0]"),
	fixed("many-keys", "a filter of 20,000 keys", `["REQ","x",{`+strings.Repeat(`"k":1,`, 20_000)+`"limit":1}]`),
	{id: "binary", title: "a binary frame", binary: true, frame: func(*suite.T) string { return `["REQ","x",{"limit":1}]` }},
	{id: "binary-noise", title: "a binary frame of noise", binary: true, frame: func(t *suite.T) string {
		noise := make([]byte, 4096)
		for i := range noise {
			noise[i] = byte(t.Rand().Uint32())
		}
		return string(noise)
	}},
	{id: "huge", title: "a frame beyond max_message_length, or of 4 MiB", frame: func(t *suite.T) string {
		size := 4 << 20
		if limit := t.Relay().Limits().MaxMessageLength; limit != nil {
			size = min(int(*limit)+1, 32<<20)
		}
		return `["REQ","huge",{"#t":["` + strings.Repeat("x", size) + `"]}]`
	}},
}

func frames() []suite.Case {
	var list []suite.Case
	for _, h := range hostileFrames {
		list = append(list, suite.Case{
			ID: "frames/" + h.id, Title: h.title + " harms nobody, and its sender at most by a hang-up", Required: true,
			Run: func(t *suite.T) { survive(t, &h) },
		})
	}
	return append(list, spokenTo...)
}

// survive sends the frame, and looks whether the relay still does its work for the sender and for others.
func survive(t *suite.T, h *hostile) {
	mallory, bob := t.User(), t.User()
	sub := bob.Open(by(bob))
	frame := []byte(h.frame(t))
	ctx, cancel := t.Step()
	defer cancel()
	// An error means that the relay hung up in the middle.
	if h.binary {
		_ = mallory.Conn().SendBinary(ctx, frame)
	} else {
		_ = mallory.Conn().Send(ctx, frame)
	}
	e := bob.Note("nobody else notices")
	bob.Accept(e)
	sub.Expect(e)
	if !hungUp(t, mallory) {
		t.Check(len(mallory.Query(only(e))) == 1, "the sender is still served", "nothing")
	}
	t.Check(mallory.Again().Has(e), "the sender is served again", "nothing")
}

// hungUp reports whether the relay closes the user's connection, or answers another REQ on it.
func hungUp(t *suite.T, u *suite.User) bool {
	ctx, cancel := t.Step()
	defer cancel()
	mark, id := u.Conn().Mark(), u.Conn().NewSub()
	if err := u.Conn().SendJSON(ctx, "REQ", id, by(u)); err != nil {
		return true
	}
	_, _, err := u.Conn().Await(ctx, mark, func(f *client.Frame) bool { return f.Sub == id })
	if err == nil {
		return false
	}
	select {
	case <-u.Conn().Gone():
		return true
	default:
		t.Fail("the connection is served, or closed", "neither: %v", err)
		return false
	}
}

// spokenTo are frames from which the relay can tell whom to answer although they are broken.
var spokenTo = []suite.Case{
	{ID: "frames/req-truncated", Title: "a REQ that breaks off after its id is answered CLOSED", Run: func(t *suite.T) {
		closedFor(t, "cut", `["REQ","cut",{"kinds":[1`)
	}},
	{ID: "frames/req-trailing", Title: "a REQ with something behind its end is answered CLOSED", Run: func(t *suite.T) {
		closedFor(t, "more", `["REQ","more",{"kinds":[1]}] and more`)
	}},
	{ID: "frames/req-huge", Title: "a REQ beyond max_message_length is answered CLOSED", Run: func(t *suite.T) {
		limit := t.Relay().Limits().MaxMessageLength
		if limit == nil || *limit > 8<<20 {
			t.NotClaimed("the relay states no max_message_length up to 8 MiB")
		}
		closedFor(t, "huge", `["REQ","huge",{"#t":["`+strings.Repeat("x", int(*limit))+`"]}]`)
	}},
	{ID: "frames/req-invalid-utf8", Title: "a REQ that is not UTF-8 after its id is answered CLOSED", Run: func(t *suite.T) {
		closedFor(t, "utf8", "[\"REQ\",\"utf8\",{\"#t\":[\"\xff\"]}]")
	}},
	{ID: "frames/notice", Title: "a frame that says nothing about whom to answer gets a NOTICE", Run: func(t *suite.T) {
		alice := t.User()
		ctx, cancel := t.Step()
		defer cancel()
		mark := alice.Conn().Mark()
		send(t, alice, "HELLO", 1)
		_, _, err := alice.Conn().Await(ctx, mark, func(f *client.Frame) bool { return f.Label == client.LabelNotice })
		t.Check(err == nil, "NOTICE", "%v", err)
	}},
}

// closedFor sends a frame and fails the case unless a CLOSED for the subscription id answers it.
func closedFor(t *suite.T, id, frame string) {
	alice := t.User()
	ctx, cancel := t.Step()
	defer cancel()
	mark := alice.Conn().Mark()
	_ = alice.Conn().Send(ctx, []byte(frame)) // the relay may hang up in the middle
	f, _, err := alice.Conn().Await(ctx, mark, func(f *client.Frame) bool { return f.Label == client.LabelClosed && f.Sub == id })
	t.Check(err == nil, "CLOSED for "+id, "%v", err)
	t.CheckClosed(f)
}
