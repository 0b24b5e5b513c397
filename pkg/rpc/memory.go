package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// memBuffer is the size of each direction of an in-process connection.
const memBuffer = 256 << 10

var (
	// ErrNameTaken is returned by Listen for a name that has an open listener.
	ErrNameTaken = errors.New("in-process name is taken")
	// ErrNoListener is returned when nobody listens on an in-process name.
	ErrNoListener = errors.New("nobody listens on the in-process name")
)

// Memory is a registry of in-process listeners, reached as "mem:///name". It is safe for concurrent
// use. Two registries know nothing of each other, so tests can run several clusters at once.
type Memory struct {
	mu        sync.Mutex
	listeners map[string]*memListener // guarded by mu
}

// NewMemory returns an empty registry.
func NewMemory() *Memory { return &Memory{listeners: map[string]*memListener{}} }

// Listen opens name. The listener's Close frees the name.
func (m *Memory) Listen(name string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listeners[name] != nil {
		return nil, fmt.Errorf("listen on mem:///%s: %w", name, ErrNameTaken)
	}
	l := &memListener{Listener: bufconn.Listen(memBuffer), registry: m, name: name}
	m.listeners[name] = l
	return l, nil
}

// Dial connects to the listener of that name.
func (m *Memory) Dial(ctx context.Context, name string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[name]
	m.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial mem:///%s: %w", name, ErrNoListener)
	}
	return l.DialContext(ctx)
}

// memListener frees its name when it is closed.
type memListener struct {
	*bufconn.Listener
	registry *Memory
	name     string
}

func (l *memListener) Close() error {
	l.registry.mu.Lock()
	if l.registry.listeners[l.name] == l {
		delete(l.registry.listeners, l.name)
	}
	l.registry.mu.Unlock()
	return l.Listener.Close()
}
