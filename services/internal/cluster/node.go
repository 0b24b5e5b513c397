package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/apiary-relay/apiary/pkg/lifecycle"
)

// builder makes the parts of a node anew. address is where its clients found it before, empty the first
// time.
type builder func(ctx context.Context, address string) (parts, error)

// parts are what a node consists of.
type parts struct {
	// services run at the same time.
	services []lifecycle.Service
	// close closes what they share, after they have stopped, last first.
	close []func()
	// address returns where clients connect; nil for nodes that have none.
	address func() net.Addr
}

// node is one process in the real world. Only the test's goroutine touches it.
type node struct {
	name    string
	build   builder
	address string // of its clients, kept over restarts

	stop context.CancelFunc // nil while it does not run
	done chan error
}

// start builds the node and returns when all parts are ready.
func (n *node) start(tb testing.TB) {
	tb.Helper()
	require.Nil(tb, n.stop, "%s runs", n.name)
	// Nodes outlive a subtest that restarts them.
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	p, err := n.build(ctx, n.address)
	if err != nil {
		stop()
		require.NoError(tb, err, "build %s", n.name)
	}
	n.stop, n.done = stop, make(chan error, 1)
	var ready sync.WaitGroup
	ready.Add(len(p.services))
	go func() { n.done <- run(ctx, p, ready.Done) }()

	started := make(chan struct{})
	go func() {
		defer close(started)
		ready.Wait()
	}()
	select {
	case <-started:
	case err := <-n.done:
		n.done <- nil
		require.FailNow(tb, "node ended", "%s: %v", n.name, err)
	case <-time.After(patience):
		require.FailNow(tb, "node is not ready", n.name)
	}
	if p.address != nil {
		n.address = p.address().String()
	}
}

// kill stops all parts at once.
func (n *node) kill(tb testing.TB) {
	tb.Helper()
	if n.stop == nil {
		return
	}
	n.stop()
	n.stop = nil
	select {
	case err := <-n.done:
		require.NoError(tb, err, "%s ended", n.name)
	case <-time.After(patience):
		require.FailNow(tb, "node does not stop", n.name)
	}
}

// run runs the parts until ctx ends or one of them fails.
func run(ctx context.Context, p parts, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(p.services))
	var running sync.WaitGroup
	for i, service := range p.services {
		running.Go(func() {
			once := sync.OnceFunc(ready)
			defer once()
			defer cancel()
			err := service.Run(ctx, once)
			switch {
			case err != nil && !errors.Is(err, context.Canceled):
				errs[i] = err
			case ctx.Err() == nil:
				errs[i] = fmt.Errorf("part %d: %w", i, lifecycle.ErrReturned)
			}
		})
	}
	running.Wait()
	for i := len(p.close) - 1; i >= 0; i-- {
		p.close[i]()
	}
	return errors.Join(errs...)
}
