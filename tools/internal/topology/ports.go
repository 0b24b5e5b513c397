package topology

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that are handed out lie below the range from which systems take the ports of outgoing
// connections: otherwise one of those could sit on the port of a process that is about to be restarted.
const (
	firstPort = 15_000
	lastPort  = 32_000
)

// ports hands out free loopback ports, each once. A port is free when it can be listened on; between that
// and its use somebody else may take it, which the process that wanted it reports.
type ports struct {
	taken map[int]bool
}

// address returns a loopback address with a free port.
func (p *ports) address(ctx context.Context) (string, error) {
	const tries = 1000
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // nothing is guarded by it
		if p.taken[port] {
			continue
		}
		p.taken[port] = true
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return "", fmt.Errorf("probe %s: %w", address, err)
		}
		return address, nil
	}
	return "", errors.New("no free port found on 127.0.0.1")
}
