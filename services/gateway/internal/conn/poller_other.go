//go:build !linux

package conn

// Poller is for Linux: elsewhere each connection waits for its peer on a goroutine of its own.
type Poller struct{}

// NewPoller returns nil.
func NewPoller() (*Poller, error) { return nil, nil } //nolint:nilnil // a nil Poller is one that waits for none

// Len returns 0.
func (*Poller) Len() int { return 0 }

// Close does nothing.
func (*Poller) Close() error { return nil }

func (*Poller) seat(*Conn) bool { return false }

func (*Poller) rouse(*Conn) {}
