package conn

// CloseSocket does what the library does when a peer is beyond hope for it.
func (c *Conn) CloseSocket() error { return c.source.Close() }
