package replica_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apiary-relay/apiary/services/gateway/internal/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type set struct {
	changed chan struct{}
	mu      sync.Mutex
	names   []string
}

func (s *set) Live() []replica.Node[int] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var nodes []replica.Node[int]
	for i, n := range s.names {
		nodes = append(nodes, replica.Node[int]{Name: n, Client: i})
	}
	return nodes
}

func (s *set) Subscribe() <-chan struct{} { return s.changed }

func (s *set) become(names ...string) {
	s.mu.Lock()
	s.names = names
	s.mu.Unlock()
	s.changed <- struct{}{}
	synctest.Wait()
}

func TestOneGoroutinePerReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &set{changed: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		running, begun := make(map[string]int), make(map[string]int)
		linger := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			replica.Each(ctx, s, func(ctx context.Context, n replica.Node[int], left <-chan struct{}) {
				mu.Lock()
				running[n.Name]++
				begun[n.Name]++
				mu.Unlock()
				select {
				case <-left:
					if n.Name == "slow" {
						<-linger
					}
				case <-ctx.Done():
				}
				mu.Lock()
				running[n.Name]--
				mu.Unlock()
			})
		}()
		now := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			all := make(map[string]int)
			for n, c := range running {
				if c > 0 {
					all[n] = c
				}
			}
			return all
		}
		s.become("a", "slow")
		require.Equal(t, map[string]int{"a": 1, "slow": 1}, now())
		s.become("a", "slow", "b")
		require.Equal(t, map[string]int{"a": 1, "slow": 1, "b": 1}, now())
		s.become("b")
		require.Equal(t, map[string]int{"slow": 1, "b": 1}, now())
		s.become("b", "slow") // is back before its goroutine has ended
		require.Equal(t, 1, begun["slow"])
		close(linger)
		synctest.Wait()
		require.Equal(t, map[string]int{"slow": 1, "b": 1}, now())
		require.Equal(t, 2, begun["slow"])
		cancel()
		<-done
		require.Empty(t, now())
	})
}
