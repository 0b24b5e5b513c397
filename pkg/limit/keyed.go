package limit

import (
	"container/list"
	"hash/maphash"
	"sync"
	"time"
)

// keyedShards spreads the lock of a Keyed. A power of two.
const keyedShards = 16

// Keyed is a token bucket per key: each holds at most burst tokens and gains rate tokens a second.
// A bucket is one instant (the time at which it will be full again), so a key costs a map entry and
// a list element. At most maxKeys buckets are kept; the least recently used one is forgotten first,
// and a forgotten bucket is a full one. Choose maxKeys so that rate and burst let a bucket fill up
// before maxKeys other keys come by, or a flood of keys buys fresh buckets.
type Keyed[K comparable] struct {
	perToken time.Duration // time to gain one token; 0: no limit
	window   time.Duration // time to gain burst tokens
	seed     maphash.Seed
	shards   [keyedShards]shard[K]
}

type shard[K comparable] struct {
	mu      sync.Mutex
	max     int
	buckets map[K]*list.Element // guarded by mu; values are *bucket[K]
	recent  *list.List          // guarded by mu; most recently used first
}

type bucket[K comparable] struct {
	key  K
	full time.Time // when it will be full again; in the past: it is full
}

// NewKeyed returns buckets with rate tokens a second and room for burst tokens. A rate of 0 or less
// switches the limit off. burst and maxKeys are at least 1.
func NewKeyed[K comparable](rate float64, burst, maxKeys int) *Keyed[K] {
	k := &Keyed[K]{seed: maphash.MakeSeed()}
	if rate > 0 {
		k.perToken = max(time.Duration(float64(time.Second)/rate), 1)
		k.window = k.perToken * time.Duration(max(burst, 1))
	}
	for i := range k.shards {
		k.shards[i] = shard[K]{
			max: max((maxKeys+keyedShards-1)/keyedShards, 1), buckets: map[K]*list.Element{}, recent: list.New(),
		}
	}
	return k
}

// Allow takes n tokens from key's bucket if they are there now. Otherwise it takes none and returns
// how long the caller has to wait for them; a request for more than burst tokens is never granted, and
// the wait is then the time to fill the bucket.
func (k *Keyed[K]) Allow(key K, n int, now time.Time) (wait time.Duration, ok bool) {
	if k.perToken == 0 || n <= 0 {
		return 0, true
	}
	cost := k.perToken * time.Duration(n)
	s := &k.shards[maphash.Comparable(k.seed, key)%keyedShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.buckets[key]; e != nil {
		s.recent.MoveToFront(e)
		b := e.Value.(*bucket[K]) //nolint:forcetypeassert // the list holds nothing else
		b.full, wait, ok = take(b.full, now, cost, k.window)
		return wait, ok
	}
	full, wait, ok := take(now, now, cost, k.window)
	if !ok {
		return wait, false
	}
	s.add(key, full)
	return 0, true
}

// Spend is Bucket.Spend for key's bucket.
func (k *Keyed[K]) Spend(key K, n int, now time.Time) (debt time.Duration) {
	return k.SpendSince(key, n, now, now)
}

// SpendSince is Spend for tokens that were used one by one from a time until now. Who uses no more than the bucket gains
// meanwhile is in no debt afterwards, however long that was.
func (k *Keyed[K]) SpendSince(key K, n int, from, now time.Time) (debt time.Duration) {
	if k.perToken == 0 || n <= 0 {
		return 0
	}
	cost := k.perToken * time.Duration(n)
	s := &k.shards[maphash.Comparable(k.seed, key)%keyedShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.buckets[key]; e != nil {
		s.recent.MoveToFront(e)
		b := e.Value.(*bucket[K]) //nolint:forcetypeassert // the list holds nothing else
		b.full, debt = spend(b.full, from, now, cost, k.window)
		return debt
	}
	full, debt := spend(from, from, now, cost, k.window)
	s.add(key, full)
	return debt
}

// Used returns how long key's bucket takes to be full again if nothing is taken: 0 when it is full.
func (k *Keyed[K]) Used(key K, now time.Time) time.Duration {
	if k.perToken == 0 {
		return 0
	}
	s := &k.shards[maphash.Comparable(k.seed, key)%keyedShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.buckets[key]
	if e == nil {
		return 0
	}
	return max(e.Value.(*bucket[K]).full.Sub(now), 0) //nolint:forcetypeassert // the list holds nothing else
}

// add makes room for a bucket and keeps it. Called with mu held.
func (s *shard[K]) add(key K, full time.Time) {
	if len(s.buckets) >= s.max {
		oldest := s.recent.Back()
		delete(s.buckets, s.recent.Remove(oldest).(*bucket[K]).key) //nolint:forcetypeassert // the list holds nothing else
	}
	s.buckets[key] = s.recent.PushFront(&bucket[K]{key: key, full: full})
}

// Forget drops key's bucket, for keys that are known never to come again (a closed connection).
func (k *Keyed[K]) Forget(key K) {
	s := &k.shards[maphash.Comparable(k.seed, key)%keyedShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.buckets[key]; e != nil {
		s.recent.Remove(e)
		delete(s.buckets, key)
	}
}

// Len returns the number of buckets kept.
func (k *Keyed[K]) Len() int {
	n := 0
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		n += len(s.buckets)
		s.mu.Unlock()
	}
	return n
}
