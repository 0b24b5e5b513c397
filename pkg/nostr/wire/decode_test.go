package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

var hexID = strings.Repeat("0123456789abcdef", 4)

func decode(s string) (wire.Frame, error) { return wire.Decode([]byte(s), wire.DefaultLimits()) }

// refused returns the error of a frame that must be refused.
func refused(t *testing.T, frame string, l wire.Limits) *wire.DecodeError {
	t.Helper()
	f, err := wire.Decode([]byte(frame), l)
	var de *wire.DecodeError
	require.ErrorAs(t, err, &de)
	require.Zero(t, f)
	require.NotEmpty(t, de.Msg)
	require.Equal(t, de.Msg, de.Error())
	require.LessOrEqual(t, de.Offset, len(frame))
	return de
}

func TestDecodeEventFrame(t *testing.T) {
	t.Parallel()
	ev := nostrtest.Event(t, "alice", nostrtest.Channel("lobby"), nostrtest.Content("a]}\"b"))
	raw := string(nostrtest.Raw(ev))
	spaced := " \t\r\n" + strings.ReplaceAll(raw, `":`, "\" :\n ") // between tokens only: no string of it has ":
	for name, frame := range map[string]string{
		"plain":   `["EVENT",` + raw + `]`,
		"spaced":  "\n[ \"EVENT\" ,\t" + spaced + "\r\n] ",
		"auth":    `["AUTH",` + raw + `]`,
		"escaped": `["\u0045VENT",` + raw + `]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := decode(frame)
			require.NoError(t, err)
			require.True(t, f.HaveID)
			require.Equal(t, ev.ID, f.EventID)
			want := wire.LabelEvent
			if name == "auth" {
				want = wire.LabelAuth
			}
			require.Equal(t, want, f.Label)
			if name == "spaced" {
				require.Equal(t, strings.TrimLeft(spaced, " \t\r\n"), string(f.RawEvent), "exactly the object's bytes")
			} else {
				require.Equal(t, raw, string(f.RawEvent))
			}
			require.Equal(t, len(f.RawEvent), cap(f.RawEvent), "appending must not write into the frame")
			got, err := wire.DecodeEvent(f.RawEvent, wire.DefaultLimits())
			require.NoError(t, err)
			require.Equal(t, ev, got)
		})
	}
}

func TestDecodeOtherFrames(t *testing.T) {
	t.Parallel()
	kind1 := []nostr.Filter{{Kinds: []nostr.Kind{1}}}
	for frame, want := range map[string]wire.Frame{
		`["REQ","s",{"kinds":[1]}]`:       {Label: wire.LabelReq, SubID: "s", Filters: kind1},
		`[ "REQ" , "s" , { } , {} ]`:      {Label: wire.LabelReq, SubID: "s", Filters: []nostr.Filter{{}, {}}},
		`["COUNT","q",{"kinds":[1]}]`:     {Label: wire.LabelCount, SubID: "q", Filters: kind1},
		`["CLOSE","s"]`:                   {Label: wire.LabelClose, SubID: "s"},
		`["CLOSE","\u0000\ud83d\ude00é"]`: {Label: wire.LabelClose, SubID: "\x00😀é"},
	} {
		got, err := decode(frame)
		require.NoError(t, err, frame)
		require.Equal(t, want, got, frame)
	}
}

func TestDecodeRefusesFrames(t *testing.T) {
	t.Parallel()
	for frame, msg := range map[string]string{
		``:                                    "must be a JSON array",
		` `:                                   "must be a JSON array",
		`{}`:                                  "must be a JSON array",
		`"REQ"`:                               "must be a JSON array",
		"\ufeff" + `["CLOSE","s"]`:            "must be a JSON array",
		`[`:                                   "begin with its type",
		`[]`:                                  "begin with its type",
		`[1]`:                                 "begin with its type",
		`[["REQ"],"s",{}]`:                    "begin with its type",
		`["REQ`:                               "unterminated string",
		`["req","s",{}]`:                      "unknown message type",
		`["EVENTS",{}]`:                       "unknown message type",
		`["OK","s"]`:                          "unknown message type",
		`["EOSE","s"]`:                        "unknown message type",
		`["unknown","s"]`:                     "unknown message type",
		`["EVENT"]`:                           "EVENT is too short",
		`["EVENT",]`:                          "event must be a JSON object",
		`["EVENT",1]`:                         "event must be a JSON object",
		`["EVENT",[]]`:                        "event must be a JSON object",
		`["EVENT",{}]`:                        "event has no id",
		`["EVENT",{"id":1}]`:                  "id must be lower-case hex",
		`["EVENT",{"id":"ab"}]`:               "id must be lower-case hex",
		`["EVENT",{"ID":"` + hexID + `"}]`:    "event has no id",
		`["EVENT",{"id":"` + hexID + `",}]`:   "malformed JSON",
		`["EVENT",{"id":"` + hexID + `"},1]`:  "EVENT is too long",
		`["EVENT",{"id":"` + hexID + `"}`:     "unexpected end",
		`["EVENT",{"id":"` + hexID + `"]}`:    "malformed JSON",
		`["AUTH","` + hexID + `"]`:            "event must be a JSON object",
		`["REQ"]`:                             "REQ is too short",
		`["REQ",1,{}]`:                        "subscription id must be a string",
		`["REQ",null,{}]`:                     "subscription id must be a string",
		`["REQ","",{}]`:                       "must not be empty",
		`["REQ","s"]`:                         "REQ is too short",
		`["REQ","s",]`:                        "filter must be a JSON object",
		`["REQ","s",[]]`:                      "filter must be a JSON object",
		`["REQ","s",{},]`:                     "filter must be a JSON object",
		`["REQ","s",{}],`:                     "after the end",
		`["REQ","s",{}]]`:                     "after the end",
		`["REQ","s",{}] x`:                    "after the end",
		`["REQ","s",{}]` + "\x00":             "after the end",
		`["REQ","s" {}]`:                      "malformed JSON",
		`["COUNT","s"]`:                       "COUNT is too short",
		`["CLOSE"]`:                           "CLOSE is too short",
		`["CLOSE","s",{}]`:                    "CLOSE is too long",
		`["CLOSE","s"`:                        "unexpected end",
		"[\"CLOSE\",\"\xff\"]":                "not valid UTF-8",
		"[\"CLOSE\",\"\xed\xa0\x80\"]":        "not valid UTF-8", // a surrogate in UTF-8's clothes
		"[\"CLOSE\",\"\xc0\x80\"]":            "not valid UTF-8", // overlong
		"[\"CLOSE\",\"\xf4\x90\x80\x80\"]":    "not valid UTF-8", // beyond U+10FFFF
		"[\"CLOSE\",\"\xe2\x80\"]":            "not valid UTF-8",
		"[\"CLOSE\",\"a\nb\"]":                "control character",
		"[\"CLOSE\",\"a\x00b\"]":              "control character",
		`["CLOSE","\x"]`:                      "malformed escape",
		`["CLOSE","\u12"]`:                    "malformed escape",
		`["CLOSE","\U0041"]`:                  "malformed escape",
		`["CLOSE","\u004g"]`:                  "malformed escape",
		`["CLOSE","\ud800"]`:                  "surrogate",
		`["CLOSE","\udc00"]`:                  "surrogate",
		`["CLOSE","\ud800\ud800"]`:            "surrogate",
		`["CLOSE","\ud800\u0041"]`:            "surrogate",
		`["CLOSE","\`:                         "malformed escape",
		`["CLOSE","s\"]`:                      "unterminated string",
		"[\"CLOSE\",\u00a0\"s\"]":             "subscription id must be a string",
		`['CLOSE','s']`:                       "begin with its type",
		`["CLOSE","s"]["CLOSE","s"]`:          "after the end",
		`/**/["CLOSE","s"]`:                   "must be a JSON array",
		`["REQ","s",{"kinds":[1],"kinds":[]}`: "key twice",
	} {
		require.ErrorContains(t, refused(t, frame, wire.DefaultLimits()), msg, frame)
	}
}

// TestRefusedFrameKnowsWhomToAnswer: an answer needs the label, the subscription or the event's id,
// whatever else is wrong and wherever it is.
func TestRefusedFrameKnowsWhomToAnswer(t *testing.T) {
	t.Parallel()
	id, err := nostr.ParseID(hexID)
	require.NoError(t, err)
	field := `"id":"` + hexID + `"`
	for name, frame := range map[string]string{
		"id first":                  `{` + field + `,"content":"\ud800"}]`,
		"id last":                   `{"content":"\ud800",` + field + `}]`,
		"id after bad UTF-8":        "{\"content\":\"\xff\"," + field + `}]`,
		"id after a bad number":     `{"kind":01,` + field + `}]`,
		"id after a bad value":      `{"kind":nul,` + field + `}]`,
		"id after deep nesting":     `{"x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `,` + field + `}]`,
		"id after another object":   `{"x":{"id":"` + strings.Repeat("f", 64) + `"},` + field + `}}]`,
		"id after a decoy":          `{"content":"{\"id\":\"` + strings.Repeat("f", 64) + `\"}","x":"id",` + field + `,}]`,
		"id after an array":         `{"tags":[["id","` + strings.Repeat("f", 64) + `"]],,` + field + `}]`,
		"truncated":                 `{"tags":[["a","b"]],` + field + `,"content":"this goes on and`,
		"spaced and truncated":      ` { "x" : "y" , "id" : "` + hexID + `" , `,
		"twice":                     `{` + field + `,` + field + `}]`,
		"wrong, then another":       `{"id":7,` + field + `}]`,
		"too long":                  `{` + field + `},{}]`,
		"something after the end":   `{` + field + `}] x`,
		"closed with the wrong one": `{` + field + `]]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, label := range []wire.Label{wire.LabelEvent, wire.LabelAuth} {
				de := refused(t, `["`+label.String()+`",`+frame, wire.DefaultLimits())
				require.Equal(t, label, de.Label)
				require.True(t, de.HaveID)
				require.Equal(t, id, de.EventID)
				require.False(t, de.Unsupported)
			}
		})
	}
	for name, frame := range map[string]string{
		"none":             `{"kind":1}]`,
		"not an object":    `[]]`,
		"in another":       `{"x":{` + field + `}}]`,
		"as a value":       `{"x":"id","y":"` + hexID + `"}]`,
		"upper case":       `{"id":"` + strings.ToUpper(hexID) + `"}]`,
		"cut":              `{"id":"` + hexID[:63],
		"after the object": `{"kind":1},{` + field + `}]`,
		"key without end":  `{"id`,
	} {
		t.Run("unreadable: "+name, func(t *testing.T) {
			t.Parallel()
			de := refused(t, `["EVENT",`+frame, wire.DefaultLimits())
			require.Equal(t, wire.LabelEvent, de.Label)
			require.False(t, de.HaveID)
			require.True(t, de.EventID.IsZero())
		})
	}
	for _, frame := range []string{
		`["REQ","s"]`, `["REQ","s",{"kinds":[1.5]}]`, `["REQ","s",{}`, `["REQ","s",{"bogus":1}]`,
		"[\"COUNT\",\"s\",{\"#t\":[\"\xff\"]}]", `["CLOSE","s",1]`,
	} {
		de := refused(t, frame, wire.DefaultLimits())
		require.NotEqual(t, wire.LabelUnknown, de.Label, frame)
		require.Equal(t, "s", de.SubID, frame)
		require.False(t, de.HaveID, frame)
	}
}

func TestLimitsOfFrames(t *testing.T) {
	t.Parallel()
	ev := nostrtest.Event(t, "alice", nostrtest.Content(strings.Repeat("x", 200)))
	event := string(wire.AppendClientEvent(nil, nostrtest.Raw(ev)))
	for name, c := range map[string]struct {
		limits  wire.Limits
		frame   string // fits exactly
		tooMuch string
		msg     string
	}{
		"frame":         {wire.Limits{Frame: len(event)}, event, event + " ", "frame is larger than"},
		"frame of REQ":  {wire.Limits{Frame: 14}, `["REQ","s",{}]`, `["REQ","s",{}] `, "frame is larger than"},
		"sub id":        {wire.Limits{SubID: 4}, `["CLOSE","éé"]`, `["CLOSE","éé."]`, "not be longer than 4 bytes"},
		"escaped sub":   {wire.Limits{SubID: 4}, `["CLOSE","\ud83d\ude00"]`, `["CLOSE","\ud83d\ude00\n"]`, "not be longer than 4 bytes"},
		"filters":       {wire.Limits{Filters: 2}, `["REQ","s",{},{}]`, `["REQ","s",{},{},{}]`, "more than 2 filters"},
		"kinds":         {wire.Limits{ListValues: 2}, `["REQ","s",{"kinds":[1,2]}]`, `["REQ","s",{"kinds":[1,2,3]}]`, "more than 2 values"},
		"tag values":    {wire.Limits{ListValues: 2}, `["REQ","s",{"#t":["",""]}]`, `["REQ","s",{"#t":["","",""]}]`, "more than 2 values"},
		"lists apart":   {wire.Limits{ListValues: 2}, `["REQ","s",{"#t":["",""],"#e":["",""]}]`, `["REQ","s",{"#t":["",""],"#e":["","",""]}]`, "more than 2 values"},
		"search":        {wire.Limits{Search: 2}, `["REQ","s",{"search":"é"}]`, `["REQ","s",{"search":"é."}]`, "search is longer than 2 bytes"},
		"nesting":       {wire.Limits{Depth: 4}, `["EVENT",{"id":"` + hexID + `","x":[[],{}]}]`, `["EVENT",{"id":"` + hexID + `","x":[[],[{}]]}]`, "nested too deeply"},
		"filter nested": {wire.Limits{Depth: 3}, `["REQ","s",{"kinds":[]}]`, `["REQ","s",{"x":[[]]}]`, "nested too deeply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := wire.Decode([]byte(c.frame), c.limits)
			require.NoError(t, err)
			require.ErrorContains(t, refused(t, c.tooMuch, c.limits), c.msg)
		})
	}
	de := refused(t, event+" ", wire.Limits{Frame: 10})
	require.Equal(t, wire.LabelEvent, de.Label)
	require.True(t, de.HaveID, "an EVENT that is too large is still answered")
	require.Equal(t, ev.ID, de.EventID)
	require.Equal(t, "s", refused(t, `["REQ","s",{}]`, wire.Limits{Frame: 10}).SubID)
	require.Empty(t, refused(t, `["REQ","sss",{}]`, wire.Limits{SubID: 2}).SubID, "what is too long is not sent back")
}

// TestNestingIsBounded: not even without limits can an input make the decoder recurse or grow.
func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(n int) string {
		return `["EVENT",{"id":"` + hexID + `","x":` + strings.Repeat(`[{"":`, n) + `1` + strings.Repeat(`}]`, n) + `}]`
	}
	deep := wire.Limits{Depth: 1 << 30}
	_, err := wire.Decode([]byte(nested((wire.MaxDepth-2)/2)), deep)
	require.NoError(t, err)
	refused(t, nested((wire.MaxDepth-2)/2+1), deep)
	refused(t, nested(1_000_000), deep)
	refused(t, nested(1_000_000), wire.Limits{})
}

func TestDecodeDoesNotShareInput(t *testing.T) {
	t.Parallel()
	b := []byte(`["REQ","sub",{"#t":["value"],"search":"query"}]`)
	f, err := wire.Decode(b, wire.DefaultLimits())
	require.NoError(t, err)
	clear(b)
	require.Equal(t, "sub", f.SubID)
	require.Equal(t, []string{"value"}, f.Filters[0].Tags[0].Values)
	require.Equal(t, "query", f.Filters[0].Search)
}

func TestReqRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := nostrtest.Events(1, 3).Draw(t, "events")
		filters := nostrtest.Filters(events...).Draw(t, "filters")
		filters[0].Search = nostrtest.Text().Draw(t, "search")
		for i := range filters {
			if filters[i].MatchesNothing {
				filters[i].IDs = nil // it is written as the empty list
			}
		}
		sub := nostrtest.Text().Filter(func(s string) bool { return s != "" }).Draw(t, "sub")
		for label, frame := range map[wire.Label][]byte{
			wire.LabelReq:   wire.AppendReq(nil, sub, filters...),
			wire.LabelCount: wire.AppendCountReq(nil, sub, filters...),
		} {
			got, err := wire.Decode(frame, wire.Limits{})
			require.NoError(t, err)
			require.Equal(t, wire.Frame{Label: label, SubID: sub, Filters: filters}, got)
		}
		got, err := wire.Decode(wire.AppendClose(nil, sub), wire.Limits{})
		require.NoError(t, err)
		require.Equal(t, wire.Frame{Label: wire.LabelClose, SubID: sub}, got)
	})
}

func TestLabels(t *testing.T) {
	t.Parallel()
	for l := wire.LabelUnknown; l <= wire.LabelNotice; l++ {
		require.NotEmpty(t, l.String())
	}
	require.Equal(t, "unknown", wire.Label(200).String())
	require.Equal(t, "REQ", fmt.Sprint(wire.LabelReq))
}
