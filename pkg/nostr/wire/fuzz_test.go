package wire_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

// FuzzDecode: whatever comes in, the decoder does not panic, what it takes is JSON for everybody, and
// what it has understood can be said again.
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
			_, err = wire.DecodeRelay(b)
			if err != nil {
				requireDecodeError(t, b, err)
			}
			return
		}
		require.True(t, json.Valid(b))
		require.True(t, utf8.Valid(b))
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
			require.True(t, got.HaveID)
			require.True(t, bytes.Contains(b, got.RawEvent))
			require.Equal(t, byte('{'), got.RawEvent[0])
			require.Equal(t, byte('}'), got.RawEvent[len(got.RawEvent)-1])
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

// FuzzDecodeEvent: an event that is taken is valid JSON, survives encoding, and its encoded form is a
// fixed point.
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
		require.True(t, json.Valid(b))
		require.True(t, utf8.Valid(b))
		l.Frame = 0
		again := ev.AppendJSON(nil)
		require.True(t, json.Valid(again))
		second, extraAgain, err := wire.DecodeEventExtra(again, l)
		require.NoError(t, err)
		require.False(t, extraAgain)
		require.Equal(t, ev, second)
		require.Equal(t, ev.ComputeID(), second.ComputeID())

		var std struct {
			Content string
			Tags    [][]string
		}
		if !extra && json.Unmarshal(b, &std) == nil {
			require.Equal(t, std.Content, ev.Content, "the standard library reads the same")
			require.Len(t, ev.Tags, len(std.Tags))
		}
		f, err := wire.Decode(wire.AppendClientEvent(nil, b), l)
		require.NoError(t, err, "both decoders take the same events")
		require.Equal(t, ev.ID, f.EventID)
	})
}

// FuzzFilter: encoding what was decoded gives the same filter.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"ids":["` + hexID + `"],"authors":["` + hexID + `"],"kinds":[1,-0]}`, `{"#e":["x","\u0000"],"#E":[]}`,
		`{"since":-1,"until":9223372036854775807,"limit":99999999999,"search":"\ud83d\ude00"}`, `{"bogus":[[]]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := wire.DecodeFilter(b, wire.DefaultLimits())
		if err != nil {
			requireDecodeError(t, b, err)
			return
		}
		require.True(t, json.Valid(b))
		again := got.AppendJSON(nil)
		second, err := wire.DecodeFilter(again, wire.Limits{})
		require.NoError(t, err, "%s", again)
		filters := []nostr.Filter{got, second}
		normalise(filters)
		require.Equal(t, filters[0], filters[1])
		require.Equal(t, string(filters[0].AppendJSON(nil)), string(filters[1].AppendJSON(nil)))
	})
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
