package wire_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
)

func ptr[T any](v T) *T { return &v }

func decodeFilter(s string) (nostr.Filter, error) {
	return wire.DecodeFilter([]byte(s), wire.DefaultLimits())
}

func TestDecodeFilter(t *testing.T) {
	t.Parallel()
	id, err := nostr.ParseID(hexID)
	require.NoError(t, err)
	cond := func(name byte, values ...string) []nostr.TagCondition {
		return []nostr.TagCondition{{Name: name, Values: values}}
	}
	for s, want := range map[string]nostr.Filter{
		`{}`:                                   {},
		` { } `:                                {},
		`{"ids":["` + hexID + `"]}`:            {IDs: []nostr.ID{id}},
		`{"authors":["` + hexID + `"]}`:        {Authors: []nostr.PubKey{nostr.PubKey(id)}},
		`{"kinds":[0,1,65535, 1]}`:             {Kinds: []nostr.Kind{0, 1, 65535, 1}},
		`{"kinds":[-0]}`:                       {Kinds: []nostr.Kind{0}},
		`{"#e":["x"],"#E":["y"]}`:              {Tags: append(cond('e', "x"), cond('E', "y")...)},
		`{"#z":["\u0000","\u2028","😀",""]}`:    {Tags: cond('z', "\x00", "\u2028", "😀", "")},
		`{"\u0023t":["x"]}`:                    {Tags: cond('t', "x")},
		`{"since":1,"until":2,"limit":3}`:      {Since: ptr(int64(1)), Until: ptr(int64(2)), Limit: ptr(3)},
		`{"since":-1}`:                         {Since: ptr(int64(-1))},
		`{"since":-0}`:                         {Since: ptr(int64(0))},
		`{"since":9007199254740993}`:           {Since: ptr(int64(1<<53 + 1))},
		`{"until":9223372036854775807}`:        {Until: ptr(int64(math.MaxInt64))},
		`{"since":-9223372036854775808}`:       {Since: ptr(int64(math.MinInt64))},
		`{"limit":0}`:                          {Limit: ptr(0)},
		`{"limit":9007199254740993}`:           {Limit: ptr(math.MaxInt32)},
		`{"search":"best nostr apps"}`:         {Search: "best nostr apps"},
		`{"search":""}`:                        {},
		`{"ids":[]}`:                           {MatchesNothing: true},
		`{"kinds":[],"limit":1}`:               {MatchesNothing: true, Limit: ptr(1)},
		`{"#e":[]}`:                            {MatchesNothing: true},
		`{"authors":[],"kinds":[1]}`:           {MatchesNothing: true, Kinds: []nostr.Kind{1}},
		`{"#p":["not a key, matches nobody"]}`: {Tags: cond('p', "not a key, matches nobody")},
	} {
		got, err := decodeFilter(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
}

func TestDecodeFilterRefuses(t *testing.T) {
	t.Parallel()
	for s, msg := range map[string]string{
		``:                              "must be a JSON object",
		`[]`:                            "must be a JSON object",
		`null`:                          "must be a JSON object",
		`{`:                             "unexpected end",
		`{}{}`:                          "after the end",
		`{"kinds":[1],}`:                "malformed JSON",
		`{"kinds" [1]}`:                 "malformed JSON",
		`{kinds:[1]}`:                   "malformed JSON",
		`{"ids":null}`:                  "ids must be an array",
		`{"ids":"` + hexID + `"}`:       "ids must be an array",
		`{"ids":{}}`:                    "ids must be an array",
		`{"ids":[1]}`:                   "lower-case hex",
		`{"ids":[null]}`:                "lower-case hex",
		`{"ids":[""]}`:                  "lower-case hex",
		`{"ids":["` + hexID[:8] + `"]}`: "lower-case hex",
		`{"ids":["` + strings.ToUpper(hexID) + `"]}`: "lower-case hex",
		`{"authors":["` + hexID + `0"]}`:             "lower-case hex",
		`{"authors":["` + hexID[:63] + `g"]}`:        "lower-case hex",
		`{"authors":["` + hexID + `" "x"]}`:          "malformed JSON",
		`{"kinds":1}`:                                "kinds must be an array",
		`{"kinds":["1"]}`:                            "kinds must be an integer",
		`{"kinds":[null]}`:                           "kinds must be an integer",
		`{"kinds":[-1]}`:                             "out of range",
		`{"kinds":[65536]}`:                          "out of range",
		`{"kinds":[1.0]}`:                            "without fraction or exponent",
		`{"kinds":[1e0]}`:                            "without fraction or exponent",
		`{"kinds":[01]}`:                             "malformed JSON",
		`{"kinds":[+1]}`:                             "must be an integer",
		`{"kinds":[1,]}`:                             "must be an integer",
		`{"kinds":[--1]}`:                            "malformed JSON",
		`{"kinds":[-]}`:                              "malformed JSON",
		`{"kinds":[1.]}`:                             "malformed JSON",
		`{"kinds":[1e]}`:                             "malformed JSON",
		`{"since":"1"}`:                              "since must be an integer",
		`{"since":null}`:                             "since must be an integer",
		`{"since":1.5}`:                              "without fraction or exponent",
		`{"since":1e10}`:                             "without fraction or exponent",
		`{"since":9223372036854775808}`:              "out of range",
		`{"since":-9223372036854775809}`:             "out of range",
		`{"since":18446744073709551616}`:             "out of range",
		`{"until":` + strings.Repeat("9", 400) + `}`: "out of range",
		`{"limit":-1}`:                               "out of range",
		`{"limit":null}`:                             "limit must be an integer",
		`{"limit":1.0}`:                              "without fraction or exponent",
		`{"limit":9223372036854775808}`:              "out of range",
		`{"#e":"x"}`:                                 "tag condition must be an array",
		`{"#e":null}`:                                "tag condition must be an array",
		`{"#e":[1]}`:                                 "must be a string",
		`{"#e":[null]}`:                              "must be a string",
		`{"#e":["\ud800"]}`:                          "surrogate",
		`{"search":1}`:                               "search must be a string",
		`{"search":null}`:                            "search must be a string",
		`{"ids":[],"ids":[]}`:                        "key twice",
		`{"#e":["x"],"#e":["x"]}`:                    "key twice",
		`{"#E":["x"],"\u0023E":["x"]}`:               "key twice",
		`{"limit":1,"limit":1}`:                      "key twice",
		`{"search":"","search":""}`:                  "key twice",
	} {
		_, err := decodeFilter(s)
		var de *wire.DecodeError
		require.ErrorAs(t, err, &de, s)
		require.ErrorContains(t, de, msg, s)
		require.False(t, de.Unsupported, s)
	}
}

// TestDecodeFilterUnsupported: what is well-formed and unknown is not invalid, and what is both
// unknown and malformed is.
func TestDecodeFilterUnsupported(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		`{"bogus":1}`, `{"":null}`, `{"#":["x"]}`, `{"##":["x"]}`, `{"#ee":["x"]}`, `{"#1":["x"]}`, `{"#é":["x"]}`,
		`{"&t":["x"]}`, `{"IDs":[]}`, `{"Kinds":[1]}`, `{"kinds ":[1]}`, `{"bogus":{"a":[1,{"b":null}]},"kinds":[1]}`,
		`{"bogus":1.5e-3}`, `{"bogus":true,"bogus":false}`,
	} {
		_, err := decodeFilter(s)
		var de *wire.DecodeError
		require.ErrorAs(t, err, &de, s)
		require.True(t, de.Unsupported, s)
		require.Equal(t, "filter contains unknown elements", de.Msg)

		de = refused(t, `["REQ","s",{},`+s+`,{"kinds":[1]}]`, wire.DefaultLimits())
		require.True(t, de.Unsupported, s)
		require.Equal(t, "s", de.SubID)
	}
	for _, frame := range []string{
		`["REQ","s",{"bogus":1},{"kinds":[1.5]}]`, `["REQ","s",{"bogus":1,"limit":-1}]`, `["REQ","s",{"bogus":01}]`,
		`["REQ","s",{"bogus":1}`, `["REQ","s",{"bogus":1}] x`, `["REQ","s",{"bogus":"\ud800"}]`,
	} {
		require.False(t, refused(t, frame, wire.DefaultLimits()).Unsupported, frame)
	}
}
