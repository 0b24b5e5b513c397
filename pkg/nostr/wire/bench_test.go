package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/nostr/wire"
	"github.com/apiary-relay/apiary/pkg/testkit/nostrtest"
)

func message(b *testing.B) []byte {
	b.Helper()
	return nostrtest.Raw(nostrtest.Event(b, "alice", nostrtest.Kind(nostr.KindChat), nostrtest.Channel("3f0c9e52-8f0b-4f0e-9a53-0d1c6f0f9f51"),
		nostrtest.Tag("p", nostrtest.PubKey("bob").String()), nostrtest.Tag("e", hexID, "", "reply"),
		nostrtest.Content("A message of quite ordinary length, with a \"quote\" in it, a\nnew line, and some – not much – beyond ASCII.")))
}

func BenchmarkDecode(b *testing.B) {
	l := wire.DefaultLimits()
	for name, frame := range map[string][]byte{
		"EVENT": wire.AppendClientEvent(nil, message(b)),
		"long":  wire.AppendClientEvent(nil, nostrtest.Raw(nostrtest.Event(b, "alice", nostrtest.Content(strings.Repeat("0123456789", 6000))))),
		"REQ": wire.AppendReq(nil, "subscription", nostr.Filter{
			Kinds: []nostr.Kind{9, 7, 5}, Limit: ptr(50),
			Tags: []nostr.TagCondition{{Name: 'h', Values: []string{"3f0c9e52-8f0b-4f0e-9a53-0d1c6f0f9f51"}}},
		}),
		"CLOSE": wire.AppendClose(nil, "subscription"),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.Decode(frame, l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeEvent(b *testing.B) {
	raw, l := message(b), wire.DefaultLimits()
	b.Run("wire", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := wire.DecodeEvent(raw, l); err != nil {
				b.Fatal(err)
			}
		}
	})
	// What the standard library takes for the same fields, with none of the strictness.
	b.Run("encoding/json", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		for b.Loop() {
			var ev struct {
				ID, PubKey, Sig string
				CreatedAt       int64 `json:"created_at"`
				Kind            int
				Tags            [][]string
				Content         string
			}
			if err := json.Unmarshal(raw, &ev); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAppendEvent(b *testing.B) {
	raw := message(b)
	buf := make([]byte, 0, 4096)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		buf = wire.AppendEvent(buf[:0], "subscription", raw)
	}
}
