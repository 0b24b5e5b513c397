package gateway_test

import (
	"context"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
	"github.com/apiary-relay/apiary/services/gateway"
)

func TestMalformedFrames(t *testing.T) {
	w := newWorld(t)
	c := w.login(openHost, "alice")
	id := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		name, send string
		label      wire.Label
		sub, msg   string
	}{
		{"not JSON", `hello`, wire.LabelNotice, "", "invalid: "},
		{"unknown type", `["HELLO"]`, wire.LabelNotice, "", "invalid: "},
		{"event with id", `["EVENT",{"id":"` + id + `"`, wire.LabelOK, "", "invalid: "},
		{"event without id", `["EVENT",{}]`, wire.LabelNotice, "", "invalid: "},
		{"req with sub id", `["REQ","s",7]`, wire.LabelClosed, "s", "invalid: "},
		{"req without filters", `["REQ","s"]`, wire.LabelClosed, "s", "invalid: "},
		{"unknown filter key", `["REQ","s",{"colour":"red"}]`, wire.LabelClosed, "s", "unsupported: "},
		{"sub id too long", `["REQ","` + strings.Repeat("x", 257) + `",{}]`, wire.LabelNotice, "", "invalid: "},
		{"too many filters", `["REQ","s"` + strings.Repeat(`,{}`, 11) + `]`, wire.LabelClosed, "s", "invalid: "},
		{"count", `["COUNT","n",[]]`, wire.LabelClosed, "n", "invalid: "},
		{"long search", `["REQ","s",{"search":"` + strings.Repeat("b", 257) + `"}]`, wire.LabelClosed, "s", "invalid: search is longer than 256 bytes"},
		{"long search in COUNT", `["COUNT","s",{"search":"` + strings.Repeat("b", 257) + `"}]`, wire.LabelClosed, "s", "invalid: search is longer than 256 bytes"},
		{"not a channel", `["REQ","s",{"#h":["no channel"]}]`, wire.LabelClosed, "s", "invalid: "},
		{"empty channel", `["REQ","s",{"#h":[""]}]`, wire.LabelClosed, "s", "invalid: "},
		{"channels", `["REQ","s",{"#h":["` + strings.Repeat(`a","`, 128) + `a"]}]`, wire.LabelClosed, "s", "invalid: too many explicit channels"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c.send(tt.send)
			f := c.expect(tt.label)
			require.Equal(t, tt.sub, f.SubID)
			require.True(t, strings.HasPrefix(f.Message, tt.msg), f.Message)
			require.False(t, f.OK)
		})
	}
	require.Empty(t, w.ingests[0].received())
	require.Empty(t, w.search.asked())
}

func TestBinaryFramesAreRefused(t *testing.T) {
	c := newWorld(t).login(openHost, "alice")
	require.NoError(t, c.ws.Write(t.Context(), websocket.MessageBinary, []byte(`["COUNT","n",{}]`)))
	require.Equal(t, "invalid: binary frames are not accepted", c.expect(wire.LabelNotice).Message)
	c.send(`["COUNT","n",{}]`)
	c.expect(wire.LabelCount)
}

func TestFramesThatAreTooLarge(t *testing.T) {
	limit := with(func(c *gateway.Config) { c.MaxFrame = 2000 })
	ev := nostrtest.Event(t, "alice", nostrtest.Content(strings.Repeat("x", 5000)))
	for _, tt := range []struct {
		name, send string
		check      func(t *testing.T, f wire.RelayFrame)
	}{
		{"event", string(wire.AppendClientEvent(nil, nostrtest.Raw(ev))), func(t *testing.T, f wire.RelayFrame) {
			t.Helper()
			require.Equal(t, wire.LabelOK, f.Label)
			require.Equal(t, ev.ID, f.EventID)
			require.False(t, f.OK)
		}},
		{"req", `["REQ","s",{"#t":["` + strings.Repeat("x", 5000) + `"]}]`, func(t *testing.T, f wire.RelayFrame) {
			t.Helper()
			require.Equal(t, wire.LabelClosed, f.Label)
			require.Equal(t, "s", f.SubID)
		}},
		{"noise", strings.Repeat("x", 50_000), func(t *testing.T, f wire.RelayFrame) {
			t.Helper()
			require.Equal(t, wire.LabelNotice, f.Label)
			require.Equal(t, "invalid: frame too large", f.Message)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newWorld(t, limit).login(openHost, "alice")
			c.send(tt.send)
			f := c.next()
			require.True(t, strings.HasPrefix(f.Message, "invalid: "), f.Message)
			tt.check(t, f)
			code, _ := c.closed()
			require.Equal(t, websocket.StatusMessageTooBig, code)
		})
	}
	t.Run("just fits", func(t *testing.T) {
		c := newWorld(t, limit).login(openHost, "alice")
		pad := 2000 - len(`["COUNT","n",{"#t":[""]}]`)
		c.send(`["COUNT","n",{"#t":["` + strings.Repeat("x", pad) + `"]}]`)
		c.expect(wire.LabelCount)
	})
}

func TestPingsAreAnswered(t *testing.T) {
	c := newWorld(t).login(openHost, "alice")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		require.NoError(t, c.ws.Ping(ctx))
	}
}
