package wire_test

import (
	"bytes"
	"encoding/json"
	"math"
	"runtime"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// FuzzDecode: whatever comes in, the decoder does not panic, what it takes is JSON that encoding/json reads the
// same, and what it has understood can be said again.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`["EVENT",` + object(nil) + `]`, `["AUTH",{"id":"` + hexID + `","":[{}]}]`, `["CLOSE","\ud83d\ude00"]`,
		`["REQ","s",{"kinds":[1],"#e":["x"],"limit":-0},{"ids":[]}]`, `["COUNT","s",{"bogus":1e9}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l := wire.DefaultLimits()
		got, err := wire.Decode(b, l)
		if err != nil {
			requireDecodeError(t, b, err)
			return
		}
		elements := requireFrame(t, b, got.Label)
		var again []byte
		switch got.Label {
		case wire.LabelEvent:
			again = wire.AppendClientEvent(nil, got.RawEvent)
		case wire.LabelAuth:
			again = wire.AppendClientAuth(nil, got.RawEvent)
		case wire.LabelReq:
			again = wire.AppendReq(nil, got.SubID, got.Filters...)
		case wire.LabelCount:
			again = wire.AppendCountReq(nil, got.SubID, got.Filters...)
		case wire.LabelClose:
			again = wire.AppendClose(nil, got.SubID)
		default:
			t.Fatalf("a client cannot send %s", got.Label)
		}
		if got.RawEvent != nil {
			require.Len(t, elements, 2)
			require.True(t, got.HaveID)
			requireRaw(t, b, elements[1], got.RawEvent)
			require.Equal(t, got.EventID.String(), read[string](t, members(t, got.RawEvent)["id"]))
		} else {
			require.Len(t, elements, 2+len(got.Filters))
			require.Equal(t, got.SubID, read[string](t, elements[1]))
			for i, raw := range elements[2:] {
				requireFilter(t, raw, got.Filters[i])
			}
		}
		// A frame may become longer, by "ids":[] for a filter that matches nothing.
		l.Frame = 0
		second, err := wire.Decode(again, l)
		require.NoError(t, err, "%s", again)
		normalise(got.Filters)
		normalise(second.Filters)
		require.Equal(t, got, second)
	})
}

// FuzzDecodeRelay: the same of what a relay sends.
func FuzzDecodeRelay(f *testing.F) {
	for _, s := range []string{
		`["EVENT","s",` + object(nil) + `]`, `["OK","` + hexID + `",true,""]`, `["EOSE","s"]`, `["CLOSED","s","error: \u00e9"]`,
		`["NOTICE","x"]`, `["AUTH","challenge"]`, `["COUNT","s",{"approximate":true,"count":3,"hll":"00"}]`, `["COUNT","s",{"count":1,"count":2}]`,
	} {
		f.Add([]byte(s))
	}
	f.Add(wire.AppendCountHLL(nil, "s", math.MaxInt64, bytes.Repeat([]byte{7}, wire.Registers)))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := wire.DecodeRelay(b)
		if err != nil {
			requireDecodeError(t, b, err)
			return
		}
		elements := requireFrame(t, b, got.Label)
		var again []byte
		switch got.Label {
		case wire.LabelEvent:
			requireRaw(t, b, elements[2], got.RawEvent)
			again = wire.AppendEvent(nil, got.SubID, got.RawEvent)
		case wire.LabelOK:
			require.Equal(t, got.EventID.String(), read[string](t, elements[1]))
			require.Equal(t, got.OK, read[bool](t, elements[2]))
			require.Equal(t, got.Message, read[string](t, elements[3]))
			again = wire.AppendOK(nil, got.EventID, got.OK, got.Message)
		case wire.LabelEOSE:
			again = wire.AppendEOSE(nil, got.SubID)
		case wire.LabelClosed:
			require.Equal(t, got.Message, read[string](t, elements[2]))
			again = wire.AppendClosed(nil, got.SubID, got.Message)
		case wire.LabelNotice:
			again = wire.AppendNotice(nil, got.Message)
		case wire.LabelAuth:
			again = wire.AppendAuth(nil, got.Message)
		case wire.LabelCount:
			require.EqualValues(t, got.Count, read[int64](t, members(t, elements[2])["count"]))
			require.Contains(t, []int{0, wire.Registers}, len(got.HLL))
			again = wire.AppendCountHLL(nil, got.SubID, got.Count, got.HLL)
		default:
			t.Fatalf("a relay cannot send %s", got.Label)
		}
		if got.SubID != "" {
			require.Equal(t, got.SubID, read[string](t, elements[1]))
		}
		second, err := wire.DecodeRelay(again)
		require.NoError(t, err, "%s", again)
		require.Equal(t, got, second)
	})
}

// FuzzDecodeEvent: an event that is taken reads the same with encoding/json, survives encoding, and its
// encoded form is a fixed point.
func FuzzDecodeEvent(f *testing.F) {
	f.Add([]byte(object(nil)))
	f.Add([]byte(object(map[string]string{"tags": `[["e","\u0000"],["-"]]`, "content": `"\ud83d\ude00\/","x":{"":[1.5e3,null]}`})))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := wire.DefaultLimits()
		ev, extra, err := wire.DecodeEventExtra(b, l)
		if err != nil {
			requireDecodeError(t, b, err)
			return
		}
		require.True(t, utf8.Valid(b))
		std := members(t, b)
		require.Equal(t, extra, len(std) > 7)
		require.Equal(t, ev.ID.String(), read[string](t, std["id"]))
		require.Equal(t, ev.PubKey.String(), read[string](t, std["pubkey"]))
		require.Equal(t, ev.Sig.String(), read[string](t, std["sig"]))
		require.Equal(t, ev.CreatedAt, read[int64](t, std["created_at"]))
		require.EqualValues(t, ev.Kind, read[int64](t, std["kind"]))
		require.Equal(t, ev.Content, read[string](t, std["content"]))
		require.Equal(t, ev.Tags, read[nostr.Tags](t, std["tags"]))

		l.Frame = 0
		again := ev.AppendJSON(nil)
		require.True(t, json.Valid(again))
		second, extraAgain, err := wire.DecodeEventExtra(again, l)
		require.NoError(t, err)
		require.False(t, extraAgain)
		require.Equal(t, ev, second)
		require.Equal(t, ev.ComputeID(), second.ComputeID())

		frame, err := wire.Decode(wire.AppendClientEvent(nil, b), l)
		require.NoError(t, err, "both decoders take the same events")
		require.Equal(t, ev.ID, frame.EventID)
	})
}

// FuzzFilter: a filter that is taken reads the same with encoding/json, and encoding what was decoded
// gives the same filter.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"ids":["` + hexID + `"],"authors":["` + hexID + `"],"kinds":[1,-0]}`, `{"#e":["x","\u0000"],"#E":[]}`,
		`{"since":-1,"until":9223372036854775807,"limit":99999999999,"search":"\ud83d\ude00"}`, `{"bogus":[[]]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := wire.DecodeFilter(b, wire.DefaultLimits())
		list, listErr := wire.DecodeFilters(append(append([]byte{'['}, b...), ']'), wire.Limits{})
		if err != nil {
			requireDecodeError(t, b, err)
			return
		}
		requireFilter(t, b, got)
		require.NoError(t, listErr, "both decoders take the same filters")
		require.Equal(t, []nostr.Filter{got}, list)
		again := got.AppendJSON(nil)
		second, err := wire.DecodeFilter(again, wire.Limits{})
		require.NoError(t, err, "%s", again)
		filters := []nostr.Filter{got, second}
		normalise(filters)
		require.Equal(t, filters[0], filters[1])
		require.Equal(t, string(filters[0].AppendJSON(nil)), string(filters[1].AppendJSON(nil)))
	})
}

// FuzzLimits: a decoder with limits takes exactly what it takes without them and is within them, and
// however the input asks for memory, no more is taken than a small multiple of its size.
func FuzzLimits(f *testing.F) {
	f.Add([]byte(`["REQ","sub",{"ids":["`+hexID+`"],"#e":["x","y"]},{"search":"some words"}]`), uint8(1), uint8(2), uint8(2), uint8(1), uint8(4), uint16(120))
	f.Add([]byte(object(map[string]string{"tags": `[["e","x"],["p","y","z"]]`, "content": `"caf\u00e9"`})), uint8(4), uint8(3), uint8(2), uint8(5), uint8(4), uint16(500))
	f.Fuzz(func(t *testing.T, b []byte, text, values, lists, small, depth uint8, frame uint16) {
		l := wire.Limits{
			Frame: int(frame), Content: int(text), SubID: int(small), Filters: int(lists), Tags: int(values),
			TagValues: int(small), ListValues: int(values), Search: int(text), Depth: int(depth),
		}
		levels := wire.DefaultLimits().Depth
		if l.Depth > 0 {
			levels = l.Depth
		}
		free := wire.Limits{Depth: wire.MaxDepth}

		all, err := wire.Decode(b, free)
		before := allocated()
		_, limited := wire.Decode(b, l)
		requireBounded(t, b, before)
		ok := err == nil && fits(len(b), l.Frame) && nesting(b) <= levels && frameWithin(all, l)
		require.Equal(t, ok, limited == nil, "without limits: %v, with: %v", err, limited)

		ev, err := wire.DecodeEvent(b, free)
		before = allocated()
		_, limited = wire.DecodeEvent(b, l)
		requireBounded(t, b, before)
		// The event stands in a frame, which is a level of nesting.
		ok = err == nil && fits(len(b), l.Frame) && nesting(b) < levels && eventWithin(ev, l)
		require.Equal(t, ok, limited == nil, "without limits: %v, with: %v", err, limited)
	})
}

func frameWithin(f wire.Frame, l wire.Limits) bool {
	ok := fits(len(f.SubID), l.SubID) && fits(len(f.Filters), l.Filters)
	for _, filter := range f.Filters {
		ok = ok && fits(len(filter.IDs), l.ListValues) && fits(len(filter.Authors), l.ListValues) &&
			fits(len(filter.Kinds), l.ListValues) && fits(len(filter.Search), l.Search)
		for _, c := range filter.Tags {
			ok = ok && fits(len(c.Values), l.ListValues)
		}
	}
	return ok
}

func eventWithin(ev *nostr.Event, l wire.Limits) bool {
	ok := fits(len(ev.Content), l.Content) && fits(len(ev.Tags), l.Tags)
	for _, tag := range ev.Tags {
		ok = ok && fits(len(tag), l.TagValues)
	}
	return ok
}

func fits(n, limit int) bool { return limit == 0 || n <= limit }

// nesting is how deep arrays and objects of valid JSON go.
func nesting(b []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

// allocated is how much this process has ever allocated, in bytes.
func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// requireBounded allows the densest input, an empty string in a list, its string header and the growth
// of the slice, and besides what other goroutines of the test do meanwhile.
func requireBounded(t *testing.T, b []byte, before uint64) {
	t.Helper()
	require.Less(t, allocated()-before, uint64(256<<10+64*len(b)))
}

// normalise takes away what a filter that matches nothing says besides: it is written with an empty
// list of ids, whichever list was empty.
func normalise(filters []nostr.Filter) {
	for i := range filters {
		if filters[i].MatchesNothing {
			filters[i].IDs = nil
		}
	}
}

func requireDecodeError(t *testing.T, b []byte, err error) {
	t.Helper()
	var de *wire.DecodeError
	require.ErrorAs(t, err, &de)
	require.NotEmpty(t, de.Msg)
	require.True(t, utf8.ValidString(de.Msg))
	require.True(t, utf8.ValidString(de.SubID))
	require.GreaterOrEqual(t, de.Offset, 0)
	require.LessOrEqual(t, de.Offset, len(b))
}

// requireFrame requires that encoding/json reads an array that begins with the label, and returns its
// elements.
func requireFrame(t *testing.T, b []byte, label wire.Label) []json.RawMessage {
	t.Helper()
	require.True(t, utf8.Valid(b))
	elements := read[[]json.RawMessage](t, b)
	require.GreaterOrEqual(t, len(elements), 2)
	require.Equal(t, label.String(), read[string](t, elements[0]))
	return elements
}

// requireRaw requires that raw is the object that encoding/json found, as a slice of the frame.
func requireRaw(t *testing.T, frame, found, raw []byte) {
	t.Helper()
	require.Equal(t, string(found), string(raw))
	require.True(t, bytes.Contains(frame, raw))
	require.Equal(t, byte('{'), raw[0])
	require.Equal(t, byte('}'), raw[len(raw)-1])
}

// requireFilter requires that encoding/json reads the same filter.
func requireFilter(t *testing.T, raw []byte, f nostr.Filter) {
	t.Helper()
	conditions, empty := 0, false
	for key, value := range members(t, raw) {
		switch key {
		case "ids":
			requireList(t, read[[]nostr.ID](t, value), f.IDs)
			empty = empty || len(f.IDs) == 0
		case "authors":
			requireList(t, read[[]nostr.PubKey](t, value), f.Authors)
			empty = empty || len(f.Authors) == 0
		case "kinds":
			var kinds []nostr.Kind
			for _, k := range read[[]int64](t, value) { // -0 is an integer of JSON, and not of uint16
				kinds = append(kinds, nostr.Kind(k))
			}
			requireList(t, kinds, f.Kinds)
			empty = empty || len(f.Kinds) == 0
		case "since":
			require.Equal(t, read[int64](t, value), *f.Since)
		case "until":
			require.Equal(t, read[int64](t, value), *f.Until)
		case "limit":
			require.EqualValues(t, min(read[int64](t, value), math.MaxInt32), *f.Limit)
		case "search":
			require.Equal(t, read[string](t, value), f.Search)
		default:
			require.Len(t, key, 2)
			values, ok := f.Tag(key[1])
			requireList(t, read[[]string](t, value), values)
			require.Equal(t, len(values) > 0, ok)
			empty = empty || len(values) == 0
			conditions += min(len(values), 1)
		}
	}
	require.Len(t, f.Tags, conditions)
	require.Equal(t, empty, f.MatchesNothing)
}

func requireList[T comparable](t *testing.T, want, got []T) {
	t.Helper()
	require.True(t, slices.Equal(want, got), "encoding/json has %d values, we %d, or in other order", len(want), len(got))
}

// members is an object as encoding/json reads it; with exact keys, which it does not compare in a struct.
func members(t *testing.T, b []byte) map[string]json.RawMessage {
	t.Helper()
	return read[map[string]json.RawMessage](t, b)
}

func read[T any](t *testing.T, b []byte) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(b, &v), "%s", b)
	return v
}
