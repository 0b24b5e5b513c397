package fanout

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/config"
	"github.com/apiary-relay/apiary/pkg/nostr"
	"github.com/apiary-relay/apiary/pkg/testkit/bustest"
	"github.com/apiary-relay/apiary/pkg/testkit/faultproxy"
)

// hear waits for a word about the bus: that it is away, or that it is not.
func (g *gateway) hear(away bool) {
	g.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case said := <-g.away:
			if said == away {
				return
			}
		case <-timeout:
			require.FailNow(g.t, "it is not said of the bus", "away: %v", away)
		}
	}
}

// A node that loses the bus, by a reset or in silence, says so early, also to gateways that come later, and says when
// it is there again; then what came meanwhile is delivered.
func TestABusOutOfReachIsTold(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*faultproxy.Proxy){"reset": (*faultproxy.Proxy).Cut, "silence": (*faultproxy.Proxy).Blackhole} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, bustest.Listening())
			proxy := faultproxy.New(t, strings.TrimPrefix(c.server.URL(), "nats://"))
			cfg := bustest.Config()
			cfg.URL = config.NewSecret("nats://" + proxy.Addr())
			n := c.node(func(nc *Config, d *Deps) {
				nc.BusSilence = 300 * time.Millisecond
				d.Bus = c.server.ConnectWith(t, cfg)
			})
			g := n.attach()
			g.send(subscribe(1, "hive", nostr.Filter{}))
			g.attached(1)
			g.hear(false)
			g.hear(false) // also when it is no news: the node lives

			cut(proxy)
			g.hear(true)
			later := n.attach()
			later.hear(true)
			e := c.event("hive")
			c.publish(e)

			proxy.Heal()
			g.hear(false)
			later.hear(false)
			g.delivered(e, 1)
		})
	}
}
