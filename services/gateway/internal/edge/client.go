package edge

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientAddr returns what tells the address of a request's client, behind trusted proxies. See Config.TrustedProxies.
func ClientAddr(trusted []netip.Prefix) func(*http.Request) netip.Addr {
	return func(r *http.Request) netip.Addr { return clientAddr(r, trusted) }
}

// clientAddr returns the address of a request's client: the peer of the TCP connection, unless that is a
// trusted proxy; then what the proxy says in X-Forwarded-For, from the last hop back to the first one that
// is no trusted proxy. What stands before that hop may be the client's invention. The zero address means
// that it cannot be told.
func clientAddr(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := plain(peer.Addr())
	if !within(addr, trusted) {
		return addr
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		next, err := parseHop(strings.TrimSpace(hop))
		if err != nil {
			return addr // nobody trusted says anything better
		}
		if addr = plain(next); !within(addr, trusted) {
			return addr
		}
	}
	return addr
}

// parseHop takes an address, with a port if the proxy gives one.
func parseHop(hop string) (netip.Addr, error) {
	if withPort, err := netip.ParseAddrPort(hop); err == nil {
		return withPort.Addr(), nil
	}
	return netip.ParseAddr(strings.Trim(hop, "[]"))
}

// plain is the address as networks are written: IPv4 as such, and without a zone.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func within(a netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// ParseNetworks parses addresses and networks in CIDR form.
func ParseNetworks(texts []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range texts {
		if n, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, n.Masked())
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		a = plain(a)
		networks = append(networks, netip.PrefixFrom(a, a.BitLen()))
	}
	return networks, nil
}
