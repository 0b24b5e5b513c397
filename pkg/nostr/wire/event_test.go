package wire_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// object returns an event object with some fields replaced, in their text form; "" leaves a field out.
func object(replace map[string]string) string {
	fields := []string{"id", "pubkey", "created_at", "kind", "tags", "content", "sig"}
	values := map[string]string{
		"id": `"` + hexID + `"`, "pubkey": `"` + hexID + `"`, "created_at": "1", "kind": "1", "tags": "[]",
		"content": `""`, "sig": `"` + hexID + hexID + `"`,
	}
	var members []string
	for _, f := range fields {
		v := values[f]
		if r, ok := replace[f]; ok {
			v = r
		}
		if v != "" {
			members = append(members, fmt.Sprintf("%q:%s", f, v))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

func decodeEvent(s string) (*nostr.Event, error) {
	return wire.DecodeEvent([]byte(s), wire.DefaultLimits())
}

func TestDecodeEventRefuses(t *testing.T) {
	t.Parallel()
	_, err := decodeEvent(object(nil))
	require.NoError(t, err)
	for _, c := range []struct{ field, value, msg string }{
		{"id", "", "event has no id"},
		{"id", "null", "id must be lower-case hex"},
		{"id", `""`, "id must be lower-case hex"},
		{"id", `"` + strings.ToUpper(hexID) + `"`, "id must be lower-case hex"},
		{"id", `"` + hexID + hexID + `"`, "id must be lower-case hex"},
		{"pubkey", "", "event has no pubkey"},
		{"pubkey", `"` + hexID[1:] + `"`, "pubkey must be lower-case hex"},
		{"sig", "", "event has no sig"},
		{"sig", `"` + hexID + `"`, "sig must be lower-case hex"},
		{"created_at", "", "event has no created_at"},
		{"created_at", `"1"`, "created_at must be an integer"},
		{"created_at", "null", "created_at must be an integer"},
		{"created_at", "1.0", "without fraction or exponent"},
		{"created_at", "1e10", "without fraction or exponent"},
		{"created_at", "1E+2", "without fraction or exponent"},
		{"created_at", "9223372036854775808", "out of range"},
		{"created_at", "-9223372036854775809", "out of range"},
		{"created_at", "00", "malformed JSON"},
		{"created_at", "0x1", "malformed JSON"},
		{"created_at", "1 2", "malformed JSON"},
		{"created_at", "NaN", "must be an integer"},
		{"kind", "", "event has no kind"},
		{"kind", "-1", "kind is out of range"},
		{"kind", "65536", "kind is out of range"},
		{"kind", "1.0", "without fraction or exponent"},
		{"kind", "true", "kind must be an integer"},
		{"tags", "", "event has no tags"},
		{"tags", "null", "tags must be an array"},
		{"tags", "{}", "tags must be an array"},
		{"tags", `["t"]`, "a tag must be an array"},
		{"tags", `[[]]`, "a tag must have a name"},
		{"tags", `[["t",1]]`, "must be a string"},
		{"tags", `[["t",null]]`, "must be a string"},
		{"tags", `[["t",["x"]]]`, "must be a string"},
		{"tags", `[["t"],]`, "a tag must be an array"},
		{"tags", `[["t",]]`, "must be a string"},
		{"tags", `[["t","\udfff"]]`, "surrogate"},
		{"content", "", "event has no content"},
		{"content", "null", "content must be a string"},
		{"content", "{}", "content must be a string"},
		{"content", `"\ud83d"`, "surrogate"},
		{"content", "\"\xff\"", "not valid UTF-8"},
		{"content", "\"\t\"", "control character"},
		{"content", `"` + "\x1f" + `"`, "control character"},
		{"content", `"","content":""`, "field twice"},
		{"kind", `1,"k\u0069nd":1`, "field twice"},
		{"tags", `[],"id":"` + hexID + `"`, "field twice"},
		{"content", `"","x":nope`, "malformed JSON"},
		{"content", `"","x":[1,]`, "malformed JSON"},
		{"content", `"","x":{"a"}`, "malformed JSON"},
		{"content", `"","x":{"a":1,}`, "malformed JSON"},
		{"content", `"","x":[1}`, "malformed JSON"},
		{"content", `"","x":"` + "\xff" + `"`, "not valid UTF-8"},
		{"content", `"","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100), "nested too deeply"},
	} {
		_, err := decodeEvent(object(map[string]string{c.field: c.value}))
		var de *wire.DecodeError
		require.ErrorAs(t, err, &de, "%s: %s", c.field, c.value)
		require.ErrorContains(t, de, c.msg, "%s: %s", c.field, c.value)
		require.Equal(t, wire.LabelEvent, de.Label)
		require.Equal(t, c.field != "id", de.HaveID, "%s: %s", c.field, c.value)
	}
	for _, s := range []string{"", " ", "null", "[]", `""`, object(nil) + ",", object(nil) + object(nil), object(nil) + "\x00", object(nil)[:20]} {
		_, err := decodeEvent(s)
		require.Error(t, err, s)
	}
}

func TestDecodeEventNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "-1": -1, "9007199254740991": 1<<53 - 1, "9007199254740992": 1 << 53,
		"9007199254740993": 1<<53 + 1, "9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63,
	} {
		ev, err := decodeEvent(object(map[string]string{"created_at": text}))
		require.NoError(t, err, text)
		require.Equal(t, want, ev.CreatedAt)
	}
}

func TestDecodeEventExtra(t *testing.T) {
	t.Parallel()
	want, extra, err := wire.DecodeEventExtra([]byte(object(nil)), wire.DefaultLimits())
	require.NoError(t, err)
	require.False(t, extra)
	for _, member := range []string{
		`"":1`, `"seen":["wss://x",{"":{"":[]}}]`, `"Id":"x"`, `"id ":null`, `"x":1e400`, `"x":-0.0e-0`, `"x":true,"x":false`,
		`"x":{}`, `"x":[]`, `"x":[{},[],"",0,null,{"a":1,"b":[2]}]`,
	} {
		ev, extra, err := wire.DecodeEventExtra([]byte(object(map[string]string{"content": `"",` + member})), wire.DefaultLimits())
		require.NoError(t, err, member)
		require.True(t, extra, member)
		require.Equal(t, want, ev, member)
	}
}

func TestDecodeEventKeysMayBeEscaped(t *testing.T) {
	t.Parallel()
	s := strings.Replace(object(nil), `"id"`, `"\u0069d"`, 1)
	ev, err := decodeEvent(s)
	require.NoError(t, err)
	require.Equal(t, hexID, ev.ID.String())
	s = strings.Replace(object(nil), `"id":"0`, `"id":"\u0030`, 1)
	ev, err = decodeEvent(s)
	require.NoError(t, err)
	require.Equal(t, hexID, ev.ID.String())
}

func TestLimitsOfEvents(t *testing.T) {
	t.Parallel()
	size := len(object(nil))
	for name, c := range map[string]struct {
		limits        wire.Limits
		fits, tooMuch map[string]string
		msg           string
	}{
		"size":      {wire.Limits{Frame: size}, nil, map[string]string{"kind": "10"}, "larger than"},
		"content":   {wire.Limits{Content: 3}, map[string]string{"content": `"aé"`}, map[string]string{"content": `"éé"`}, "content is longer than 3 bytes"},
		"unescaped": {wire.Limits{Content: 3}, map[string]string{"content": `"\u2028"`}, map[string]string{"content": `"\u2028\n"`}, "content is longer than 3 bytes"},
		"tags":      {wire.Limits{Tags: 2}, map[string]string{"tags": `[["a"],["b"]]`}, map[string]string{"tags": `[["a"],["b"],["c"]]`}, "more than 2 tags"},
		"elements":  {wire.Limits{TagValues: 2}, map[string]string{"tags": `[["a","b"],["b"]]`}, map[string]string{"tags": `[["a"],["b","c","d"]]`}, "more than 2 elements"},
		"nesting":   {wire.Limits{Depth: 4}, map[string]string{"tags": `[["a"]]`}, map[string]string{"content": `"","x":[[[]]]`}, "nested too deeply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := wire.DecodeEvent([]byte(object(c.fits)), c.limits)
			require.NoError(t, err)
			_, err = wire.DecodeEvent([]byte(object(c.tooMuch)), c.limits)
			require.ErrorContains(t, err, c.msg)
			var de *wire.DecodeError
			require.ErrorAs(t, err, &de)
			require.True(t, de.HaveID)
		})
	}
}

func TestDecodeEventDoesNotShareInput(t *testing.T) {
	t.Parallel()
	want := nostrtest.Event(t, "alice", nostrtest.Content("hello"), nostrtest.Tag("t", "x\n"))
	raw := nostrtest.Raw(want)
	got, err := wire.DecodeEvent(raw, wire.DefaultLimits())
	require.NoError(t, err)
	clear(raw)
	require.Equal(t, want, got)
	got.Tags[0] = append(got.Tags[0], "grown")
	require.NoError(t, want.Verify())
}

func TestEventRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ev := nostrtest.UnsignedEvent().Draw(t, "event")
		raw := nostrtest.Raw(ev)
		got, extra, err := wire.DecodeEventExtra(raw, wire.DefaultLimits())
		require.NoError(t, err)
		require.False(t, extra)
		require.Equal(t, ev, got)
		require.Equal(t, string(raw), string(nostrtest.Raw(got)))

		f, err := wire.Decode(wire.AppendClientEvent(nil, raw), wire.DefaultLimits())
		require.NoError(t, err)
		require.Equal(t, wire.Frame{Label: wire.LabelEvent, RawEvent: raw, EventID: ev.ID, HaveID: true}, f)
	})
}

// TestIDIsStable: whatever whitespace, order of fields and escapes a client chooses, the event and its
// id are the same.
func TestIDIsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ev := nostrtest.UnsignedEvent().Draw(t, "event")
		raw := respell(t, ev)
		got, err := wire.DecodeEvent(raw, wire.DefaultLimits())
		require.NoError(t, err, "%s", raw)
		require.Equal(t, ev, got)
		require.NoError(t, got.CheckID())
	})
}

// respell writes an event in another way than AppendJSON does.
func respell(t *rapid.T, ev *nostr.Event) []byte {
	space := func() string {
		return rapid.StringOfN(rapid.SampledFrom([]rune(" \t\r\n")), 0, 2, -1).Draw(t, "space")
	}
	str := func(s string) string {
		var sb strings.Builder
		sb.WriteByte('"')
		for _, r := range s {
			switch how := rapid.IntRange(0, 3).Draw(t, "escape"); {
			case how == 0 && r > 0xffff:
				hi, lo := 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff
				fmt.Fprintf(&sb, `\u%04x\u%04X`, hi, lo)
			case how == 0 || (r < 0x20 && how == 1):
				fmt.Fprintf(&sb, `\u%04X`, r)
			case r == '/' && how == 1:
				sb.WriteString(`\/`)
			default:
				sb.Write(nostr.AppendString(nil, string(r))[1:])
				s := sb.String()[:sb.Len()-1] // without the closing quote
				sb.Reset()
				sb.WriteString(s)
			}
		}
		sb.WriteByte('"')
		return sb.String()
	}
	list := func(open string, items []string, end string) string {
		for i := range items {
			items[i] = space() + items[i] + space()
		}
		return open + strings.Join(items, ",") + end
	}
	tags := make([]string, 0, len(ev.Tags))
	for _, tag := range ev.Tags {
		elements := make([]string, 0, len(tag))
		for _, v := range tag {
			elements = append(elements, str(v))
		}
		tags = append(tags, list("[", elements, "]"))
	}
	member := func(key, value string) string { return str(key) + space() + ":" + space() + value }
	members := rapid.Permutation([]string{
		member("id", `"`+ev.ID.String()+`"`), member("pubkey", `"`+ev.PubKey.String()+`"`),
		member("sig", `"`+ev.Sig.String()+`"`), member("created_at", strconv.FormatInt(ev.CreatedAt, 10)),
		member("kind", strconv.Itoa(int(ev.Kind))), member("tags", list("[", tags, "]")), member("content", str(ev.Content)),
	}).Draw(t, "order")
	return []byte(space() + list("{", members, "}") + space())
}
