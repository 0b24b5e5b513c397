package wire_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

// TestAppenders shows every frame that we send, and that each appends.
func TestAppenders(t *testing.T) {
	t.Parallel()
	id, err := nostr.ParseID(hexID)
	require.NoError(t, err)
	x := []byte("x")
	raw := []byte(`{"id":1}`)
	for want, got := range map[string][]byte{
		`x["OK","` + hexID + `",true,""]`:                 wire.AppendOK(x, id, true, ""),
		`x["OK","` + hexID + `",false,"blocked: \"no\""]`: wire.AppendOK(x, id, false, `blocked: "no"`),
		`x["EVENT","s\n",{"id":1}]`:                       wire.AppendEvent(x, "s\n", raw),
		`x["EOSE","s"]`:                                   wire.AppendEOSE(x, "s"),
		`x["CLOSED","s","error: lagged, resubscribe"]`:    wire.AppendClosed(x, "s", "error: lagged, resubscribe"),
		`x["NOTICE","\u0000"]`:                            wire.AppendNotice(x, "\x00"),
		`x["AUTH","c"]`:                                   wire.AppendAuth(x, "c"),
		`x["COUNT","s",{"count":18446744073709551615}]`:   wire.AppendCount(x, "s", 1<<64-1),
		`x["COUNT","s",{"count":3}]`:                      wire.AppendCountHLL(x, "s", 3, nil),
		`x["COUNT","s",{"count":3,"hll":"00ff"}]`:         wire.AppendCountHLL(x, "s", 3, []byte{0, 255}),
		`x["EVENT",{"id":1}]`:                             wire.AppendClientEvent(x, raw),
		`x["AUTH",{"id":1}]`:                              wire.AppendClientAuth(x, raw),
		`x["CLOSE","s"]`:                                  wire.AppendClose(x, "s"),
		`x["REQ","s",{"kinds":[1],"limit":0},{}]`:         wire.AppendReq(x, "s", nostr.Filter{Kinds: []nostr.Kind{1}, Limit: ptr(0)}, nostr.Filter{}),
		`x["COUNT","s",{"ids":[]}]`:                       wire.AppendCountReq(x, "s", nostr.Filter{MatchesNothing: true}),
	} {
		require.Equal(t, want, string(got))
		require.True(t, json.Valid(got[1:]))
	}
}

func TestRelayRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ev := nostrtest.UnsignedEvent().Draw(t, "event")
		raw := nostrtest.Raw(ev)
		sub := nostrtest.Text().Filter(func(s string) bool { return s != "" }).Draw(t, "sub")
		msg := nostrtest.Text().Draw(t, "msg")
		ok := rapid.Bool().Draw(t, "ok")
		n := rapid.Uint64Range(0, 1<<63-1).Draw(t, "n")
		hll := rapid.SliceOfN(rapid.Byte(), wire.Registers, wire.Registers).Draw(t, "hll")
		for _, c := range []struct {
			frame []byte
			want  wire.RelayFrame
		}{
			{wire.AppendEvent(nil, sub, raw), wire.RelayFrame{Label: wire.LabelEvent, SubID: sub, RawEvent: raw, EventID: ev.ID}},
			{wire.AppendOK(nil, ev.ID, ok, msg), wire.RelayFrame{Label: wire.LabelOK, EventID: ev.ID, OK: ok, Message: msg}},
			{wire.AppendEOSE(nil, sub), wire.RelayFrame{Label: wire.LabelEOSE, SubID: sub}},
			{wire.AppendClosed(nil, sub, msg), wire.RelayFrame{Label: wire.LabelClosed, SubID: sub, Message: msg}},
			{wire.AppendNotice(nil, msg), wire.RelayFrame{Label: wire.LabelNotice, Message: msg}},
			{wire.AppendAuth(nil, msg), wire.RelayFrame{Label: wire.LabelAuth, Message: msg}},
			{wire.AppendCount(nil, sub, n), wire.RelayFrame{Label: wire.LabelCount, SubID: sub, Count: n}},
			{wire.AppendCountHLL(nil, sub, n, hll), wire.RelayFrame{Label: wire.LabelCount, SubID: sub, Count: n, HLL: hll}},
		} {
			got, err := wire.DecodeRelay(c.frame)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		}
	})
}

func TestDecodeRelayOfOthers(t *testing.T) {
	t.Parallel()
	f, err := wire.DecodeRelay([]byte(` ["COUNT", "s", {"approximate": true, "count": 7, "hll": "00"}] `))
	require.NoError(t, err)
	require.Equal(t, uint64(7), f.Count)
	require.Nil(t, f.HLL, "of another size")
	f, err = wire.DecodeRelay([]byte(`["COUNT","s",{"hll":{"x":1},"count":7}]`))
	require.NoError(t, err)
	require.Nil(t, f.HLL)
	for _, frame := range []string{
		``, `{}`, `[]`, `["OK"]`, `["OK","x",true,""]`, `["OK","` + hexID + `",1,""]`, `["OK","` + hexID + `",true]`,
		`["OK","` + hexID + `",null,""]`, `["EVENT","s"]`, `["EVENT",{}]`, `["EVENT","s",{}]`, `["EOSE"]`, `["EOSE",""]`,
		`["CLOSED","s"]`, `["CLOSED","s",1]`, `["NOTICE"]`, `["NOTICE",{}]`, `["AUTH",{}]`, `["COUNT","s",7]`,
		`["COUNT","s",{}]`, `["COUNT","s",{"count":-1}]`, `["COUNT","s",{"count":1.5}]`, `["REQ","s",{}]`, `["CLOSE","s"]`,
		`["EOSE","s"] x`, `["EOSE","s","t"]`, `["NEWS","s"]`,
		`["COUNT","s",{"count":1,"count":2}]`, `["COUNT","s",{"count":1,"hll":"","\u0068ll":1}]`,
	} {
		_, err := wire.DecodeRelay([]byte(frame))
		var de *wire.DecodeError
		require.ErrorAs(t, err, &de, frame)
	}
}
