package fanout

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkDeliver is the whole way of an envelope from the stream to the gateways, in batches of 64 as
// under load. b.N counts envelopes; each goes to every gateway once, for all of its handles.
func BenchmarkDeliver(b *testing.B) {
	for _, size := range []struct{ gateways, handles int }{{1, 1}, {4, 1}, {4, 250}} {
		b.Run(fmt.Sprintf("gateways=%d/handles=%d", size.gateways, size.handles), func(b *testing.B) {
			c := newCell(b)
			n := c.node()
			var gateways []*gateway
			for range size.gateways {
				g := n.attach()
				for h := range size.handles {
					g.send(subscribe(uint64(h+1), "hive", chats))
					g.attached(uint64(h + 1))
				}
				gateways = append(gateways, g)
			}
			const batch = 64
			body := content(string(make([]byte, 400)))
			b.ReportAllocs()
			b.ResetTimer()
			for sent := 0; sent < b.N; sent += batch {
				events := make([]*event, min(batch, b.N-sent))
				for i := range events {
					events[i] = c.event("hive", body)
				}
				c.publish(events...)
				for _, g := range gateways {
					for range events {
						require.Len(b, g.next().GetDelivery().GetHandles(), size.handles)
					}
				}
			}
		})
	}
}
