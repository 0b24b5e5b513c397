// Package replica is the gateway's view of another service's replicas: a changing set of named
// clients, and one goroutine for each that is in it.
//
// It owns the life of those goroutines and nothing else: what a goroutine does with its replica is
// its caller's business. It opens no connection.
package replica

import (
	"context"
	"sync"
)

// Node is one replica and a client of it.
type Node[C any] struct {
	// Name is unique in the set and stable as long as the replica lives.
	Name string
	// Client calls this replica and no other.
	Client C
}

// Set is a changing set of replicas.
type Set[C any] interface {
	// Live returns the replicas that serve, in any order.
	Live() []Node[C]
	// Subscribe returns a channel that gets a value after Live changed; unreceived changes are merged.
	// Called once per Each.
	Subscribe() <-chan struct{}
}

// Each runs one goroutine per replica, for as long as ctx lives, and returns when all have returned.
// run gets a channel that is closed when its replica leaves the set; it decides itself how long it
// goes on, and when it returns while the replica is in the set it is called again: so run must not
// return at once when it cannot reach the replica.
func Each[C any](ctx context.Context, set Set[C], run func(ctx context.Context, n Node[C], left <-chan struct{})) {
	changed := set.Subscribe()
	returned := make(chan struct{}, 1)

	type worker struct{ leave func() }
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		workers = make(map[string]*worker)
	)
	defer wg.Wait()
	for {
		live := make(map[string]Node[C])
		for _, n := range set.Live() {
			live[n.Name] = n
		}
		mu.Lock()
		for name, w := range workers {
			if _, ok := live[name]; !ok {
				w.leave()
			}
		}
		for name, n := range live {
			if workers[name] != nil {
				continue // at work, or still leaving: looked at again when it returns
			}
			left := make(chan struct{})
			workers[name] = &worker{leave: sync.OnceFunc(func() { close(left) })}
			wg.Go(func() {
				run(ctx, n, left)
				mu.Lock()
				delete(workers, name)
				mu.Unlock()
				select {
				case returned <- struct{}{}:
				default:
				}
			})
		}
		mu.Unlock()
		select {
		case <-changed:
		case <-returned:
		case <-ctx.Done():
			return
		}
	}
}
