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

// heard takes the next word about the bus.
func (g *gateway) heard() (away bool) {
	g.t.Helper()
	select {
	case away = <-g.away:
	case <-time.After(patience):
		require.FailNow(g.t, "nothing is said about the bus")
	}
	return away
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

			cut(proxy)
			require.True(t, g.heard())
			later := n.attach()
			require.True(t, later.heard())
			e := c.event("hive")
			c.publish(e)

			proxy.Heal()
			require.False(t, g.heard())
			require.False(t, later.heard())
			g.delivered(e, 1)
		})
	}
}
