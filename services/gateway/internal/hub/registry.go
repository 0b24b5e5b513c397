package hub

import (
	"sync"
	"sync/atomic"
)

// shardCount is a power of two; handles are sequential, so their low bits spread evenly.
const shardCount = 64

// Registry maps handles to what they stand for. A handle is given out once in the life of the
// process, so a late delivery for a forgotten handle finds nothing, never somebody else.
type Registry[T any] struct {
	last   atomic.Uint64
	shards [shardCount]shard[T]
}

type shard[T any] struct {
	mu sync.RWMutex
	m  map[uint64]T
}

// NewRegistry returns an empty registry.
func NewRegistry[T any]() *Registry[T] {
	r := &Registry[T]{}
	for i := range r.shards {
		r.shards[i].m = make(map[uint64]T)
	}
	return r
}

func (r *Registry[T]) shard(handle uint64) *shard[T] { return &r.shards[handle%shardCount] }

// Add stores v under a fresh handle, never 0.
func (r *Registry[T]) Add(v T) (handle uint64) {
	handle = r.last.Add(1)
	s := r.shard(handle)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m[handle] = v
	return handle
}

// Get returns what the handle stands for.
func (r *Registry[T]) Get(handle uint64) (T, bool) {
	s := r.shard(handle)
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.m[handle]
	return v, ok
}

// Remove forgets the handle.
func (r *Registry[T]) Remove(handle uint64) {
	s := r.shard(handle)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, handle)
}

// Len returns the number of handles.
func (r *Registry[T]) Len() int {
	n := 0
	for i := range r.shards {
		r.shards[i].mu.RLock()
		n += len(r.shards[i].m)
		r.shards[i].mu.RUnlock()
	}
	return n
}
