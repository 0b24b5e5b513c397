package havoc

import (
	"context"
	"slices"

	"github.com/apiary-relay/apiary/pkg/testkit/faultproxy"
	"github.com/apiary-relay/apiary/tools/chaos/internal/scenario"
)

// Links are the connections between processes that can be cut: a proxy for each pair of processes whose link some
// scenario names. Via is called before anything runs, by one goroutine; everything else by any afterwards.
type Links struct {
	ctx     context.Context // of the proxies' life, which Close ends
	wanted  []pair          // of services
	proxies map[pair]*faultproxy.Proxy
}

// pair is who connects, and to whom.
type pair struct{ from, to string }

// NewLinks returns what is needed for some scenarios.
func NewLinks(ctx context.Context, scenarios []*scenario.Scenario) *Links {
	l := &Links{ctx: context.WithoutCancel(ctx), proxies: make(map[pair]*faultproxy.Proxy)}
	for _, s := range scenarios {
		for i := range s.Steps {
			if link := s.Steps[i].Link(); link != (scenario.Link{}) {
				l.wanted = append(l.wanted, pair{link.From.Service, link.To.Service})
			}
		}
	}
	return l
}

// Via returns where a process is to connect in order to reach another at its address; see topology.Config.
func (l *Links) Via(from, to, address string) (string, error) {
	if !slices.Contains(l.wanted, pair{service(from), service(to)}) {
		return address, nil
	}
	proxy, err := faultproxy.Listen(l.ctx, address)
	if err != nil {
		return "", err
	}
	l.proxies[pair{from, to}] = proxy
	return proxy.Addr(), nil
}

// between returns the proxies between any of some processes and any of others.
func (l *Links) between(from, to []string) []*faultproxy.Proxy {
	var found []*faultproxy.Proxy
	for p, proxy := range l.proxies {
		if slices.Contains(from, p.from) && slices.Contains(to, p.to) {
			found = append(found, proxy)
		}
	}
	return found
}

// heal lets everything through.
func (l *Links) heal() {
	for _, proxy := range l.proxies {
		proxy.Heal()
	}
}

// Close ends all proxies.
func (l *Links) Close() {
	for _, proxy := range l.proxies {
		proxy.Close()
	}
}
