package rpc

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// target is one entry of PeersConfig.Targets.
type target struct {
	name string // as configured; the peer's name if it is static
	host string // set for dns:/// targets
	port string
}

// lookupFunc returns the addresses of a host name.
type lookupFunc func(ctx context.Context, host string) ([]netip.Addr, error)

func lookupDNS(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

func parseTarget(s string) (target, error) {
	if err := checkTarget(s); err != nil {
		return target{}, err
	}
	if hostPort, ok := strings.CutPrefix(s, schemeDNS); ok {
		host, port, err := net.SplitHostPort(hostPort)
		if err != nil {
			return target{}, fmt.Errorf("%w: %w", ErrTarget, err)
		}
		return target{name: s, host: host, port: port}, nil
	}
	return target{name: s}, nil
}

// static returns the names of the targets that need no look-up.
func (p *Peers) static() []string {
	var names []string
	for _, t := range p.targets {
		if t.host == "" {
			names = append(names, t.name)
		}
	}
	return names
}

func (p *Peers) dynamic() bool {
	return slices.ContainsFunc(p.targets, func(t target) bool { return t.host != "" })
}

// resolve returns the names of all peers as of now. If any look-up fails, the whole answer is an
// error, so that a broken name server never shrinks the set.
func (p *Peers) resolve(ctx context.Context) ([]string, error) {
	names := p.static()
	for _, t := range p.targets {
		if t.host == "" {
			continue
		}
		one, cancel := context.WithTimeout(ctx, p.cfg.ResolveInterval)
		addrs, err := p.lookup(one, t.host)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", t.host, err)
		}
		for _, a := range addrs {
			names = append(names, net.JoinHostPort(a.Unmap().String(), t.port))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
