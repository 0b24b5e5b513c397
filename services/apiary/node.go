package apiary

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apiary-relay/apiary/pkg/lifecycle"
)

// node is one service with what only it uses. To drain it is to stop it: what it calls is told to leave only
// after that, and so never while somebody still calls.
type node struct {
	group *lifecycle.Group

	once sync.Once
	stop chan struct{} // closed by Drain
	done chan struct{} // closed when Run has returned
}

// newNode makes a node without parts. Its group does not log: what goes wrong is reported once, by whoever
// runs the process.
func newNode() *node {
	return &node{group: lifecycle.NewGroup(lifecycle.Config{}), stop: make(chan struct{}), done: make(chan struct{})}
}

// Run runs the parts of the node until ctx is done or Drain has drained them.
func (n *node) Run(ctx context.Context, ready func()) error {
	defer close(n.done)
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-n.stop:
			cancel()
		case <-ctx.Done():
		}
	})
	return n.group.Run(ctx, ready)
}

// stopReserve is the part of a drain that is left for the parts to stop.
const stopReserve = 5

// Drain drains the parts of the node and stops them, by ctx's deadline.
func (n *node) Drain(ctx context.Context) error {
	within, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		within, cancel = context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/stopReserve))
	}
	err := n.group.Drain(within)
	cancel()
	n.once.Do(func() { close(n.stop) })
	select {
	case <-n.done:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("wait for the end: %w", ctx.Err()))
	}
}
