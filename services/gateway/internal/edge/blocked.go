package edge

import "net/netip"

// Refuses reports whether a client's address is in a blocked network. The zero address is in none.
func (c *Community) Refuses(addr netip.Addr) bool {
	return len(c.Blocked) > 0 && within(addr, c.Blocked)
}

// Forget has a community asked about again, since it has changed. An answer that is under way is not remembered, and whoever
// asks from now on does not wait for it.
func (d *Directory) Forget(community int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	for host, e := range d.hosts {
		if e.community != nil && e.community.ID == community {
			d.hosts[host] = entry{community: e.community} // expired; still no stranger
		}
	}
}

// ForgetAll has every community asked about again.
func (d *Directory) ForgetAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
	for host, e := range d.hosts {
		d.hosts[host] = entry{community: e.community}
	}
}
