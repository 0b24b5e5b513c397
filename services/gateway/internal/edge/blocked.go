package edge

import "net/netip"

// Refuses reports whether a client's address is in a blocked network. The zero address is in none.
func (c *Community) Refuses(addr netip.Addr) bool {
	return len(c.Blocked) > 0 && within(addr, c.Blocked)
}

// Forget has a community asked about again, since it has changed.
func (d *Directory) Forget(community int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for host, e := range d.hosts {
		if e.community != nil && e.community.ID == community {
			d.hosts[host] = entry{community: e.community} // expired; still no stranger
		}
	}
}
